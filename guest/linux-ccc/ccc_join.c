// SPDX-License-Identifier: GPL-2.0
/*
 * How a flow joins others.
 *
 * By the ACK clock, unless the parameter `join` says otherwise.  The two other
 * ways are there for comparison: its whole share at once, in one burst, which
 * meets what the others still have in the queue; and the same, spread over a
 * round trip by TCP's own pacing, which does not know when the others' packets
 * leave the queue, and lets a socket's first ten segments pass.
 */
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <net/sock.h>

#include "flow.h"

enum ccc_join_way { CCC_BY_CLOCK, CCC_PACED, CCC_UNCLOCKED };

static const char * const ccc_join_ways[] = {
	[CCC_BY_CLOCK] = "clock",
	[CCC_PACED] = "paced",
	[CCC_UNCLOCKED] = "unclocked",
};

static int join;

static int ccc_join_way_set(const char *value, const struct kernel_param *kp)
{
	int way = sysfs_match_string(ccc_join_ways, value);

	if (way < 0) {
		pr_err("ccc: join=%s: no such way; there are clock, paced, unclocked\n",
		       value);
		return way;
	}
	WRITE_ONCE(join, way);
	return 0;
}

static int ccc_join_way_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", ccc_join_ways[READ_ONCE(join)]);
}

static const struct kernel_param_ops ccc_join_param = {
	.set = ccc_join_way_set,
	.get = ccc_join_way_get,
};

module_param_cb(join, &ccc_join_param, NULL, 0644);
MODULE_PARM_DESC(join, "how flows join others: clock (default), paced, unclocked");

/* From now on; a rate that the socket's owner or its queue has set stays. */
static void ccc_pace(struct sock *sk, u32 share)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE,
		    SK_PACING_NEEDED) != SK_PACING_NONE)
		return;
	WRITE_ONCE(sk->sk_pacing_rate,
		   ccc_pacing_rate(share, tp->mss_cache, tp->srtt_us >> 3));
}

/* The window with which the flow begins; others' ACKs release the rest. */
u32 ccc_join_begin(struct sock *sk, const struct ccc_slot *slot)
{
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

	switch (READ_ONCE(join)) {
	case CCC_PACED:
		ccc_pace(sk, slot->share);
		fallthrough;
	case CCC_UNCLOCKED:
		return max(slot->share, CCC_JOIN_PACKETS);
	default:
		return ccc_join_window(cwnd, slot->share, ccc_clock_runs(slot));
	}
}
