// SPDX-License-Identifier: GPL-2.0
/*
 * Congestion control coupling for TCP.
 *
 * The flows of all virtual machines that send through one bottleneck share
 * one congestion window, which the host keeps.  This algorithm wraps another,
 * the inner one, and stands between it and the host:
 *
 * - What the inner algorithm would do is reported, not done: how far it would
 *   have opened the window for the data acknowledged, that it entered loss
 *   recovery or was told of congestion by ECN, that it had a timeout, that it
 *   found one of these spurious.  In congestion avoidance it works on a window
 *   of its own, see shadow.c.
 * - What the host grants is done: the flow's window is its part of the
 *   aggregate's, read at every ACK.  A smaller window is in force at once, a
 *   larger one is approached at the pace of slow start.  In recovery and
 *   after a timeout TCP's own machinery is left alone, and its target,
 *   snd_ssthresh, is the flow's new share.
 * - One loss event is one reduction, for all flows together.  A segment that
 *   was sent before the latest reduction says nothing about the present
 *   window, so every event carries the epoch in which its segment was sent.
 *
 * Messages to the host are asynchronous.  Nothing here waits for an answer:
 * where the new share is needed before it can have arrived, it is predicted,
 * and corrected at the next ACK.
 *
 * A flow takes a slot in the host's tables with its first data, not before:
 * pure receivers do not count.  Without a slot, without a device, or when the
 * device does not answer, a flow is exactly its inner algorithm.
 *
 * S. Islam, M. Welzl, K. Hiorth, D. Hayes, G. Armitage, S. Gjessing:
 * "ctrlTCP: Reducing Latency through Coupled, Heterogeneous Multi-Flow TCP
 * Congestion Control", IEEE INFOCOM Workshops, 2018.
 * M. Allman, V. Paxson, E. Blanton: "TCP Congestion Control", RFC 5681, 2009.
 */
#include <linux/inet_diag.h>
#include <linux/module.h>

#include "flow.h"

static char *inner = "reno";
module_param(inner, charp, 0444);
MODULE_PARM_DESC(inner, "window-based algorithm to couple (default reno)");

/*
 * Let the inner algorithm have the ACK; the packets by which it grew.  Its slow
 * start is no growth of the aggregate: that has its own, and after a timeout
 * the flow only works its way back.
 */
static u32 ccc_inner_grow(struct sock *sk, struct ccc_slot *slot, u32 ack,
			  u32 acked)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	bool slow_start = tcp_in_slow_start(tp);
	u32 before = tcp_snd_cwnd(tp);
	u32 after;

	if (slot->twin.cwnd)
		return ccc_twin_grow(sk, &slot->twin, inner, ack, acked);
	inner->cong_avoid(sk, ack, acked);
	after = tcp_snd_cwnd(tp);
	return after > before && !slow_start ? after - before : 0;
}

static void ccc_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct ccc_slot *slot = ccc_slot_or_enter(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 before = tcp_snd_cwnd(tp);

	if (!slot) {
		ccc_inner_of(sk)->cong_avoid(sk, ack, acked);
		return;
	}
	slot->limited = tcp_is_cwnd_limited(sk);
	slot->grown += ccc_inner_grow(sk, slot, ack, acked) * tp->mss_cache;
	/* Counted after a timeout too, in case all flows have timed out. */
	if (slot->limited)
		slot->acked += (u64)acked * tp->mss_cache;
	if (inet_csk(sk)->icsk_ca_state == TCP_CA_Loss) {
		ccc_report(sk, slot);
		return;
	}
	if (slot->coupled)
		tcp_snd_cwnd_set(tp, before);
	ccc_report(sk, slot);
	ccc_apply(sk, slot, acked);
}

static void ccc_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct ccc_slot *slot = ccc_slot(sk);

	if (inner->pkts_acked)
		inner->pkts_acked(sk, sample);
	if (slot)
		ccc_clock_tick(slot, (u64)sample->pkts_acked *
				     tcp_sk(sk)->mss_cache);
	if (slot && sample->rtt_us > 0)
		slot->rtt = min_not_zero(slot->rtt,
					 ccc_wire_rtt(sample->rtt_us));
}

