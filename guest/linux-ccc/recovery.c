// SPDX-License-Identifier: GPL-2.0
/*
 * Congestion events: what is one, in which epoch its segment was sent, and what
 * the flow's own window does until the device has answered.
 */
#include "flow.h"

/*
 * A tail loss probe (RFC 8985, section 7) that is a retransmission hides the
 * loss that it repairs: when TCP has found that there was one, it reduces in
 * state CWR, with nothing marked as lost, and no trace of when the segment was
 * sent first.  That was two round-trip times before the probe, and the probe
 * one before the first ACK that comes while it is out.
 */
void ccc_watch_probe(const struct tcp_sock *tp, struct ccc_slot *slot)
{
	if (!tp->tlp_high_seq || !tp->tlp_retrans)
		slot->tail_sent_us = 0;
	else if (!slot->tail_sent_us)
		slot->tail_sent_us = tcp_clock_us() - 3 * (tp->srtt_us >> 3);
}

/* Whether TCP reduces, or has just reduced, for what a probe has repaired. */
static bool ccc_lost_tail(const struct tcp_sock *tp,
			  const struct ccc_slot *slot)
{
	return slot->tail_sent_us && !tp->tlp_high_seq && !tp->lost_out;
}

/*
 * When the segment was sent whose loss or mark is the event.  A mark comes
 * back with the ACK, an RTT after the segment left.
 */
static u64 ccc_event_sent_us(const struct sock *sk, const struct ccc_slot *slot)
{
	struct sk_buff *skb = slot->ece ? NULL : tcp_rtx_queue_head(sk);

	if (ccc_lost_tail(tcp_sk(sk), slot))
		return slot->tail_sent_us;
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

	return slot->ece || tp->lost_out || tp->sacked_out ||
	       ccc_lost_tail(tp, slot);
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

u32 ccc_ssthresh(struct sock *sk)
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
static bool ccc_count_event(const struct tcp_sock *tp, struct ccc_slot *slot,
			    u8 old, u8 new)
{
	bool network = new != TCP_CA_CWR || slot->ece ||
		       ccc_lost_tail(tp, slot);
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

void ccc_set_state(struct sock *sk, u8 new)
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
	if (new > TCP_CA_Disorder)
		ccc_clock_stop(slot);
	event = ccc_count_event(tp, slot, old, new);
	if (event)
		slot->tail_sent_us = 0;
	ccc_report_as(sk, slot, ccc_wire_state(sk, new), ccc_has_data(sk));
	/* The share after the reduction, if the device has answered by now. */
	if (event && ccc_read_share(sk, slot))
		WRITE_ONCE(tp->snd_ssthresh, ccc_target(tp, slot, new));
}

u32 ccc_undo_cwnd(struct sock *sk)
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
