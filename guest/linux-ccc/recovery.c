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
static void watch_probe(const struct tcp_sock *tp,
			struct ccc_recovery *recovery)
{
	if (!tp->tlp_high_seq || !tp->tlp_retrans)
		recovery->tail_sent_us = 0;
	else if (!recovery->tail_sent_us)
		recovery->tail_sent_us = tcp_clock_us() - 3 * (tp->srtt_us >> 3);
}

/* Whether TCP reduces, or has just reduced, for what a probe has repaired. */
static bool lost_tail(const struct tcp_sock *tp,
		      const struct ccc_recovery *recovery)
{
	return recovery->tail_sent_us && !tp->tlp_high_seq && !tp->lost_out;
}

/* The device has answered an event while TCP reduces for it. */
static void follow_answer(struct sock *sk, struct ccc_flow *flow)
{
	u8 state = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);

	if (state <= TCP_CA_Disorder || !flow->shadow.charged)
		return;
	if (ccc_cwnd_read_grant(sk, flow) && !flow->shadow.charged)
		WRITE_ONCE(tp->snd_ssthresh,
			   ccc_cwnd_after_event(tp, flow, state));
}

/* An ACK has come; TCP has not looked at it yet. */
void ccc_recovery_ack(struct sock *sk, struct ccc_flow *flow, u32 flags)
{
	flow->recovery.ece = flags & CA_ACK_ECE;
	watch_probe(tcp_sk(sk), &flow->recovery);
	follow_answer(sk, flow);
}

/*
 * When the segment was sent whose loss or mark is the event.  A mark comes
 * back with the ACK, an RTT after the segment left.
 */
static u64 event_sent_us(const struct sock *sk,
			 const struct ccc_recovery *recovery)
{
	struct sk_buff *skb = recovery->ece ? NULL : tcp_rtx_queue_head(sk);

	if (lost_tail(tcp_sk(sk), recovery))
		return recovery->tail_sent_us;
	if (skb)
		return tcp_skb_timestamp_us(skb);
	return tcp_clock_us() - (tcp_sk(sk)->srtt_us >> 3);
}

static u32 event_epoch(const struct sock *sk, const struct ccc_flow *flow)
{
	return ccc_grant_epoch_at(flow->slot->dev, &flow->grant,
				  event_sent_us(sk, &flow->recovery));
}

/*
 * TCP also reduces when this host's own queue is full, which is no affair of
 * the other flows.  It does so from the transmit path and in state CWR; only
 * set_state() can tell for certain, here the signs must do.
 */
static bool looks_congested(const struct tcp_sock *tp,
			    const struct ccc_recovery *recovery)
{
	return recovery->ece || tp->lost_out || tp->sacked_out ||
	       lost_tail(tp, recovery);
}

u32 ccc_recovery_ssthresh(struct sock *sk)
{
	struct ccc_flow *flow = ccc_flow_get(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 granted;

	if (!flow)
		return ccc_inner_of(sk)->ssthresh(sk);
	ccc_quiet_end(sk, flow);
	flow->recovery.reduced = true;
	ccc_cwnd_read_grant(sk, flow);
	flow->recovery.reduced_epoch = event_epoch(sk, flow);
	if (!flow->grant.coupled)
		return ccc_shadow_ssthresh(sk, flow);
	if (!looks_congested(tp, &flow->recovery))
		return max(ccc_apply_beta(cwnd, flow->shadow.beta), 2u);
	/* Only a segment of the present epoch will be charged, and only once. */
	granted = flow->grant.cwnd;
	if (flow->recovery.reduced_epoch == flow->grant.epoch &&
	    !ccc_shadow_awaits(sk, flow)) {
		ccc_shadow_charge(sk, flow);
		granted = ccc_apply_beta(granted, flow->shadow.beta);
	}
	return clamp(granted, 2u, max(cwnd, 2u));
}

/*
 * A change of state is an event if TCP has reduced for it, other than for a
 * local queue; where that queue has lost segments, recovery follows, and is
 * the event although TCP does not reduce again.  Recovery that ends in a
 * timeout is reported already, and only counts as a timeout; one that repeats
 * before anything was acknowledged does not count at all.
 */
static bool count_event(const struct tcp_sock *tp,
			struct ccc_recovery *recovery, u8 old, u8 new)
{
	bool network = new != TCP_CA_CWR || recovery->ece ||
		       lost_tail(tp, recovery);
	bool event = (recovery->reduced && network) ||
		     (recovery->local && new == TCP_CA_Recovery);

	recovery->local = recovery->reduced && !network;
	recovery->reduced = false;
	if (event) {
		recovery->congestion_events++;
		recovery->congestion_epoch = recovery->reduced_epoch;
		recovery->undoable = true;
		recovery->tail_sent_us = 0;
	}
	if (new == TCP_CA_Loss &&
	    (event || old == TCP_CA_CWR || old == TCP_CA_Recovery))
		recovery->timeouts++;
	return event;
}

static void set_state(struct sock *sk, struct ccc_flow *flow, u8 state)
{
	struct ccc_recovery *recovery = &flow->recovery;
	u8 old = inet_csk(sk)->icsk_ca_state;
	struct tcp_sock *tp = tcp_sk(sk);
	bool event;

	ccc_quiet_end(sk, flow);
	ccc_shadow_set_state(sk, flow, state);
	if (recovery->local && state == TCP_CA_Recovery)
		recovery->reduced_epoch = event_epoch(sk, flow);
	if (state > TCP_CA_Disorder) {
		ccc_ack_clock_stop(flow);
		ccc_opening_end(flow);
	}
	recovery->over = state <= TCP_CA_Disorder &&
			 (old == TCP_CA_Recovery || old == TCP_CA_CWR);
	event = count_event(tp, recovery, old, state);
	ccc_report_update(sk, flow, state);
	/* The window after the reduction, if the device has answered by now. */
	if (event && ccc_cwnd_read_grant(sk, flow))
		WRITE_ONCE(tp->snd_ssthresh,
			   ccc_cwnd_after_event(tp, flow, state));
}

void ccc_recovery_set_state(struct sock *sk, u8 state)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct ccc_flow *flow;

	rcu_read_lock();
	flow = ccc_flow_get(sk);
	if (flow)
		set_state(sk, flow, state);
	else if (inner->set_state)
		inner->set_state(sk, state);
	rcu_read_unlock();
}

static u32 undo_cwnd(struct sock *sk, struct ccc_flow *flow)
{
	u32 before = tcp_snd_cwnd(tcp_sk(sk));
	u32 cwnd;

	ccc_quiet_end(sk, flow);
	cwnd = max(before, ccc_shadow_undo_cwnd(sk, flow));
	if (flow->recovery.undoable) {
		flow->recovery.undoable = false;
		flow->recovery.spurious_events++;
		ccc_report_update(sk, flow, inet_csk(sk)->icsk_ca_state);
	}
	if (!ccc_cwnd_read_grant(sk, flow))
		return cwnd;
	return clamp(flow->grant.cwnd, before, cwnd);
}

u32 ccc_recovery_undo_cwnd(struct sock *sk)
{
	struct ccc_flow *flow;
	u32 cwnd;

	rcu_read_lock();
	flow = ccc_flow_get(sk);
	cwnd = flow ? undo_cwnd(sk, flow) : ccc_inner_of(sk)->undo_cwnd(sk);
	rcu_read_unlock();
	return cwnd;
}