static void ccc_in_ack_event(struct sock *sk, u32 flags)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct ccc_slot *slot = ccc_slot(sk);

	if (inner->in_ack_event)
		inner->in_ack_event(sk, flags);
	if (!slot)
		return;
	slot->ece = flags & CA_ACK_ECE;
	ccc_watch_probe(tcp_sk(sk), slot);
	/* cong_avoid() does not run while TCP reduces the window. */
	if (slot->state == VIRTIO_CCC_STATE_FR)
		ccc_report(sk, slot);
}

/*
 * Data leaves, and nothing was in flight.  Whoever begins or comes back takes
 * at most his share; more is released by ACKs.
 */
static void ccc_tx_start(struct sock *sk)
{
	u8 ca_state = inet_csk(sk)->icsk_ca_state;
	struct ccc_slot *slot = ccc_slot(sk);
	bool joins = !slot || !slot->active;

	if (!inet_csk(sk)->icsk_ca_initialized)
		return;
	ccc_flow(sk)->sender = true;
	/* The aggregate has gone on without this flow, and its twin with it. */
	if (slot && tcp_jiffies32 - tcp_sk(sk)->lsndtime > inet_csk(sk)->icsk_rto)
		ccc_twin_stop(sk, &slot->twin, ccc_inner_of(sk));
	if (slot && joins)
		slot->limited = true;
	if (slot)
		ccc_report_as(sk, slot, ccc_wire_state(sk, ca_state), true);
	else
		slot = ccc_enter(sk);
	if (!slot || ca_state > TCP_CA_Disorder)
		return;
	ccc_apply(sk, slot, 0);
	if (joins)
		ccc_join(sk, slot);
}

/* TCP asks before it sends, with the socket locked. */
static u32 ccc_min_tso_segs(struct sock *sk)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct ccc_slot *slot = ccc_flow(sk)->slot;

	if (slot && slot->waits)
		ccc_release_more(sk, slot);
	if (inner->min_tso_segs)
		return inner->min_tso_segs(sk);
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_min_tso_segs);
}

#ifdef CCC_HAVE_TX_START_OP
static void ccc_cwnd_event_tx_start(struct sock *sk)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	if (inner->cwnd_event_tx_start)
		inner->cwnd_event_tx_start(sk);
	ccc_tx_start(sk);
}
#else
static void ccc_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	if (inner->cwnd_event)
		inner->cwnd_event(sk, event);
	if (event == CA_EVENT_TX_START)
		ccc_tx_start(sk);
}
#endif

static struct tcp_congestion_ops ccc_ops;
static struct tcp_congestion_ops ccc_fallback_ops;

static void ccc_init(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct ccc_flow *flow = ccc_flow(sk);

	flow->slot = NULL;
	ccc_show(sk, 0);
	flow->tried = ccc_room_now() - 1;
	/* A flow that changes to this algorithm may be sending already. */
	flow->sender = tcp_sk(sk)->packets_out;
	flow->inner = NULL;
	if (ccc_inner->init)
		ccc_inner->init(sk);
	if (icsk->icsk_ca_ops == &ccc_ops)
		return;
	/* DCTCP has put Reno in its place, as there is no ECN on this path. */
	flow->inner = icsk->icsk_ca_ops;
	icsk->icsk_ca_ops = &ccc_fallback_ops;
}

static void ccc_release(struct sock *sk)
{
	struct ccc_slot *slot = ccc_slot(sk);

	if (slot)
		ccc_leave(sk, slot);
	if (ccc_inner_of(sk)->release)
		ccc_inner_of(sk)->release(sk);
}

/*
 * ss(8) prints only what it knows.  Of that, the fields of BBR's record have
 * the same meaning here: a rate that may be sent, the smallest RTT, and two
 * factors of 256, for which the priority and whether the flow is coupled are
 * given.
 *
 * Called without the socket's lock, and perhaps while it changes to or from
 * another algorithm: everything here is a number, and any number will do.
 */
static size_t ccc_get_info(struct sock *sk, u32 ext, int *attr,
			   union tcp_cc_info *info)
{
	u32 share = READ_ONCE(ccc_flow(sk)->shown);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = READ_ONCE(tp->srtt_us) >> 3;
	u64 rate = 0;

