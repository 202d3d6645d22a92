/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is granted, done: the window of a flow is its part of the aggregate's.
 *
 * One socket cannot wake another from here, so there is no ACK clock: a flow that
 * joins is spread over a round trip by TCP's own pacing, after the ten segments
 * that TCP never paces.
 */
#ifndef CCC_BPF_CWND_H
#define CCC_BPF_CWND_H

#include "report.h"
#include "shadow.h"

/* TCP does not move the window for an event. */
static inline bool is_open(const struct sock *sk)
{
	return ca_state(sk) <= TCP_CA_Disorder;
}

static inline bool in_slow_start(const struct ccc_flow *flow)
{
	return flow->grant.flags & VIRTIO_CCC_L_SLOW_START;
}

/*
 * Have TCP wait for its pacing timer, unless its queue waits (fq); a rate that the
 * socket's owner has set stays.
 */
static inline bool start_timer(struct sock *sk)
{
	struct ccc_sock *csk = ccc_sk(sk);

	if (sk->sk_pacing_status == SK_PACING_FQ)
		return true;
	if (!csk->timed && sk->sk_pacing_status == SK_PACING_NONE) {
		sk->sk_pacing_status = SK_PACING_NEEDED;
		csk->timed = 1;
	}
	return csk->timed;
}

static inline void stop_timer(struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->cwnd.paced && !flow->cwnd.spread_rate && !flow->cwnd.smooth)
		ccc_timer_off(sk);
}

/* From now on it is sent at the rate of its window. */
static inline bool start_pacing(struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (flow->cwnd.paced)
		return true;
	if (!start_timer(sk))
		return false;
	flow->cwnd.paced = 1;
	flow->cwnd.paced_until_us =
		tp->tcp_mstamp + CCC_PACED_RTTS * (tp->srtt_us >> 3);
	return true;
}

/* Its packets leave as TCP would have them. */
static inline void ccc_cwnd_stop_timing(struct sock *sk, struct ccc_flow *flow)
{
	flow->cwnd.spread_rate = 0;
	flow->cwnd.smooth = 0;
	flow->cwnd.paced = 0;
	stop_timer(sk, flow);
}

/* True if the flow is coupled, with its granted window up to date. */
static inline bool ccc_cwnd_read_grant_of(struct sock *sk,
					  struct ccc_table *table,
					  struct ccc_flow *flow,
					  const struct ccc_tcp *tcp)
{
	struct ccc_grant *grant = &flow->grant;
	bool was_coupled = grant->coupled;
	u32 epoch = grant->epoch;
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	if (!ccc_grant_refresh(table, flow, tcp)) {
		ccc_shadow_stop(sk, flow);
		ccc_cwnd_stop_timing(sk, flow);
		return false;
	}
	if (ccc_shadow_awaits(sk, flow))
		grant->cwnd = ccc_apply_beta(grant->cwnd, flow->shadow.beta);
	if (grant->redivided) {
		/* With another window the flow has another RTT. */
		flow->report.rtt_rounds = 0;
		flow->cwnd.shed = ccc_shed(cwnd, grant->cwnd);
		flow->cwnd.ramp = ccc_ramp(cwnd, grant->cwnd);
		if (grant->cwnd > cwnd && is_open(sk))
			start_pacing(sk, flow);
	} else if (grant->epoch != epoch) {
		flow->cwnd.shed = 0;
	}
	ccc_shadow_follow_epoch(sk, flow, was_coupled);
	return true;
}

/* Whether ccc_min_tso_segs() has to look at the flow. */
static inline void note_rated(struct sock *sk, const struct ccc_flow *flow)
{
	ccc_sk(sk)->rated = flow->cwnd.paced || flow->cwnd.spread_rate ||
			    flow->report.opening;
}

static inline bool ccc_cwnd_read_grant(struct sock *sk, struct ccc_table *table,
				       struct ccc_flow *flow)
{
	struct ccc_tcp tcp = {};
	bool coupled;

	ccc_look(sk, &tcp);
	coupled = ccc_cwnd_read_grant_of(sk, table, flow, &tcp);
	note_rated(sk, flow);
	return coupled;
}

