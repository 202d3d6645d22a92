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
 *   of its own, see ccc_twin.c.
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
#include <net/inet_sock.h>
#include <net/ipv6.h>

#include "ccc.h"

static char *inner = "reno";
module_param(inner, charp, 0444);
MODULE_PARM_DESC(inner, "window-based algorithm to couple (default reno)");

static unsigned int report_shift = 3;
module_param(report_shift, uint, 0644);
MODULE_PARM_DESC(report_shift,
		 "ring the doorbell per window >> this (default 3: 8 in an RTT)");

/* What is known of a flow without a slot; behind the inner algorithm's part. */
struct ccc_flow {
	struct ccc_slot *slot;
	const struct tcp_congestion_ops *inner;	/* unless it is ccc_inner */
	u32 tried;		/* ccc_room at the last attempt to take a slot */
	bool sender;		/* has sent data */
};

#define CCC_INNER_PRIV_SIZE	(ICSK_CA_PRIV_SIZE - sizeof(struct ccc_flow))

static struct ccc_flow *ccc_flow(const struct sock *sk)
{
	return inet_csk_ca(sk) + CCC_INNER_PRIV_SIZE;
}

static const struct tcp_congestion_ops *ccc_inner_of(const struct sock *sk)
{
	return ccc_flow(sk)->inner ?: ccc_inner;
}

/* ---- Reports ----------------------------------------------------------- */

static u8 ccc_wire_state(const struct sock *sk, u8 ca_state)
{
	switch (ca_state) {
	case TCP_CA_CWR:
	case TCP_CA_Recovery:
		return VIRTIO_CCC_STATE_FR;
	case TCP_CA_Loss:
		return VIRTIO_CCC_STATE_LOSS;
	default:
		return tcp_in_slow_start(tcp_sk(sk)) ? VIRTIO_CCC_STATE_SS :
						       VIRTIO_CCC_STATE_CA;
	}
}

static bool ccc_has_data(const struct sock *sk)
{
	return tcp_sk(sk)->packets_out || !tcp_write_queue_empty(sk);
}

static u32 ccc_wire_ssthresh(const struct tcp_sock *tp)
{
	if (tp->snd_ssthresh >= TCP_INFINITE_SSTHRESH)
		return VIRTIO_CCC_SSTHRESH_UNSET;
	return ccc_bytes(tp->snd_ssthresh, tp->mss_cache);
}

static void ccc_report_begin(struct ccc_slot *slot)
{
	WRITE_ONCE(slot->report->seq, cpu_to_le32(++slot->seq));
	virt_wmb();	/* odd before the first change */
}

static void ccc_report_end(struct ccc_slot *slot)
{
	virt_wmb();	/* the last change before even */
	WRITE_ONCE(slot->report->seq, cpu_to_le32(++slot->seq));
}

static void ccc_write_hot(const struct sock *sk, struct ccc_slot *slot)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct virtio_ccc_report *report = slot->report;
	u32 min_rtt = tcp_min_rtt(tp);
	u32 mss = tp->mss_cache;

	report->state = slot->state;
	report->flags = (slot->active ? VIRTIO_CCC_R_ACTIVE : 0) |
			(slot->limited ? VIRTIO_CCC_R_LIMITED : 0);
	report->priority = cpu_to_le16(slot->priority);
	report->acked = cpu_to_le64(slot->acked);
	report->delivered = cpu_to_le64(slot->delivered);
	report->grown = cpu_to_le32(slot->grown);
	report->events = cpu_to_le16(slot->events);
	report->timeouts = cpu_to_le16(slot->timeouts);
	report->undos = cpu_to_le16(slot->undos);
	report->beta = cpu_to_le16(slot->beta);
	report->event_epoch = cpu_to_le32(slot->event_epoch);
	report->cwnd = cpu_to_le32(ccc_bytes(tcp_snd_cwnd(tp), mss));
	report->ssthresh = cpu_to_le32(ccc_wire_ssthresh(tp));
	report->srtt_us = cpu_to_le32(slot->srtt_us);
	report->min_rtt_us = cpu_to_le32(min_rtt == ~0U ? 0 : min_rtt);
	report->inflight =
		cpu_to_le32(ccc_bytes(tcp_packets_in_flight(tp), mss));
	report->mss = cpu_to_le16(min_t(u32, mss, U16_MAX));
	report->rtt = cpu_to_le16(slot->rtt);
}

