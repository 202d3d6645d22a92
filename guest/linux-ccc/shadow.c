// SPDX-License-Identifier: GPL-2.0
/*
 * The inner algorithm, on a window of its own: the shadow window.
 *
 * A coupled flow's window is its part of the aggregate.  An algorithm that
 * only adds a segment in a round-trip time does not mind whose window that
 * is; one with a memory does.  CUBIC remembers the window at which it last met
 * congestion and grows towards it: if others change the window under its
 * hands, without its knowing why, it grows as fast as it may.
 *
 * So in congestion avoidance the inner algorithm works on a shadow of the
 * window.  It is moved by nothing but the algorithm: opened by cong_avoid(),
 * for as many acknowledged segments as a window of that size would have had in
 * the same time, and reduced by ssthresh() whenever the aggregate is, whichever
 * flow was the cause.  By what it grows is reported.
 *
 * The aggregate grows by the mean of its shadow windows' growth and is reduced
 * together with them; thus their difference shrinks with each reduction, and
 * the shadow window of each flow becomes what the flows are together: one
 * connection with that algorithm.  Until then it is the smaller of the two,
 * which is the safe side.  An algorithm that grows by the size of its window
 * would take many epochs for that, since a part of the aggregate's window has a
 * part of its plateau: its shadow window begins as the whole of it.
 *
 * An algorithm like Vegas also closes its window a little, without an event.
 * That is reported as growth below 0.
 *
 * In slow start, and after a timeout, there is no shadow window: the host
 * decides on acknowledged data alone, or the flow works its way up by itself.
 */
#include "flow.h"

/*
 * Put the shadow window into the socket, or take it out again.  Between the two
 * who reads the window without the socket's lock may find the shadow.
 */
static void swap_windows(struct tcp_sock *tp, struct ccc_shadow *shadow)
{
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 ssthresh = tp->snd_ssthresh;

	tcp_snd_cwnd_set(tp, shadow->cwnd);
	shadow->cwnd = cwnd;
	WRITE_ONCE(tp->snd_ssthresh, shadow->ssthresh);
	shadow->ssthresh = ssthresh;
	swap(tp->snd_cwnd_cnt, shadow->cwnd_cnt);
	swap(tp->prior_cwnd, shadow->prior_cwnd);
}

static void start(struct ccc_shadow *shadow, u32 cwnd)
{
	shadow->cwnd = clamp(cwnd, 1u, CCC_CWND_MAX);
	shadow->cwnd_cnt = 0;
	shadow->ssthresh = shadow->cwnd;
	shadow->prior_cwnd = shadow->cwnd;
	shadow->rest = 0;
	shadow->owed = 0;
	shadow->reducing = false;
}

static void reduce(struct ccc_shadow *shadow)
{
	u32 prior_cwnd = shadow->prior_cwnd;

	start(shadow, min(shadow->ssthresh, shadow->cwnd));
	shadow->prior_cwnd = prior_cwnd;
}

/*
 * What the algorithm would reduce the shadow window to.  It is not reduced yet:
 * set_state() comes next and may have more to say.
 */
static void find_ssthresh(struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcp_sock *tp = tcp_sk(sk);

	shadow->prior_cwnd = shadow->cwnd;
	swap_windows(tp, shadow);
	WRITE_ONCE(tp->snd_ssthresh, flow->inner->ssthresh(sk));
	swap_windows(tp, shadow);
	shadow->reducing = true;
}

/* The flow goes on alone: what the algorithm remembers is another window. */
void ccc_shadow_stop(struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->shadow.cwnd)
		return;
	flow->shadow.cwnd = 0;
	flow->inner->ssthresh(sk);
}

/* What it begins as: the aggregate's window, where its size says how it grows. */
static u32 first_cwnd(const struct ccc_flow *flow)
{
	u32 cwnd = flow->grant.cwnd;

	if (!ccc_inner_by_size)
		return cwnd;
	return max(cwnd, ccc_grant_aggregate(flow->slot, &flow->grant,
					     flow->report.srtt_us));
}

/* There is one while the aggregate is in congestion avoidance. */
void ccc_shadow_follow_phase(struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;

	if (flow->grant.flags & VIRTIO_CCC_L_SLOW_START)
		shadow->cwnd = 0;
	else if (!shadow->cwnd)
		start(shadow, first_cwnd(flow));
}

/* A reduction that another flow has caused is one of the shadow window too. */
void ccc_shadow_follow_epoch(struct sock *sk, struct ccc_flow *flow,
			     bool was_coupled)
{
	struct ccc_shadow *shadow = &flow->shadow;
	bool follow = was_coupled && !shadow->charged &&
		      shadow->epoch != flow->grant.epoch;

	if (!was_coupled || shadow->epoch != flow->grant.epoch)
		shadow->charged = false;
	shadow->epoch = flow->grant.epoch;
	if (!follow)
		return;
	if (shadow->cwnd) {
		find_ssthresh(sk, flow);
		reduce(shadow);
	} else {
		/* For what the algorithm remembers of it. */
		flow->inner->ssthresh(sk);
	}
}

