/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The inner algorithm on a window of its own, the shadow window; why there is
 * one is said in linux-ccc/shadow.c.
 */
#ifndef CCC_BPF_SHADOW_H
#define CCC_BPF_SHADOW_H

#include "grant.h"
#include "inner.h"

/*
 * Put the shadow window into the socket, or take it out again.  TCP's prior_cwnd
 * is not ours to write: undo() does without.
 */
static inline void swap_windows(struct tcp_sock *tp, struct ccc_shadow *shadow)
{
	u32 cwnd = tp->snd_cwnd;
	u32 ssthresh = tp->snd_ssthresh;
	u32 cwnd_cnt = tp->snd_cwnd_cnt;

	tp->snd_cwnd = shadow->cwnd;
	shadow->cwnd = cwnd;
	tp->snd_ssthresh = shadow->ssthresh;
	shadow->ssthresh = ssthresh;
	tp->snd_cwnd_cnt = shadow->cwnd_cnt;
	shadow->cwnd_cnt = cwnd_cnt;
}

static inline void start(struct ccc_shadow *shadow, u32 cwnd)
{
	shadow->cwnd = clamp_t(u32, cwnd, 1, CCC_CWND_MAX);
	shadow->cwnd_cnt = 0;
	shadow->ssthresh = shadow->cwnd;
	shadow->prior_cwnd = shadow->cwnd;
	shadow->rest = 0;
	shadow->owed = 0;
	shadow->reducing = 0;
}

static inline void reduce(struct ccc_shadow *shadow)
{
	u32 prior_cwnd = shadow->prior_cwnd;

	start(shadow, min_t(u32, shadow->ssthresh, shadow->cwnd));
	shadow->prior_cwnd = prior_cwnd;
}

/*
 * What the algorithm would reduce the shadow window to.  It is not reduced yet:
 * set_state() comes next and may have more to say.
 */
static inline void find_ssthresh(struct sock *sk, struct ccc_shadow *shadow)
{
	struct tcp_sock *tp = tcp_sk(sk);

	shadow->prior_cwnd = shadow->cwnd;
	swap_windows(tp, shadow);
	tp->snd_ssthresh = inner_ssthresh(sk);
	swap_windows(tp, shadow);
	shadow->reducing = 1;
}

/* The flow goes on alone: what the algorithm remembers is another window. */
static inline void ccc_shadow_stop(struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->shadow.cwnd)
		return;
	flow->shadow.cwnd = 0;
	inner_ssthresh(sk);
}

/* What it begins as: the aggregate's window, where its size says how it grows. */
static inline u32 first_cwnd(const struct sock *sk,
			     const struct ccc_table *table,
			     const struct ccc_flow *flow)
{
	u32 cwnd = flow->grant.cwnd;

	if (!inner_is_cubic(sk))
		return cwnd;
	return max_t(u32, cwnd, ccc_grant_aggregate(table, flow));
}

/* There is one while the aggregate is in congestion avoidance. */
static inline void ccc_shadow_follow_phase(struct sock *sk,
					   const struct ccc_table *table,
					   struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;

	if (flow->grant.flags & VIRTIO_CCC_L_SLOW_START)
		shadow->cwnd = 0;
	else if (!shadow->cwnd)
		start(shadow, first_cwnd(sk, table, flow));
}

/* A reduction that another flow has caused is one of the shadow window too. */
static inline void ccc_shadow_follow_epoch(struct sock *sk,
					   struct ccc_flow *flow,
					   bool was_coupled)
{
	struct ccc_shadow *shadow = &flow->shadow;
	bool follow = was_coupled && !shadow->charged &&
		      shadow->epoch != flow->grant.epoch;

	if (!was_coupled || shadow->epoch != flow->grant.epoch)
		shadow->charged = 0;
	shadow->epoch = flow->grant.epoch;
	if (!follow)
		return;
	if (shadow->cwnd) {
		find_ssthresh(sk, shadow);
		reduce(shadow);
	} else {
		/* For what the algorithm remembers of it. */
		inner_ssthresh(sk);
	}
}

/* Packets that were acknowledged of this window, in the shadow window. */
static inline u32 ccc_shadow_scale(struct ccc_shadow *shadow, u32 acked,
				   u32 cwnd)
{
	return ccc_scale_acked(acked, shadow->cwnd, cwnd, &shadow->rest);
}

