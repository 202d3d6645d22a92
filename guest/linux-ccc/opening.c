// SPDX-License-Identifier: GPL-2.0
/*
 * What a flow says that it wants when it begins, or comes back, before its ACKs
 * tell: see common/opening.h.
 */
#include <net/tcp.h>

#include "flow.h"

/* Packets above which its window is the limit. */
static u32 most(const struct ccc_flow *flow)
{
	return flow->grant.coupled ? flow->grant.cwnd : CCC_OPENING_MAX;
}

static u32 opening(const struct tcp_sock *tp, const struct ccc_flow *flow)
{
	return ccc_opening(tp->write_seq - tp->snd_una, tp->mss_cache,
			   most(flow));
}

/* Its window is the limit of what it does not say that it has to send. */
static void note(struct ccc_report *report, u32 packets)
{
	report->opening = packets;
	report->cwnd_limited = !packets;
}

/* Data is about to leave; one that takes a slot later than that has sent some. */
void ccc_opening_begin(const struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	note(&flow->report, tp->packets_out ? 0 : opening(tp, flow));
}

/* More is known of what it is granted, or has to send: others are told at once. */
void ccc_opening_look(const struct sock *sk, struct ccc_flow *flow)
{
	u32 before = flow->report.opening;

	note(&flow->report, opening(tcp_sk(sk), flow));
	flow->report.at_once |= flow->report.opening != before;
}

/* It has lost a packet: its window is the limit until recovery is over. */
void ccc_opening_end(struct ccc_flow *flow)
{
	if (flow->report.opening)
		note(&flow->report, 0);
}

/* An application writes while the first packets leave: no ACK tells of that in time. */
bool ccc_opening_grew(const struct sock *sk, const struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return ccc_opening_grows(flow->report.opening,
				 tp->write_seq - tp->snd_una, tp->mss_cache);
}

/*
 * An ACK has come.  Where the device answers late, what the flow had to send waits
 * for a window that it was not granted in time; that is no limit either.
 */
void ccc_opening_acked(const struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->report.opening)
		return;
	flow->report.opening = opening(tcp_sk(sk), flow);
	if (flow->report.opening)
		flow->report.cwnd_limited = false;
}
