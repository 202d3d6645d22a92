/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inner algorithm, on a window of its own: the shadow window.
 *
 * A coupled flow's window is its part of the aggregate, and moves for reasons
 * that the flow's own algorithm knows nothing of; one with a memory, as CUBIC,
 * would take that for its own doing.  So in congestion avoidance the algorithm
 * works on a shadow of the window: opened by its ack_received(), for as many
 * acknowledged bytes as a window of that size would have had, and reduced by
 * its cong_signal() whenever the aggregate is.  By what it grows is reported.
 * guest/linux-ccc/shadow.c says more.
 */
#include "ccc_flow.h"

/* Put the shadow window into the connection, or take it out again. */
static void
swap_windows(struct tcpcb *tp, struct ccc_shadow *shadow)
{
	uint32_t cwnd = tp->snd_cwnd, ssthresh = tp->snd_ssthresh;

	tp->snd_cwnd = shadow->cwnd;
	tp->snd_ssthresh = shadow->ssthresh;
	shadow->cwnd = cwnd;
	shadow->ssthresh = ssthresh;
}

/* In congestion avoidance, which here is above the threshold. */
static void
begin(struct tcpcb *tp, struct ccc_shadow *shadow, uint32_t cwnd)
{
	uint32_t mss = ccc_flow_mss(tp);

	/* Algorithms multiply a window in 32 bits. */
	shadow->cwnd = clamp_t(uint32_t, cwnd, 2 * mss,
	    TCP_MAXWIN << TCP_MAX_WINSHIFT);
	shadow->ssthresh = shadow->cwnd - mss;
}

/* The flow goes on alone. */
void
ccc_shadow_stop(struct ccc_flow *flow)
{
	flow->shadow.cwnd = 0;
	flow->shadow.charged = false;
}

/*
 * The algorithm is told of congestion, with the shadow window in its place.  An
 * algorithm may take what is in flight for its window (CUBIC, RFC 9438, 4.6), so
 * for that long as much is in flight.
 */
static void
signal_inner(struct cc_var *ccv, struct ccc_flow *flow, ccc_signal_t type)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t more;

	swap_windows(tp, &flow->shadow);
	more = tp->snd_cwnd - (uint32_t)tcp_compute_pipe(tp);
	tp->snd_max += more;
	tp->snd_nxt += more;
	ccc_inner_signal(ccv, flow, type);
	tp->snd_max -= more;
	tp->snd_nxt -= more;
	swap_windows(tp, &flow->shadow);
}

/*
 * Reduce the shadow window as the algorithm would its own for the signal.  The
 * algorithm also says that recovery begins; whether it does is for the caller.
 */
static void
reduce(struct cc_var *ccv, struct ccc_flow *flow, ccc_signal_t type)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t mss = ccc_flow_mss(tp), before = shadow->cwnd;
	u_int flags = tp->t_flags;

	EXIT_RECOVERY(tp->t_flags);
	signal_inner(ccv, flow, type);
	tp->t_flags = flags;
	shadow->beta = ccc_beta(shadow->ssthresh / mss, before / mss,
	    shadow->beta);
	begin(tp, shadow, min_t(uint32_t, shadow->ssthresh, before));
}

/*
 * There is one while the aggregate is in congestion avoidance, which it came to
 * by an event.  The algorithm may not have heard of any: to CUBIC, its window
 * would be far below all that it remembers, and to be opened by half in a round
 * trip.
 */
void
ccc_shadow_follow_phase(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint64_t part = ccc_bytes(flow->grant.cwnd, ccc_flow_mss(tp));

	if ((flow->grant.flags & VIRTIO_CCC_L_SLOW_START) != 0) {
		shadow->cwnd = 0;
	} else if (shadow->cwnd == 0) {
		shadow->rest = 0;
		begin(tp, shadow, part);
		reduce(ccv, flow, CC_NDUPACK);
		begin(tp, shadow, part);
	}
}