/*
 * What ccc_shadow_grow() does where there is a shadow window, with what it is owed:
 * of an ACK that is not @limited by the window the inner algorithm takes nothing.
 */
static inline u32 ccc_shadow_grow_apart(struct sock *sk, struct ccc_flow *flow,
					u32 ack, u32 acked, bool limited)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 before = shadow->cwnd;
	u32 after;

	if (limited) {
		acked += shadow->owed;
		shadow->owed = 0;
	}
	swap_windows(tp, shadow);
	inner_cong_avoid(sk, ack, acked);
	after = clamp_t(u32, tp->snd_cwnd, 1, CCC_CWND_MAX);
	swap_windows(tp, shadow);
	shadow->cwnd = after;
	/* It has left slow start for good. */
	shadow->ssthresh = min_t(u32, shadow->ssthresh, after);
	return after - before;
}

/*
 * Let the inner algorithm have the ACK.  The packets by which it grew; modulo
 * 2^32, as it may close its window.
 */
static inline u32 ccc_shadow_grow(struct sock *sk, struct ccc_flow *flow,
				  u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	bool slow_start = tcp_in_slow_start(tp);
	u32 before = tp->snd_cwnd;

	if (flow->shadow.cwnd)
		return ccc_shadow_grow_apart(
			sk, flow, ack,
			ccc_shadow_scale(&flow->shadow, acked, before),
			tcp_is_cwnd_limited(sk));
	inner_cong_avoid(sk, ack, acked);
	return tp->snd_cwnd > before && !slow_start ? tp->snd_cwnd - before : 0;
}

/* What the inner algorithm reduces the flow's window to. */
static inline u32 ccc_shadow_ssthresh(struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;
	u32 cwnd = tcp_sk(sk)->snd_cwnd;
	u32 ssthresh;

	if (!shadow->cwnd) {
		ssthresh = inner_ssthresh(sk);
		shadow->beta = ccc_beta(ssthresh, cwnd, shadow->beta);
		return ssthresh;
	}
	find_ssthresh(sk, shadow);
	shadow->beta = ccc_beta(shadow->ssthresh, shadow->cwnd, shadow->beta);
	return max_t(u32, ccc_apply_beta(cwnd, shadow->beta), 2);
}

/* The flow has an event of its own, for which the epoch will change. */
static inline void ccc_shadow_charge(struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->shadow.charged)
		ccc_shadow_ssthresh(sk, flow);
	flow->shadow.charged = 1;
	flow->shadow.charged_us = tcp_sk(sk)->tcp_mstamp;
}

/*
 * Whether the grant is of before the flow's own event: the device answers from
 * user space, and later if it is busy.  It need not answer at all, for what it
 * takes for the same event as another flow's.
 */
static inline bool ccc_shadow_awaits(const struct sock *sk,
				     const struct ccc_flow *flow)
{
	const struct ccc_shadow *shadow = &flow->shadow;
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 patience_us = max_t(u64, CCC_ANSWER_RTTS * (tp->srtt_us >> 3),
				CCC_ANSWER_MIN_US);

	return shadow->charged && shadow->epoch == flow->grant.epoch &&
	       tp->tcp_mstamp - shadow->charged_us < patience_us;
}

static inline void ccc_shadow_set_state(struct sock *sk, struct ccc_flow *flow,
					u8 state)
{
	struct ccc_shadow *shadow = &flow->shadow;
	bool shadowed = shadow->cwnd;

	if (shadowed)
		swap_windows(tcp_sk(sk), shadow);
	inner_set_state(sk, state);
	if (!shadowed)
		return;
	swap_windows(tcp_sk(sk), shadow);
	if (shadow->reducing) {
		shadow->beta = ccc_beta(shadow->ssthresh, shadow->cwnd,
					shadow->beta);
		reduce(shadow);
	}
	/* After a timeout the flow works its way up alone. */
	if (state == TCP_CA_Loss)
		shadow->cwnd = 0;
}

/*
 * The window that the flow had before the reduction.  Reno's and CUBIC's way to
 * undo one is the same.
 */
static inline u32 ccc_shadow_undo_cwnd(struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;

	if (!shadow->cwnd)
		return tcp_reno_undo_cwnd(sk);
	start(shadow, max_t(u32, shadow->cwnd, shadow->prior_cwnd));
	return tcp_sk(sk)->prior_cwnd;
}

#endif /* CCC_BPF_SHADOW_H */