/* Bring the slot's own numbers up to date. */
static void ccc_update(const struct sock *sk, struct ccc_slot *slot, u8 state,
		       bool active)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	slot->delivered += (u64)(tp->delivered - slot->tcp_delivered) *
			   tp->mss_cache;
	slot->tcp_delivered = tp->delivered;
	slot->priority = ccc_priority(READ_ONCE(sk->sk_priority));
	slot->active = active;
	slot->state = state;
}

static bool ccc_is_due(const struct tcp_sock *tp, const struct ccc_slot *slot)
{
	const struct ccc_rung *rung = &slot->rung;

	if (slot->state != rung->state || slot->active != rung->active ||
	    slot->priority != rung->priority ||
	    slot->events != rung->events ||
	    slot->timeouts != rung->timeouts || slot->undos != rung->undos)
		return true;
	return ccc_report_due(slot->delivered - rung->delivered,
			      slot->grown - rung->grown, tcp_snd_cwnd(tp),
			      tp->mss_cache, READ_ONCE(report_shift));
}

static void ccc_announce(struct ccc_slot *slot, u16 op)
{
	struct ccc_rung *rung = &slot->rung;

	rung->delivered = slot->delivered;
	rung->grown = slot->grown;
	rung->events = slot->events;
	rung->timeouts = slot->timeouts;
	rung->undos = slot->undos;
	rung->priority = slot->priority;
	rung->state = slot->state;
	rung->active = slot->active;
	slot->rtt = 0;
	ccc_ring(slot, op);
}

/* Shares by rate count it: device and driver must use the same. */
static void ccc_average_rtt(const struct tcp_sock *tp, struct ccc_slot *slot)
{
	slot->slow_us = ccc_slow_rtt(slot->slow_us, tp->srtt_us >> 3,
				     slot->delivered - slot->rung.delivered,
				     ccc_bytes(tcp_snd_cwnd(tp), tp->mss_cache));
	slot->srtt_us = ccc_steady_rtt(slot->srtt_us, slot->slow_us);
}

static void ccc_report_as(const struct sock *sk, struct ccc_slot *slot,
			  u8 state, bool active)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	bool due;

	ccc_update(sk, slot, state, active);
	due = ccc_is_due(tp, slot);
	if (due)
		ccc_average_rtt(tp, slot);
	ccc_report_begin(slot);
	ccc_write_hot(sk, slot);
	ccc_report_end(slot);
	if (due)
		ccc_announce(slot, VIRTIO_CCC_OP_UPDATE);
}

static void ccc_report(const struct sock *sk, struct ccc_slot *slot)
{
	u8 state = ccc_wire_state(sk, inet_csk(sk)->icsk_ca_state);

	ccc_report_as(sk, slot, state, ccc_has_data(sk));
}

static void ccc_write_addresses(const struct sock *sk,
				struct virtio_ccc_report *report)
{
	const struct inet_sock *inet = inet_sk(sk);

	report->sport = cpu_to_le16(ntohs(inet->inet_sport));
	report->dport = cpu_to_le16(ntohs(inet->inet_dport));
	memset(report->saddr, 0, sizeof(report->saddr));
	memset(report->daddr, 0, sizeof(report->daddr));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		report->family = 6;
		memcpy(report->saddr, &inet6_sk(sk)->saddr, 16);
		memcpy(report->daddr, &sk->sk_v6_daddr, 16);
		return;
	}
#endif
	report->family = 4;
	memcpy(report->saddr, &inet->inet_saddr, 4);
	memcpy(report->daddr, &inet->inet_daddr, 4);
}

static void ccc_write_cold(const struct sock *sk, struct ccc_slot *slot)
{
	struct virtio_ccc_report *report = slot->report;

	report->generation = cpu_to_le32(slot->generation);
	ccc_write_addresses(sk, report);
	memcpy(report->algorithm, ccc_inner_of(sk)->name,
	       min(sizeof(report->algorithm), sizeof(ccc_inner->name)));
}

/* ---- Taking a slot and giving it back ----------------------------------- */

static void ccc_slot_reset(const struct sock *sk, struct ccc_slot *slot)
{
	slot->coupled = false;
	slot->ece = false;
	slot->undoable = false;
	/* Wants all it can have, until its ACKs tell otherwise. */
	slot->limited = true;
	slot->reduced = false;
	slot->local = false;
	slot->charged = false;
	slot->twin.cwnd = 0;
	slot->share = 0;
	slot->climb = 0;
	slot->acked = 0;
	slot->delivered = 0;
	slot->grown = 0;
	slot->events = 0;
	slot->timeouts = 0;
	slot->undos = 0;
	slot->beta = CCC_BETA_HALF;
	slot->event_epoch = 0;
	slot->rtt = 0;
	slot->tcp_delivered = tcp_sk(sk)->delivered;
	memset(&slot->view, 0, sizeof(slot->view));
}