	if (!(ext & (1 << (INET_DIAG_BBRINFO - 1))) &&
	    !(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	memset(&info->bbr, 0, sizeof(info->bbr));
	info->bbr.bbr_min_rtt = tcp_min_rtt(tp);
	info->bbr.bbr_pacing_gain = ccc_priority_of(sk);
	if (share && srtt_us) {
		rate = ccc_pacing_rate(share, READ_ONCE(tp->mss_cache),
				       srtt_us);
		info->bbr.bbr_cwnd_gain = 256;
	}
	info->bbr.bbr_bw_lo = (u32)rate;
	info->bbr.bbr_bw_hi = (u32)(rate >> 32);
	*attr = INET_DIAG_BBRINFO;
	return sizeof(info->bbr);
}

/*
 * Two operations that are the same for a socket whose inner algorithm wanted
 * ECN and did not get it: TCP must not ask for it again.
 */
static struct tcp_congestion_ops ccc_fallback_ops __read_mostly;

static struct tcp_congestion_ops ccc_ops __read_mostly = {
	.name		= "ccc",
	.owner		= THIS_MODULE,
	.init		= ccc_init,
	.release	= ccc_release,
	.ssthresh	= ccc_ssthresh,
	.set_state	= ccc_set_state,
	.undo_cwnd	= ccc_undo_cwnd,
	.cong_avoid	= ccc_cong_avoid,
	.pkts_acked	= ccc_pkts_acked,
	.in_ack_event	= ccc_in_ack_event,
	.min_tso_segs	= ccc_min_tso_segs,
#ifdef CCC_HAVE_TX_START_OP
	.cwnd_event_tx_start = ccc_cwnd_event_tx_start,
#else
	.cwnd_event	= ccc_cwnd_event,
#endif
	.get_info	= ccc_get_info,
};

/* What coupling has no part in goes to the inner algorithm directly. */
static void ccc_take_over_inner(void)
{
	ccc_ops.flags = ccc_inner->flags;
	/*
	 * One that counts on marks of its own network is the administrator's
	 * to give away, see net.ipv4.tcp_allowed_congestion_control.
	 */
	if (!(ccc_inner->flags & TCP_CONG_NEEDS_ECN))
		ccc_ops.flags |= TCP_CONG_NON_RESTRICTED;
	ccc_ops.sndbuf_expand = ccc_inner->sndbuf_expand;
#ifdef CCC_HAVE_TX_START_OP
	ccc_ops.cwnd_event = ccc_inner->cwnd_event;
#endif
	ccc_fallback_ops = ccc_ops;
	ccc_fallback_ops.flags &= ~TCP_CONG_NEEDS_ECN;
#ifdef CCC_HAVE_TX_START_OP
	ccc_fallback_ops.cwnd_event = NULL;
#endif
}

static int __init ccc_module_init(void)
{
	int err;

	BUILD_BUG_ON(sizeof(struct ccc_flow) > ICSK_CA_PRIV_SIZE);
	BUILD_BUG_ON(CCC_INNER_PRIV_SIZE % __alignof__(struct ccc_flow));

	err = ccc_inner_load(inner);
	if (err)
		return err;
	ccc_take_over_inner();
	err = ccc_virtio_register();
	if (err)
		goto unload_inner;
	err = tcp_register_congestion_control(&ccc_ops);
	if (err)
		goto unregister_virtio;
	ccc_debugfs_create();
	return 0;

unregister_virtio:
	ccc_virtio_unregister();
unload_inner:
	ccc_inner_unload();
	return err;
}

static void __exit ccc_module_exit(void)
{
	ccc_debugfs_remove();
	tcp_unregister_congestion_control(&ccc_ops);
	ccc_clock_exit();
	ccc_virtio_unregister();
	ccc_inner_unload();
}

module_init(ccc_module_init);
module_exit(ccc_module_exit);

MODULE_AUTHOR("The CCC project");
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Congestion control coupling: virtio driver and TCP");
MODULE_VERSION("0.1");
MODULE_ALIAS("tcp_ccc");