/* What ccc_shadow_grow() does where there is a shadow window. */
static u32 grow_apart(struct sock *sk, struct ccc_flow *flow, u32 ack, u32 acked)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 before = shadow->cwnd;

	/* Of an ACK that the window does not limit it takes nothing. */
	if (tcp_is_cwnd_limited(sk)) {
		acked += shadow->owed;
		shadow->owed = 0;
	}
	swap_windows(tp, shadow);
	flow->inner->cong_avoid(sk, ack, acked);
	swap_windows(tp, shadow);
	shadow->cwnd = clamp(shadow->cwnd, 1u, CCC_CWND_MAX);
	/* It has left slow start for good. */
	shadow->ssthresh = min(shadow->ssthresh, shadow->cwnd);
	return shadow->cwnd - before;
}

/*
 * Let the inner algorithm have the ACK.  The packets by which it grew; modulo
 * 2^32, as it may close its window.  Its slow start is no growth of the
 * aggregate: that has its own, and after a timeout the flow only works its way
 * back.
 */
u32 ccc_shadow_grow(struct sock *sk, struct ccc_flow *flow, u32 ack, u32 acked)
{
	const struct tcp_congestion_ops *inner = flow->inner;
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcp_sock *tp = tcp_sk(sk);
	bool slow_start = tcp_in_slow_start(tp);
	u32 before = tcp_snd_cwnd(tp);
	u32 after;

	if (!shadow->cwnd) {
		inner->cong_avoid(sk, ack, acked);
		after = tcp_snd_cwnd(tp);
		return after > before && !slow_start ? after - before : 0;
	}
	acked = ccc_scale_acked(acked, shadow->cwnd, before, &shadow->rest);
	return grow_apart(sk, flow, ack, acked);
}

/* The same for ACKs of before, which the granted window had limited. */
u32 ccc_shadow_grow_late(struct sock *sk, struct ccc_flow *flow, u32 acked)
{
	struct ccc_shadow *shadow = &flow->shadow;

	shadow->owed += ccc_scale_acked(acked, shadow->cwnd, flow->grant.part,
					&shadow->rest);
	if (!tcp_is_cwnd_limited(sk))
		return 0;
	return grow_apart(sk, flow, tcp_sk(sk)->snd_una, 0);
}

/* What the inner algorithm reduces the flow's window to. */
u32 ccc_shadow_ssthresh(struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));
	u32 ssthresh;

	if (!shadow->cwnd) {
		ssthresh = flow->inner->ssthresh(sk);
		shadow->beta = ccc_beta(ssthresh, cwnd, shadow->beta);
		return ssthresh;
	}
	find_ssthresh(sk, flow);
	shadow->beta = ccc_beta(shadow->ssthresh, shadow->cwnd, shadow->beta);
	return max(ccc_apply_beta(cwnd, shadow->beta), 2u);
}

/* The flow has an event of its own, for which the epoch will change. */
void ccc_shadow_charge(struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->shadow.charged)
		ccc_shadow_ssthresh(sk, flow);
	flow->shadow.charged = true;
	flow->shadow.charged_us = tcp_clock_us();
}

/*
 * Whether the grant is of before the flow's own event: the device answers from
 * another thread, and later if it is busy.  It need not answer at all, for what
 * it takes for the same event as another flow's.
 */
bool ccc_shadow_awaits(const struct sock *sk, const struct ccc_flow *flow)
{
	const struct ccc_shadow *shadow = &flow->shadow;
	u64 patience_us = max(CCC_ANSWER_RTTS * (tcp_sk(sk)->srtt_us >> 3),
			      CCC_ANSWER_MIN_US);

	return shadow->charged && shadow->epoch == flow->grant.epoch &&
	       tcp_clock_us() - shadow->charged_us < patience_us;
}

void ccc_shadow_set_state(struct sock *sk, struct ccc_flow *flow, u8 state)
{
	const struct tcp_congestion_ops *inner = flow->inner;
	struct ccc_shadow *shadow = &flow->shadow;

	if (inner->set_state && shadow->cwnd) {
		swap_windows(tcp_sk(sk), shadow);
		inner->set_state(sk, state);
		swap_windows(tcp_sk(sk), shadow);
	} else if (inner->set_state) {
		inner->set_state(sk, state);
	}
	if (!shadow->cwnd)
		return;
	if (shadow->reducing) {
		shadow->beta = ccc_beta(shadow->ssthresh, shadow->cwnd,
					shadow->beta);
		reduce(shadow);
	}
	/* After a timeout the flow works its way up alone. */
	if (state == TCP_CA_Loss)
		shadow->cwnd = 0;
}

/* The window that the flow had before the reduction. */
u32 ccc_shadow_undo_cwnd(struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd;

	if (!shadow->cwnd)
		return flow->inner->undo_cwnd(sk);
	swap_windows(tp, shadow);
	cwnd = flow->inner->undo_cwnd(sk);
	swap_windows(tp, shadow);
	start(shadow, cwnd);
	return tp->prior_cwnd;
}

void ccc_shadow_init(struct ccc_flow *flow)
{
	flow->shadow.beta = CCC_BETA_HALF;
}
