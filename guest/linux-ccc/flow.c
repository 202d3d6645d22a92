// SPDX-License-Identifier: GPL-2.0
/*
 * How a flow takes a slot and gives it back, and which flows do.
 *
 * Coupled are those that leave the machine by the bottleneck.  A flow over the
 * loopback device does not, nor does, as a rule, one between a container and
 * another.  Those would be held to the uplink's rate for nothing, take part of
 * its window, and have their addresses told to the host.
 */
#include <linux/moduleparam.h>
#include <linux/netdevice.h>
#include <net/dst.h>
#include <net/net_namespace.h>

#include "flow.h"

static char *devices = "";
module_param(devices, charp, 0444);
MODULE_PARM_DESC(devices, "network devices whose flows are coupled, separated by commas (default all but loopback)");

static bool containers;
module_param(containers, bool, 0644);
MODULE_PARM_DESC(containers, "couple flows of other network namespaces too (default no)");

static bool is_listed(const char *name)
{
	size_t length = strlen(name);
	const char *at = devices;

	if (!*at)
		return true;
	for (;;) {
		if (!strncmp(at, name, length) &&
		    (at[length] == ',' || !at[length]))
			return true;
		at = strchr(at, ',');
		if (!at)
			return false;
		at++;
	}
}

/* By the route that the socket has at present. */
static bool is_in_scope(struct sock *sk)
{
	const struct net_device *dev;
	const struct dst_entry *dst;
	bool in = false;

	if (!net_eq(sock_net(sk), &init_net) && !READ_ONCE(containers))
		return false;
	rcu_read_lock();
	dst = __sk_dst_get(sk);
	if (dst) {
		dev = READ_ONCE(dst->dev);
		in = !(READ_ONCE(dev->flags) & IFF_LOOPBACK) &&
		     is_listed(dev->name);
	}
	rcu_read_unlock();
	return in;
}

/* True if the inner algorithm has put another in its place. */
bool ccc_flow_init(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	const struct tcp_congestion_ops *ops = icsk->icsk_ca_ops;
	struct ccc_sock *csk = ccc_sk(sk);

	csk->flow = NULL;
	ccc_flow_show(sk, 0);
	csk->slot_seq = ccc_slot_seq_read() - 1;
	/* One that changes to this algorithm may be sending already. */
	csk->sender = tcp_sk(sk)->packets_out;
	csk->inner = NULL;
	if (ccc_inner->init)
		ccc_inner->init(sk);
	if (icsk->icsk_ca_ops == ops)
		return false;
	csk->inner = icsk->icsk_ca_ops;
	return true;
}

static void init_flow(const struct sock *sk, struct ccc_flow *flow,
		      struct ccc_slot *slot)
{
	memset(flow, 0, sizeof(*flow));
	flow->slot = slot;
	flow->inner = ccc_inner_of(sk);
	ccc_shadow_init(flow);
	ccc_ack_clock_init(flow);
}

/*
 * It has data to send: it takes a slot, if there is one for it.  In the RCU
 * section of the caller, who writes to it.
 */
struct ccc_flow *ccc_flow_attach(struct sock *sk)
{
	struct ccc_sock *csk = ccc_sk(sk);
	struct ccc_flow *flow;
	struct ccc_slot *slot;

	csk->sender = true;
	/*
	 * Its route is looked up when it sends, and anew after IP_TOS, SO_MARK
	 * and the like: it tries again with its next ACK.
	 */
	csk->slot_seq = ccc_slot_seq_read() - 1;
	if (!__sk_dst_get(sk))
		return NULL;
	csk->slot_seq = ccc_slot_seq_read();
	if (!is_in_scope(sk))
		return NULL;
	slot = ccc_slot_take(sk);
	if (!slot)
		return NULL;
	flow = ccc_flow_of(slot);
	init_flow(sk, flow, slot);
	csk->flow = flow;
	ccc_report_first(sk, flow);
	return flow;
}

void ccc_flow_detach(struct sock *sk)
{
	struct ccc_flow *flow = ccc_sk(sk)->flow;

	ccc_ack_clock_count(flow, 0, false);
	ccc_cwnd_stop_timing(sk, flow);
	rcu_read_lock();
	if (ccc_flow_is_live(flow->slot))
		ccc_report_last(sk, flow);
	rcu_read_unlock();
	ccc_sk(sk)->flow = NULL;
	ccc_flow_show(sk, 0);
	ccc_slot_drop(flow->slot);
}
