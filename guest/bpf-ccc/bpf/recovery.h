/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Congestion events: what is one, in which epoch its segment was sent, and what
 * the flow's own window does until the device has answered.
 */
#ifndef CCC_BPF_RECOVERY_H
#define CCC_BPF_RECOVERY_H

#include "cwnd.h"

/*
 * A tail loss probe (RFC 8985, section 7) that is a retransmission hides the
 * loss that it repairs: when TCP has found that there was one, it reduces in
 * state CWR, with nothing marked as lost.  The segment is the first that was not
 * acknowledged while the probe was out.
 */
static inline void watch_probe(const struct tcp_sock *tp,
			       struct ccc_recovery *recovery)
{
	if (!tp->tlp_high_seq || !BPF_CORE_READ_BITFIELD(tp, tlp_retrans)) {
		recovery->tail = 0;
	} else if (!recovery->tail) {
		recovery->tail = 1;
		recovery->tail_seq = tp->snd_una;
	}
}

/*
 * An ACK: what an event is, is seen before TCP asks for it.  Whether there is
 * anything to see, now or at the next one.
 */
static inline bool ccc_recovery_is_watched(const struct sock *sk, u32 flags)
{
	return (flags & CA_ACK_ECE) || tcp_sk(sk)->tlp_high_seq ||
	       ccc_sk(sk)->watched;
}

static inline void ccc_recovery_watch(struct sock *sk, struct ccc_flow *flow,
				      u32 flags)
{
	flow->recovery.ece = !!(flags & CA_ACK_ECE);
	watch_probe(tcp_sk(sk), &flow->recovery);
	ccc_sk(sk)->watched = flow->recovery.ece || flow->recovery.tail ||
			      ca_state(sk) > TCP_CA_Disorder;
}

/* Whether TCP reduces, or has just reduced, for what a probe has repaired. */
static inline bool lost_tail(const struct tcp_sock *tp,
			     const struct ccc_recovery *recovery)
{
	return recovery->tail && !tp->tlp_high_seq && !tp->lost_out;
}

/* The device has answered an event while TCP reduces for it. */
static inline void follow_answer(struct sock *sk, struct ccc_table *table,
				 struct ccc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (is_open(sk) || !flow->shadow.charged)
		return;
	if (ccc_cwnd_read_grant(sk, table, flow) && !flow->shadow.charged)
		tp->snd_ssthresh = ccc_cwnd_after_event(tp, flow, ca_state(sk));
}

/*
 * The segment whose loss or mark is the event begins here: the first that is not
 * acknowledged.  A mark is that of one before: what was sent last in an epoch
 * counts as of the epoch.
 */
static inline u32 event_seq(const struct tcp_sock *tp,
			    const struct ccc_recovery *recovery)
{
	if (lost_tail(tp, recovery))
		return recovery->tail_seq;
	return recovery->ece ? tp->snd_una - 1 : tp->snd_una;
}

static inline u32 event_epoch(const struct tcp_sock *tp,
			      const struct ccc_flow *flow)
{
	return ccc_grant_epoch_at(&flow->grant, event_seq(tp, &flow->recovery));
}

/*
 * TCP also reduces when this host's own queue is full, which is no affair of
 * the other flows.  It does so from the transmit path and in state CWR; only
 * set_state() can tell for certain, here the signs must do.
 */
static inline bool looks_congested(const struct tcp_sock *tp,
				   const struct ccc_recovery *recovery)
{
	return recovery->ece || tp->lost_out || tp->sacked_out ||
	       lost_tail(tp, recovery);
}

static inline u32 ccc_recovery_ssthresh(struct sock *sk,
					struct ccc_table *table,
					struct ccc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tp->snd_cwnd;
	u32 granted;

	flow->recovery.reduced = 1;
	ccc_cwnd_read_grant(sk, table, flow);
	flow->recovery.reduced_epoch = event_epoch(tp, flow);
	if (!flow->grant.coupled)
		return ccc_shadow_ssthresh(sk, flow);
	if (!looks_congested(tp, &flow->recovery))
		return max_t(u32, ccc_apply_beta(cwnd, flow->shadow.beta), 2);
	/* Only a segment of the present epoch will be charged, and only once. */
	granted = flow->grant.cwnd;
	if (flow->recovery.reduced_epoch == flow->grant.epoch &&
	    !ccc_shadow_awaits(sk, flow)) {
		ccc_shadow_charge(sk, flow);
		granted = ccc_apply_beta(granted, flow->shadow.beta);
	}
	return clamp_t(u32, granted, 2, max_t(u32, cwnd, 2));
}

/*
 * A change of state is an event if TCP has reduced for it, other than for a
 * local queue; where that queue has lost segments, recovery follows, and is
 * the event although TCP does not reduce again.  Recovery that ends in a
 * timeout is reported already, and only counts as a timeout; one that repeats
 * before anything was acknowledged does not count at all.
 */
static inline bool count_event(const struct tcp_sock *tp, struct ccc_flow *flow,
			       u8 old, u8 new)
{
	struct ccc_recovery *recovery = &flow->recovery;
	struct ccc_signals *signals = &flow->report.now;
	bool network = new != TCP_CA_CWR || recovery->ece ||
		       lost_tail(tp, recovery);
	bool event = (recovery->reduced && network) ||
		     (recovery->local && new == TCP_CA_Recovery);

	recovery->local = recovery->reduced && !network;
	recovery->reduced = 0;
	if (event) {
		signals->congestion_events++;
		recovery->congestion_epoch = recovery->reduced_epoch;
		recovery->undoable = 1;
		recovery->tail = 0;
	}
	if (new == TCP_CA_Loss &&
	    (event || old == TCP_CA_CWR || old == TCP_CA_Recovery))
		signals->timeouts++;
	return event;
}

static inline void ccc_recovery_set_state(struct sock *sk,
					  struct ccc_table *table,
					  struct ccc_flow *flow, u8 state)
{
	struct ccc_recovery *recovery = &flow->recovery;
	struct tcp_sock *tp = tcp_sk(sk);
	u8 old = ca_state(sk);
	bool event;

	ccc_shadow_set_state(sk, flow, state);
	if (recovery->local && state == TCP_CA_Recovery)
		recovery->reduced_epoch = event_epoch(tp, flow);
	if (state > TCP_CA_Disorder)
		ccc_opening_end(flow);
	event = count_event(tp, flow, old, state);
	ccc_report_update(sk, table, flow, state);
	/* The window after the reduction, if the device has answered by now. */
	if (event && ccc_cwnd_read_grant(sk, table, flow))
		tp->snd_ssthresh = ccc_cwnd_after_event(tp, flow, state);
}

static inline u32 ccc_recovery_undo_cwnd(struct sock *sk,
					 struct ccc_table *table,
					 struct ccc_flow *flow)
{
	u32 before = tcp_sk(sk)->snd_cwnd;
	u32 cwnd = max_t(u32, before, ccc_shadow_undo_cwnd(sk, flow));

	if (flow->recovery.undoable) {
		flow->recovery.undoable = 0;
		flow->report.now.spurious_events++;
		ccc_report_update(sk, table, flow, ca_state(sk));
	}
	if (!ccc_cwnd_read_grant(sk, table, flow))
		return cwnd;
	return clamp_t(u32, flow->grant.cwnd, before, cwnd);
}

#endif /* CCC_BPF_RECOVERY_H */