/*
 * Keep the inner algorithm in the aggregate's phase: in congestion avoidance
 * it must not take its own part below the threshold for slow start.
 */
static inline u32 phase_ssthresh(const struct tcp_sock *tp,
				 const struct ccc_flow *flow)
{
	u32 ssthresh = flow->grant.ssthresh;

	return in_slow_start(flow) ? ssthresh :
				     min_t(u32, ssthresh, tp->snd_cwnd);
}

/*
 * Where TCP's own machinery is to take the window after an event: to what is
 * granted; after a timeout, where the aggregate begins again in slow start, to
 * its part of the threshold, or the flow would creep up from two segments.
 */
static inline u32 ccc_cwnd_after_event(const struct tcp_sock *tp,
				       const struct ccc_flow *flow, u8 state)
{
	const struct ccc_grant *grant = &flow->grant;
	u32 target = grant->cwnd;

	if (state == TCP_CA_Loss && in_slow_start(flow) &&
	    grant->ssthresh_level != VIRTIO_CCC_LEVEL_UNSET)
		target = max_t(u32, target, grant->ssthresh);
	return clamp_t(u32, target, 2, max_t(u32, tp->prior_cwnd, 2));
}

static inline void set_cwnd(struct tcp_sock *tp, const struct ccc_flow *flow,
			    u32 cwnd)
{
	cwnd = ccc_cwnd_clamp(cwnd, tp->snd_cwnd_clamp);
	tp->snd_cwnd = cwnd;
	/* Credit of a larger window would open the smaller one at once. */
	if (tp->snd_cwnd_cnt >= cwnd)
		tp->snd_cwnd_cnt = cwnd - 1;
	tp->snd_ssthresh = phase_ssthresh(tp, flow);
}

static inline void set_rate(struct sock *sk, u64 rate)
{
	sk->sk_pacing_rate = min_t(u64, rate, sk->sk_max_pacing_rate);
}

static inline void set_pace(struct sock *sk, const struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 packets = ccc_opening_pace(flow->report.opening, tp->snd_cwnd);

	set_rate(sk, ccc_pacing_rate(packets, tp->mss_cache, tp->srtt_us >> 3));
}

/* The window that is granted now, spread over a round trip. */
static inline void follow_pace(struct sock *sk, struct ccc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	/* What it has had for longer is not cut. */
	u32 most = max_t(u32, CCC_JOIN_MAX, tp->snd_cwnd);
	u32 granted = clamp_t(u32, flow->grant.cwnd, CCC_JOIN_PACKETS, most);

	set_cwnd(tp, flow, granted);
	set_pace(sk, flow);
}

/*
 * Once its window is in flight, or has had the time to be, its own ACKs pace
 * it.  What is not in flight then is released by these.
 */
static inline bool is_paced(struct sock *sk, struct ccc_flow *flow, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 used = tcp_packets_in_flight(tp) + acked;

	if (!flow->cwnd.paced)
		return false;
	if (used < flow->grant.cwnd &&
	    tp->tcp_mstamp < flow->cwnd.paced_until_us)
		return true;
	flow->cwnd.paced = 0;
	/* Who had little to send keeps what TCP leaves to one that was idle. */
	used = max_t(u32, used, TCP_INIT_CWND);
	tp->snd_cwnd = min_t(u32, used, tp->snd_cwnd);
	return false;
}

/* The window on the way to what is granted, with so many packets acknowledged. */
__weak int ccc_next_cwnd(struct ccc_flow *flow, u32 before, u32 in_flight,
			 u32 acked)
{
	struct ccc_cwnd *cwnd;
	u32 granted;

	if (!flow)
		return 1;
	cwnd = &flow->cwnd;
	granted = flow->grant.cwnd;
	if (granted >= before)
		cwnd->shed = 0;
	cwnd->ramp = ccc_ramp_on(before, granted, cwnd->ramp);
	/* What is not in flight is given up at once. */
	if (cwnd->shed)
		return ccc_shed_cwnd(min_t(u32, before, in_flight + acked),
				     granted, acked, cwnd->shed, &cwnd->rest);
	in_flight = ccc_ramp_in_flight(before, in_flight, acked,
				       flow->report.cwnd_limited);
	return ccc_ramp_cwnd(before, granted, in_flight, acked, cwnd->ramp,
			     &cwnd->rest);
}