static struct ccc_slot *ccc_enter(struct sock *sk)
{
	struct ccc_flow *flow = ccc_flow(sk);
	u8 ca_state = inet_csk(sk)->icsk_ca_state;
	struct ccc_slot *slot;

	flow->tried = READ_ONCE(ccc_room);
	slot = ccc_slot_take();
	if (!slot)
		return NULL;
	ccc_slot_reset(sk, slot);
	slot->slow_us = tcp_sk(sk)->srtt_us >> 3;
	slot->srtt_us = slot->slow_us;
	ccc_update(sk, slot, ccc_wire_state(sk, ca_state), true);
	ccc_report_begin(slot);
	ccc_write_cold(sk, slot);
	ccc_write_hot(sk, slot);
	ccc_report_end(slot);
	WRITE_ONCE(flow->slot, slot);
	ccc_announce(slot, VIRTIO_CCC_OP_REGISTER);
	return slot;
}

static void ccc_leave(struct sock *sk, struct ccc_slot *slot)
{
	ccc_update(sk, slot, VIRTIO_CCC_STATE_FREE, false);
	ccc_report_begin(slot);
	ccc_write_hot(sk, slot);
	ccc_report_end(slot);
	if (ccc_slot_live(slot))
		ccc_ring(slot, VIRTIO_CCC_OP_LEAVE);
	WRITE_ONCE(ccc_flow(sk)->slot, NULL);
	ccc_slot_drop(slot);
}

/* The flow's slot, unless the device has gone or wants the chunk back. */
static struct ccc_slot *ccc_slot(struct sock *sk)
{
	struct ccc_slot *slot = ccc_flow(sk)->slot;

	if (!slot || likely(ccc_slot_live(slot)))
		return slot;
	ccc_leave(sk, slot);
	return NULL;
}

/* The same for a sender, who takes another slot as soon as there may be one. */
static struct ccc_slot *ccc_slot_or_enter(struct sock *sk)
{
	const struct ccc_flow *flow = ccc_flow(sk);
	struct ccc_slot *slot = ccc_slot(sk);

	if (slot || !flow->sender || flow->tried == READ_ONCE(ccc_room))
		return slot;
	return ccc_enter(sk);
}

/* ---- Shares ------------------------------------------------------------ */

static u32 ccc_packets(const struct tcp_sock *tp, const struct ccc_slot *slot,
		       u64 level)
{
	const struct ccc_grant_view *view = &slot->view;
	u64 units = ccc_units(slot->priority, slot->srtt_us,
			      view->flags & VIRTIO_CCC_L_RATE);
	u32 share = ccc_share_packets(level, units, tp->mss_cache,
				      slot->offset + view->phase);

	return ccc_cap_packets(share, view->cap, tp->mss_cache);
}

/* A reduction that another flow has caused is one of this flow's twin too. */
static void ccc_follow(struct sock *sk, struct ccc_slot *slot)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	slot->followed = slot->view.epoch;
	if (slot->charged) {
		slot->charged = false;
	} else if (slot->twin.cwnd) {
		ccc_twin_ssthresh(sk, &slot->twin, inner);
		ccc_twin_reduce(&slot->twin);
	} else {
		/* For what the algorithm remembers of it. */
		inner->ssthresh(sk);
	}
}

/* Read the grant; true if the flow is coupled, with its share up to date. */
static bool ccc_read_share(struct sock *sk, struct ccc_slot *slot)
{
	bool coupled = slot->coupled;

	ccc_grant_refresh(slot);
	if (!slot->coupled) {
		ccc_twin_stop(sk, &slot->twin, ccc_inner_of(sk));
		return false;
	}
	if (!coupled) {
		slot->followed = slot->view.epoch;
		slot->charged = false;
	}
	WRITE_ONCE(slot->share, ccc_packets(tcp_sk(sk), slot, slot->view.level));
	if (slot->followed != slot->view.epoch)
		ccc_follow(sk, slot);
	return true;
}

/*
 * Keep the inner algorithm in the aggregate's phase: in congestion avoidance
 * it must not take its own part below the threshold for slow start.
 */
static u32 ccc_phase_ssthresh(const struct tcp_sock *tp,
			      const struct ccc_slot *slot)
{
	u64 level = slot->view.ssthresh_level;
	u32 ssthresh = TCP_INFINITE_SSTHRESH;

	if (level != VIRTIO_CCC_LEVEL_UNSET)
		ssthresh = clamp_t(u32, ccc_packets(tp, slot, level), 2,
				   TCP_INFINITE_SSTHRESH);
	if (slot->view.flags & VIRTIO_CCC_L_SLOW_START)
		return ssthresh;
	return min(ssthresh, tcp_snd_cwnd(tp));
}