/* A reduction that another flow has caused is one of the shadow window too. */
void
ccc_shadow_follow_epoch(struct cc_var *ccv, struct ccc_flow *flow,
    bool was_coupled)
{
	struct ccc_shadow *shadow = &flow->shadow;
	bool moved = shadow->epoch != flow->grant.epoch;
	bool follow = was_coupled && moved && !shadow->charged;

	if (!was_coupled || moved)
		shadow->charged = false;
	shadow->epoch = flow->grant.epoch;
	if (follow && shadow->cwnd != 0)
		reduce(ccv, flow, CC_NDUPACK);
}

/* With the shadow window in its place; the bytes by which it grew. */
static uint32_t
grow_shadow(struct cc_var *ccv, struct ccc_flow *flow, ccc_ack_type_t type,
    bool limited)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t limit_flag = ccv->flags & CCF_CWND_LIMITED;
	uint32_t before = shadow->cwnd;
	int acked = ccv->bytes_this_ack;

	ccv->bytes_this_ack = ccc_scale_acked(acked, before, tp->snd_cwnd,
	    &shadow->rest);
	/* TCP's own flag says no more than that the receiver is not the limit. */
	ccv->flags &= ~CCF_CWND_LIMITED;
	if (limited)
		ccv->flags |= CCF_CWND_LIMITED;
	swap_windows(tp, shadow);
	ccc_inner_ack(ccv, flow, type);
	swap_windows(tp, shadow);
	ccv->flags = (ccv->flags & ~CCF_CWND_LIMITED) | limit_flag;
	ccv->bytes_this_ack = acked;
	begin(tp, shadow, shadow->cwnd);
	return (shadow->cwnd - before);
}

/*
 * Let the inner algorithm have the ACK.  The bytes by which it grew; modulo
 * 2^32, as it may close its window.  Its slow start is no growth of the
 * aggregate: that has its own.
 */
uint32_t
ccc_shadow_grow(struct cc_var *ccv, struct ccc_flow *flow, ccc_ack_type_t type,
    bool limited)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	bool slow_start = tp->snd_cwnd <= tp->snd_ssthresh;
	uint32_t before = tp->snd_cwnd;

	if (flow->shadow.cwnd != 0 && flow->grant.coupled)
		return (grow_shadow(ccv, flow, type, limited));
	ccc_inner_ack(ccv, flow, type);
	return (tp->snd_cwnd > before && !slow_start ? tp->snd_cwnd - before :
	    0);
}

/* The flow has an event of its own, for which the epoch will change. */
void
ccc_shadow_charge(struct cc_var *ccv, struct ccc_flow *flow, ccc_signal_t type)
{
	struct ccc_shadow *shadow = &flow->shadow;

	if (!shadow->charged && shadow->cwnd != 0)
		reduce(ccv, flow, type);
	shadow->charged = true;
	shadow->charged_us = ccc_now_us();
}

/*
 * Whether the grant is of before the flow's own event: the device answers from
 * another thread.  It need not answer at all, for what it takes for the same
 * event as another flow's.
 */
bool
ccc_shadow_awaits(const struct ccc_flow *flow)
{
	const struct ccc_shadow *shadow = &flow->shadow;
	uint64_t patience_us = max_t(uint64_t,
	    (uint64_t)CCC_ANSWER_RTTS * flow->rtt.srtt_us, CCC_ANSWER_MIN_US);

	return (shadow->charged && shadow->epoch == flow->grant.epoch &&
	    ccc_now_us() - shadow->charged_us < patience_us);
}

/* Recovery's end is the connection's; of the window only the memory is. */
void
ccc_shadow_post_recovery(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct ccc_shadow *shadow = &flow->shadow;
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t cwnd = shadow->cwnd;

	if (cwnd == 0)
		return;
	swap_windows(tp, shadow);
	ccc_inner_post_recovery(ccv, flow);
	swap_windows(tp, shadow);
	begin(tp, shadow, cwnd);
}