/*
 * A window of less than two segments is two, at a rate at which they take as
 * long as the round trips that they are granted for.
 */
static inline void follow_spread(struct sock *sk, struct ccc_flow *flow)
{
	bool waits = flow->report.cwnd_limited && !in_slow_start(flow);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 rtt_us = waits ? tp->rack.rtt_us : 0;
	u32 gap_us = ccc_spread_us(flow->grant.cwnd_bytes, tp->mss_cache,
				   rtt_us);

	flow->cwnd.spread_rate = 0;
	if (gap_us && start_timer(sk))
		flow->cwnd.spread_rate =
			ccc_pacing_rate(CCC_CWND_MIN, tp->mss_cache,
					rtt_us + gap_us);
}

/* What is not sent by ACKs alone: at TCP's own rate, or less than two segments. */
static inline void follow_timing(struct sock *sk, struct ccc_flow *flow)
{
	bool smooth = ccc_is_smooth(tcp_sk(sk)->snd_cwnd,
				    flow->report.cwnd_limited,
				    in_slow_start(flow));

	follow_spread(sk, flow);
	flow->cwnd.smooth = smooth && start_timer(sk);
	stop_timer(sk, flow);
}

/* Its ACKs would be too slow, and release bursts. */
static inline bool leaps(const struct sock *sk, const struct ccc_flow *flow,
			 u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 used = min_t(u32, tp->snd_cwnd, tcp_packets_in_flight(tp) + acked);

	return acked && flow->report.cwnd_limited && is_open(sk) &&
	       ccc_leaps(used, flow->grant.cwnd);
}

static inline void follow_grant(struct sock *sk, const struct ccc_table *table,
				struct ccc_flow *flow, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	ccc_shadow_follow_phase(sk, table, flow);
	if (leaps(sk, flow, acked))
		start_pacing(sk, flow);
	if (is_paced(sk, flow, acked)) {
		follow_pace(sk, flow);
		return;
	}
	set_cwnd(tp, flow, ccc_next_cwnd(flow, tp->snd_cwnd,
					 tcp_packets_in_flight(tp), acked));
	if (acked)
		follow_timing(sk, flow);
}

/* So many packets of the flow have been acknowledged. */
static inline void ccc_cwnd_update(struct sock *sk, struct ccc_table *table,
				   struct ccc_flow *flow,
				   const struct ccc_tcp *tcp, u32 acked)
{
	if (ccc_cwnd_read_grant_of(sk, table, flow, tcp))
		follow_grant(sk, table, flow, acked);
	note_rated(sk, flow);
}

/*
 * The flow begins, or comes back.  The others behind the bottleneck give up their
 * part at the pace of their ACKs, so at its rate, from when they are told; and it
 * takes it at that rate.  In slow start there is no room to wait for: nobody has
 * filled the path.
 */
static inline void ccc_cwnd_join(struct sock *sk, struct ccc_flow *flow)
{
	u32 granted = clamp_t(u32, flow->grant.cwnd, CCC_JOIN_PACKETS,
			      CCC_JOIN_MAX);

	if (!flow->grant.coupled || in_slow_start(flow))
		return;
	if (start_pacing(sk, flow))
		follow_pace(sk, flow);
	else
		set_cwnd(tcp_sk(sk), flow, granted);
	note_rated(sk, flow);
}

/* Data is about to be sent: TCP has put its own rate in the place of ours. */
static inline void ccc_cwnd_before_send(struct sock *sk,
					struct ccc_flow *flow)
{
	if (flow->cwnd.paced)
		set_pace(sk, flow);
	else if (flow->cwnd.spread_rate)
		set_rate(sk, flow->cwnd.spread_rate);
}

#endif /* CCC_BPF_CWND_H */