static void ccc_set_window(struct tcp_sock *tp, const struct ccc_slot *slot,
			   u32 cwnd)
{
	cwnd = min(cwnd, tp->snd_cwnd_clamp);
	tcp_snd_cwnd_set(tp, cwnd);
	/* Credit of a larger window would open the smaller one at once. */
	tp->snd_cwnd_cnt = min(tp->snd_cwnd_cnt, cwnd - 1);
	WRITE_ONCE(tp->snd_ssthresh, ccc_phase_ssthresh(tp, slot));
}

static void ccc_apply(struct sock *sk, struct ccc_slot *slot, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!ccc_read_share(sk, slot))
		return;
	if (slot->share <= cwnd)
		slot->climb = 0;
	else if (!slot->climb)
		slot->climb = ccc_climb(cwnd, slot->share);
	ccc_set_window(tp, slot,
		       ccc_apply_share(cwnd, slot->share,
				       tcp_packets_in_flight(tp), acked,
				       slot->climb));
	if (slot->view.flags & VIRTIO_CCC_L_SLOW_START)
		slot->twin.cwnd = 0;
	else if (!slot->twin.cwnd)
		ccc_twin_start(&slot->twin, slot->share);
}

/* ---- Congestion events -------------------------------------------------- */

/*
 * When the segment was sent whose loss or mark is the event.  A mark comes
 * back with the ACK, an RTT after the segment left.
 */
static u64 ccc_event_sent_us(const struct sock *sk, const struct ccc_slot *slot)
{
	struct sk_buff *skb = slot->ece ? NULL : tcp_rtx_queue_head(sk);

	if (skb)
		return tcp_skb_timestamp_us(skb);
	return tcp_clock_us() - (tcp_sk(sk)->srtt_us >> 3);
}

/*
 * TCP also reduces when this host's own queue is full, which is no affair of
 * the other flows.  It does so from the transmit path and in state CWR; only
 * set_state() can tell for certain, here the signs must do.
 */
static bool ccc_looks_congested(const struct sock *sk,
				const struct ccc_slot *slot)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return slot->ece || tp->lost_out || tp->sacked_out;
}

/* What the inner algorithm reduces to, and by which factor. */
static u32 ccc_inner_ssthresh(struct sock *sk, struct ccc_slot *slot)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));
	u32 ssthresh;

	if (!slot->twin.cwnd) {
		ssthresh = inner->ssthresh(sk);
		slot->beta = ccc_beta(ssthresh, cwnd, slot->beta);
		return ssthresh;
	}
	ssthresh = ccc_twin_ssthresh(sk, &slot->twin, inner);
	slot->beta = ccc_beta(ssthresh, slot->twin.cwnd, slot->beta);
	return max(ccc_apply_beta(cwnd, slot->beta), 2u);
}

static u32 ccc_ssthresh(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccc_slot *slot = ccc_slot(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 share;

	if (!slot)
		return ccc_inner_of(sk)->ssthresh(sk);
	slot->reduced = true;
	ccc_read_share(sk, slot);
	slot->reduced_epoch = ccc_epoch_at(slot, ccc_event_sent_us(sk, slot));
	if (!slot->coupled)
		return ccc_inner_ssthresh(sk, slot);
	if (!ccc_looks_congested(sk, slot))
		return max(ccc_apply_beta(cwnd, slot->beta), 2u);
	/* Only a segment of the present epoch will be charged, and only once. */
	share = slot->share;
	if (slot->reduced_epoch == slot->view.epoch) {
		if (!slot->charged)
			ccc_inner_ssthresh(sk, slot);
		slot->charged = true;
		share = ccc_apply_beta(share, slot->beta);
	}
	return clamp(share, 2u, max(cwnd, 2u));
}

/*
 * A change of state is an event if TCP has reduced for it, other than for a
 * local queue; where that queue has lost segments, recovery follows, and is
 * the event although TCP does not reduce again.  Recovery that ends in a
 * timeout is reported already, and only counts as a timeout; one that repeats
 * before anything was acknowledged does not count at all.
 */
static bool ccc_count_event(struct ccc_slot *slot, u8 old, u8 new)
{
	bool network = new != TCP_CA_CWR || slot->ece;
	bool event = (slot->reduced && network) ||
		     (slot->local && new == TCP_CA_Recovery);

	slot->local = slot->reduced && !network;
	slot->reduced = false;
	if (event) {
		slot->events++;
		slot->event_epoch = slot->reduced_epoch;
		slot->undoable = true;
	}
	if (new == TCP_CA_Loss &&
	    (event || old == TCP_CA_CWR || old == TCP_CA_Recovery))
		slot->timeouts++;
	return event;
}

static void ccc_inner_set_state(struct sock *sk, struct ccc_slot *slot, u8 new)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	if (!slot || !slot->twin.cwnd) {
		if (inner->set_state)
			inner->set_state(sk, new);
		return;
	}
	if (inner->set_state)
		ccc_twin_set_state(sk, &slot->twin, inner, new);
	if (slot->twin.reducing) {
		slot->beta = ccc_beta(slot->twin.ssthresh, slot->twin.cwnd,
				      slot->beta);
		ccc_twin_reduce(&slot->twin);
	}
	/* After a timeout the flow works its way up alone. */
	if (new == TCP_CA_Loss)
		slot->twin.cwnd = 0;
}

static void ccc_set_state(struct sock *sk, u8 new)
{
	u8 old = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);
	struct ccc_slot *slot;
	bool event;

	slot = ccc_slot(sk);
	ccc_inner_set_state(sk, slot, new);
	if (!slot)
		return;
	if (slot->local && new == TCP_CA_Recovery)
		slot->reduced_epoch =
			ccc_epoch_at(slot, ccc_event_sent_us(sk, slot));
	event = ccc_count_event(slot, old, new);
	ccc_report_as(sk, slot, ccc_wire_state(sk, new), ccc_has_data(sk));
	/* The share after the reduction, if the device has answered by now. */
	if (event && ccc_read_share(sk, slot))
		WRITE_ONCE(tp->snd_ssthresh,
			   clamp(slot->share, 2u, max(tp->prior_cwnd, 2u)));
}

static u32 ccc_undo_cwnd(struct sock *sk)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ccc_slot *slot = ccc_slot(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!slot)
		return inner->undo_cwnd(sk);
	if (slot->twin.cwnd) {
		ccc_twin_undo(sk, &slot->twin, inner);
		cwnd = max(cwnd, tp->prior_cwnd);
	} else {
		cwnd = max(cwnd, inner->undo_cwnd(sk));
	}
	if (slot->undoable) {
		slot->undoable = false;
		slot->undos++;
		ccc_report(sk, slot);
	}
	if (!ccc_read_share(sk, slot))
		return cwnd;
	return clamp(slot->share, tcp_snd_cwnd(tp), cwnd);
}

/* ---- ACKs -------------------------------------------------------------- */

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
	/* cong_avoid() does not run while TCP reduces the window. */
	if (slot->state == VIRTIO_CCC_STATE_FR)
		ccc_report(sk, slot);
}

/* In slow start there is no room to wait for: nobody has filled the path. */
static void ccc_join(struct tcp_sock *tp, const struct ccc_slot *slot)
{
	if (!slot->coupled || (slot->view.flags & VIRTIO_CCC_L_SLOW_START))
		return;
	ccc_set_window(tp, slot,
		       ccc_join_window(tcp_snd_cwnd(tp), slot->share));
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
		ccc_join(tcp_sk(sk), slot);
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

/* ---- Life of a flow ----------------------------------------------------- */

static struct tcp_congestion_ops ccc_ops;
static struct tcp_congestion_ops ccc_fallback_ops;

static void ccc_init(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct ccc_flow *flow = ccc_flow(sk);

	flow->slot = NULL;
	flow->tried = READ_ONCE(ccc_room) - 1;
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
 * given.  Called without the socket's lock.
 */
static size_t ccc_get_info(struct sock *sk, u32 ext, int *attr,
			   union tcp_cc_info *info)
{
	const struct ccc_slot *slot = READ_ONCE(ccc_flow(sk)->slot);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = READ_ONCE(tp->srtt_us) >> 3;
	u64 rate = 0;

	if (!(ext & (1 << (INET_DIAG_BBRINFO - 1))) &&
	    !(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	memset(&info->bbr, 0, sizeof(info->bbr));
	info->bbr.bbr_min_rtt = tcp_min_rtt(tp);
	info->bbr.bbr_pacing_gain = ccc_priority(READ_ONCE(sk->sk_priority));
	if (slot && READ_ONCE(slot->coupled) && srtt_us) {
		rate = div_u64((u64)READ_ONCE(slot->share) *
			       READ_ONCE(tp->mss_cache) * USEC_PER_SEC, srtt_us);
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
	ccc_ops.flags = ccc_inner->flags | TCP_CONG_NON_RESTRICTED;
	ccc_ops.min_tso_segs = ccc_inner->min_tso_segs;
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
