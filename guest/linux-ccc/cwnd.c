// SPDX-License-Identifier: GPL-2.0
/*
 * What the host grants, done: the window of a flow is its part of the
 * aggregate's.
 *
 * A flow joins by the ACK clock, unless the parameter `join` says otherwise.
 * The two other modes are there for comparison: its whole part at once, in one
 * burst, which meets what the others still have in the queue; and the same,
 * spread over a round trip by TCP's own pacing, which does not know when the
 * others' packets leave the queue.
 */
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <net/sock.h>

#include "flow.h"

enum join_mode { JOIN_CLOCK, JOIN_PACED, JOIN_UNCLOCKED };

static const char * const join_modes[] = {
	[JOIN_CLOCK] = "clock",
	[JOIN_PACED] = "paced",
	[JOIN_UNCLOCKED] = "unclocked",
};

static int join_mode;

static int join_mode_set(const char *value, const struct kernel_param *kp)
{
	int mode = sysfs_match_string(join_modes, value);

	if (mode < 0) {
		pr_err("ccc: unknown mode of joining: expected join=clock, paced or unclocked, got %s\n",
		       value);
		return mode;
	}
	WRITE_ONCE(join_mode, mode);
	return 0;
}

static int join_mode_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", join_modes[READ_ONCE(join_mode)]);
}

static const struct kernel_param_ops join_mode_ops = {
	.set = join_mode_set,
	.get = join_mode_get,
};

module_param_cb(join, &join_mode_ops, NULL, 0644);
MODULE_PARM_DESC(join, "how flows join others: clock (default), paced, unclocked");

/* TCP does not move the window for an event. */
static bool is_open(const struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state <= TCP_CA_Disorder;
}

static bool in_slow_start(const struct ccc_flow *flow)
{
	return flow->grant.flags & VIRTIO_CCC_L_SLOW_START;
}

/*
 * Have TCP wait for its pacing timer; a rate that the socket's owner or its
 * queue has set stays.
 */
static bool start_timer(struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->cwnd.timed)
		flow->cwnd.timed =
			cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE,
				SK_PACING_NEEDED) == SK_PACING_NONE;
	return flow->cwnd.timed;
}

/*
 * A time to send at that nobody waits for would make the RTT too short.  The
 * timer stays where the owner has set a rate meanwhile.
 */
static void stop_timer(struct sock *sk, struct ccc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!flow->cwnd.timed || flow->cwnd.paced || flow->cwnd.spread ||
	    flow->cwnd.smooth)
		return;
	flow->cwnd.timed = false;
	if (READ_ONCE(sk->sk_max_pacing_rate) == ~0UL)
		cmpxchg(&sk->sk_pacing_status, SK_PACING_NEEDED,
			SK_PACING_NONE);
	tp->tcp_wstamp_ns = min(tp->tcp_wstamp_ns, tp->tcp_clock_cache);
}

/* For so long, however long it has been paced: recovery may have taken that time. */
static bool pace_anew(struct sock *sk, struct ccc_flow *flow)
{
	if (!start_timer(sk, flow))
		return false;
	flow->cwnd.paced = true;
	flow->cwnd.paced_until_us =
		tcp_clock_us() + CCC_PACED_RTTS * (tcp_sk(sk)->srtt_us >> 3);
	return true;
}

/* From now on it is sent at the rate of its window. */
static bool start_pacing(struct sock *sk, struct ccc_flow *flow)
{
	return flow->cwnd.paced || pace_anew(sk, flow);
}

static void stop_pacing(struct sock *sk, struct ccc_flow *flow)
{
	flow->cwnd.paced = false;
	stop_timer(sk, flow);
}

/* Its packets leave as TCP would have them. */
void ccc_cwnd_stop_timing(struct sock *sk, struct ccc_flow *flow)
{
	flow->cwnd.spread = false;
	flow->cwnd.smooth = false;
	stop_pacing(sk, flow);
}

static void refresh_grant(const struct sock *sk, struct ccc_flow *flow)
{
	ccc_grant_refresh(flow->slot, &flow->grant, flow->report.priority,
			  flow->report.srtt_us, tcp_sk(sk)->mss_cache);
}

/* True if the flow is coupled; the grant before was of @epoch. */
static bool follow_grant(struct sock *sk, struct ccc_flow *flow,
			 bool was_coupled, u32 epoch)
{
	const struct ccc_report *report = &flow->report;
	const struct ccc_grant *grant = &flow->grant;

	if (!grant->coupled) {
		ccc_flow_show(sk, 0);
		ccc_shadow_stop(sk, flow);
		ccc_ack_clock_count(flow, 0, false);
		ccc_cwnd_stop_timing(sk, flow);
		return false;
	}
	if (ccc_shadow_awaits(sk, flow))
		flow->grant.cwnd = ccc_apply_beta(grant->cwnd, flow->shadow.beta);
	ccc_ack_clock_count(flow, report->active ? grant->units : 0,
			    report->cwnd_limited && !flow->cwnd.joining &&
				    !flow->cwnd.paced);
	if (grant->redivided) {
		u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

		ccc_report_restart_rtt(flow);
		flow->cwnd.shed = ccc_shed(cwnd, grant->cwnd);
		flow->cwnd.ramp = ccc_ramp(cwnd, grant->cwnd);
		if (grant->cwnd > cwnd && is_open(sk))
			start_pacing(sk, flow);
	} else if (grant->epoch != epoch) {
		flow->cwnd.shed = 0;
	}
	ccc_flow_show(sk, max(grant->cwnd, 1u));
	ccc_shadow_follow_epoch(sk, flow, was_coupled);
	return true;
}

/* True if the flow is coupled, with its granted window up to date. */
bool ccc_cwnd_read_grant(struct sock *sk, struct ccc_flow *flow)
{
	bool was_coupled = flow->grant.coupled;
	u32 epoch = flow->grant.epoch;

	refresh_grant(sk, flow);
	return follow_grant(sk, flow, was_coupled, epoch);
}

/*
 * Keep the inner algorithm in the aggregate's phase: in congestion avoidance
 * it must not take its own part below the threshold for slow start.
 */
static u32 phase_ssthresh(const struct tcp_sock *tp,
			  const struct ccc_flow *flow)
{
	u32 ssthresh = flow->grant.ssthresh;

	return in_slow_start(flow) ? ssthresh : min(ssthresh, tcp_snd_cwnd(tp));
}

/*
 * Where TCP's own machinery is to take the window after an event: to what is
 * granted; after a timeout, where the aggregate begins again in slow start, to
 * its part of the threshold, or the flow would creep up from two segments.
 */
u32 ccc_cwnd_after_event(const struct tcp_sock *tp,
			 const struct ccc_flow *flow, u8 ca_state)
{
	const struct ccc_grant *grant = &flow->grant;
	u32 target = grant->cwnd;

	if (ca_state == TCP_CA_Loss && in_slow_start(flow) &&
	    grant->ssthresh_level != VIRTIO_CCC_LEVEL_UNSET)
		target = max(target, grant->ssthresh);
	return clamp(target, 2u, max(tp->prior_cwnd, 2u));
}

static void set_cwnd(struct tcp_sock *tp, const struct ccc_flow *flow, u32 cwnd)
{
	cwnd = ccc_cwnd_clamp(cwnd, tp->snd_cwnd_clamp);
	tcp_snd_cwnd_set(tp, cwnd);
	/* Credit of a larger window would open the smaller one at once. */
	tp->snd_cwnd_cnt = min(tp->snd_cwnd_cnt, cwnd - 1);
	WRITE_ONCE(tp->snd_ssthresh, phase_ssthresh(tp, flow));
}

/*
 * A flow that joins, and all flows in slow start, are released by the ACKs of
 * others too.  A window that has grown because others left is approached by
 * the flow's own.
 */
static void follow_ack_clock(struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_cwnd *cwnd = &flow->cwnd;

	if (flow->grant.cwnd <= tcp_snd_cwnd(tcp_sk(sk)))
		cwnd->joining = false;
	if ((flow->report.cwnd_limited || flow->report.opening) &&
	    (cwnd->joining || in_slow_start(flow)))
		ccc_ack_clock_wait(sk, flow, 0);
	else
		ccc_ack_clock_stop(flow);
}

/*
 * TCP does not pace the first packets of a socket: those are let go one by one.
 * Its own timer asks for the next.
 */
static void release_one(struct sock *sk, u64 rate)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 gap_ns = div64_u64((u64)tp->mss_cache * NSEC_PER_SEC,
			       max(rate, 1ull));
	u32 used = tcp_packets_in_flight(tp);
	bool waits = hrtimer_is_queued(&tp->pacing_timer);

	tcp_snd_cwnd_set(tp, clamp(waits ? used : used + 1, 1u,
				   tcp_snd_cwnd(tp)));
	if (waits || !tcp_send_head(sk))
		return;
	hrtimer_start(&tp->pacing_timer,
		      ns_to_ktime(tp->tcp_clock_cache + gap_ns),
		      HRTIMER_MODE_ABS_PINNED_SOFT);
	sock_hold(sk);
}

/* The window that is granted now, spread over a round trip. */
static void follow_pace(struct sock *sk, struct ccc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	/* What it has had for longer is not cut, and its ACKs give up the rest. */
	u32 most = max(CCC_JOIN_MAX, tcp_snd_cwnd(tp));
	u32 least = max(CCC_JOIN_PACKETS, tcp_packets_in_flight(tp));
	u32 granted = clamp_t(u32, flow->grant.cwnd, min(least, most), most);
	u64 rate = ccc_pacing_rate(
		ccc_opening_pace(flow->report.opening, granted), tp->mss_cache,
		tp->srtt_us >> 3);

	set_cwnd(tp, flow, granted);
	rate = min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate));
	WRITE_ONCE(sk->sk_pacing_rate, rate);
	if (tp->data_segs_out < TCP_INIT_CWND)
		release_one(sk, rate);
}

/* Bytes that wait for the window or the timer, and not for the receiver's window. */
static u32 unsent_bytes(const struct tcp_sock *tp)
{
	u32 end = before(tcp_wnd_end(tp), tp->write_seq) ? tcp_wnd_end(tp) :
							   tp->write_seq;

	return after(end, tp->snd_nxt) ? end - tp->snd_nxt : 0;
}

/* What waits would fill the window. */
static bool fills(const struct tcp_sock *tp)
{
	return ccc_fills(tcp_snd_cwnd(tp), tcp_packets_in_flight(tp),
			 unsent_bytes(tp), tp->mss_cache);
}

/*
 * Once its window is in flight, or has had the time to be, its own ACKs pace
 * it.  What is not in flight then is released by these.
 */
static bool is_paced(struct sock *sk, struct ccc_flow *flow, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 used = tcp_packets_in_flight(tp) + acked;

	if (!flow->cwnd.paced)
		return false;
	if (used < flow->grant.cwnd &&
	    tcp_clock_us() < flow->cwnd.paced_until_us)
		return true;
	stop_pacing(sk, flow);
	/*
	 * By the guest's own queue, a rate that its owner has set, or the like.  Who
	 * comes back has had nothing to send.
	 */
	flow->cwnd.hindered = acked && used < flow->grant.cwnd &&
			      unsent_bytes(tp);
	/*
	 * Its application has no more to send: a window that was cut to what it uses
	 * would be its limit, and it would be paced and take all it is granted again.
	 */
	if (acked && !fills(tp))
		return false;
	/* Who had little to send keeps what TCP leaves to one that was idle. */
	used = max_t(u32, used, TCP_INIT_CWND);
	tcp_snd_cwnd_set(tp, min(used, tcp_snd_cwnd(tp)));
	return false;
}

/*
 * What is granted is the limit: of what is spread over a round trip, and of what TCP's
 * timer holds back, as its window would be full without.
 */
bool ccc_cwnd_is_held(const struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	flow->cwnd.hindered &= unsent_bytes(tp) > 0;
	return flow->cwnd.paced ||
	       (flow->cwnd.smooth && !flow->cwnd.hindered && fills(tp));
}

/*
 * The flow comes to want more than it used, or may send what recovery held back: it
 * takes that at the pace at which the others give it up, from when they are told.
 * True if it does.
 */
bool ccc_cwnd_wake(struct sock *sk, struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	const struct tcp_sock *tp = tcp_sk(sk);

	return grant->coupled && !in_slow_start(flow) && is_open(sk) &&
	       ccc_wakes(tcp_packets_in_flight(tp), grant->cwnd,
			 unsent_bytes(tp), tp->mss_cache) &&
	       pace_anew(sk, flow);
}

/* The window on the way to what is granted, with so many packets acknowledged. */
static u32 next_cwnd(const struct tcp_sock *tp, struct ccc_flow *flow,
		     u32 acked)
{
	struct ccc_cwnd *cwnd = &flow->cwnd;
	u32 granted = flow->grant.cwnd;
	u32 in_flight = tcp_packets_in_flight(tp);
	u32 before = tcp_snd_cwnd(tp);

	if (granted >= before)
		cwnd->shed = 0;
	cwnd->ramp = ccc_ramp_on(before, granted, cwnd->ramp);
	/* What is not in flight is given up at once. */
	if (cwnd->shed)
		return ccc_shed_cwnd(min(before, in_flight + acked), granted,
				     acked, cwnd->shed, &cwnd->rest);
	in_flight = ccc_ramp_in_flight(before, in_flight, acked,
				       flow->report.cwnd_limited);
	return ccc_ramp_cwnd(before, granted, in_flight, acked, cwnd->ramp,
			     &cwnd->rest);
}

/*
 * A window of less than two segments is two at a time, which the receiver
 * acknowledges together, and then none.  Who has less to send than that has
 * waited already.
 */
static void follow_spread(struct sock *sk, struct ccc_flow *flow)
{
	bool waits = flow->report.cwnd_limited && !in_slow_start(flow);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 rtt_us = waits ? tp->rack.rtt_us : 0;
	u32 gap_us = ccc_spread_us(flow->grant.cwnd_bytes, tp->mss_cache,
				   rtt_us);

	flow->cwnd.spread = gap_us && start_timer(sk, flow);
	gap_us = ccc_spread_apart_us(gap_us, rtt_us,
				     flow->slot->rounding_offset,
				     tp->delivered);
	if (flow->cwnd.spread)
		tp->tcp_wstamp_ns = tp->tcp_clock_cache +
				    (u64)gap_us * NSEC_PER_USEC;
}

/* What is not sent by ACKs alone: at a rate of TCP's own, or two at a time. */
static void follow_timing(struct sock *sk, struct ccc_flow *flow)
{
	bool smooth = ccc_is_smooth(tcp_snd_cwnd(tcp_sk(sk)),
				    flow->report.cwnd_limited,
				    in_slow_start(flow));

	follow_spread(sk, flow);
	flow->cwnd.smooth = smooth && start_timer(sk, flow);
	stop_timer(sk, flow);
}

/* Nothing waits for a time or for others' ACKs. */
static bool is_free(const struct ccc_flow *flow)
{
	const struct ccc_release *release = &flow->release;

	return !flow->cwnd.timed && !flow->cwnd.joining && !release->waits &&
	       flow->report.active &&
	       release->clock == &flow->slot->dev->ack_clock[flow->grant.line] &&
	       release->units == flow->grant.units &&
	       release->drives == flow->report.cwnd_limited;
}

/*
 * The flow has the window that it is granted, in congestion avoidance, and is to
 * do nothing else than before: so most ACKs find it.  All that is done for others
 * would change nothing then but what settle() does.
 */
static bool is_settled(const struct tcp_sock *tp, const struct ccc_flow *flow)
{
	const struct ccc_shadow *shadow = &flow->shadow;
	const struct ccc_grant *grant = &flow->grant;
	u32 cwnd = tcp_snd_cwnd(tp);

	return cwnd == grant->cwnd && cwnd >= CCC_CWND_MIN &&
	       cwnd <= tp->snd_cwnd_clamp && grant->coupled &&
	       !grant->redivided && !in_slow_start(flow) && shadow->cwnd &&
	       !shadow->charged && shadow->epoch == grant->epoch &&
	       grant->cwnd_bytes >= ccc_bytes(CCC_CWND_MIN, tp->mss_cache) &&
	       !ccc_is_smooth(cwnd, flow->report.cwnd_limited, false) &&
	       is_free(flow);
}

static void settle(struct sock *sk, struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	struct tcp_sock *tp = tcp_sk(sk);

	flow->cwnd.shed = 0;
	flow->cwnd.ramp = 0;
	ccc_flow_show(sk, grant->cwnd);
	tp->snd_cwnd_cnt = min(tp->snd_cwnd_cnt, grant->cwnd - 1);
	WRITE_ONCE(tp->snd_ssthresh, min(grant->ssthresh, grant->cwnd));
}

/* Its ACKs would be too slow, and release bursts. */
static bool leaps(const struct sock *sk, const struct ccc_flow *flow, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 used = min(tcp_snd_cwnd(tp), tcp_packets_in_flight(tp) + acked);

	return acked && flow->report.cwnd_limited && is_open(sk) &&
	       ccc_leaps(used, flow->grant.cwnd);
}

/* So many packets of the flow have been acknowledged. */
void ccc_cwnd_update(struct sock *sk, struct ccc_flow *flow, u32 acked)
{
	bool was_coupled = flow->grant.coupled;
	u32 epoch = flow->grant.epoch;
	struct tcp_sock *tp = tcp_sk(sk);

	refresh_grant(sk, flow);
	if (was_coupled && is_settled(tp, flow)) {
		settle(sk, flow);
		ccc_quiet_next(sk, flow);
		return;
	}
	if (!follow_grant(sk, flow, was_coupled, epoch))
		return;
	ccc_shadow_follow_phase(flow);
	if (leaps(sk, flow, acked))
		start_pacing(sk, flow);
	if (is_paced(sk, flow, acked)) {
		follow_pace(sk, flow);
	} else {
		set_cwnd(tp, flow, next_cwnd(tp, flow, acked));
		if (acked)
			follow_timing(sk, flow);
	}
	follow_ack_clock(sk, flow);
}

/*
 * The flow begins, or comes back.  If others of this guest are there, their
 * ACKs release its window.  If not, the others behind the bottleneck give up
 * their part at the pace of their ACKs, so at its rate, from when they are
 * told; and it takes it at that rate.  In slow start there is no room to wait
 * for: nobody has filled the path.
 */
void ccc_cwnd_join(struct sock *sk, struct ccc_flow *flow)
{
	u32 granted = clamp_t(u32, flow->grant.cwnd, CCC_JOIN_PACKETS,
			      CCC_JOIN_MAX);
	int mode = READ_ONCE(join_mode);
	u32 cwnd;

	if (!flow->grant.coupled || in_slow_start(flow))
		return;
	if (mode == JOIN_CLOCK && ccc_ack_clock_runs(flow)) {
		cwnd = min(tcp_snd_cwnd(tcp_sk(sk)), CCC_JOIN_PACKETS);
		set_cwnd(tcp_sk(sk), flow, cwnd);
		flow->cwnd.joining = cwnd < flow->grant.cwnd;
		if (flow->cwnd.joining)
			ccc_ack_clock_wait(sk, flow, cwnd);
	} else if (mode != JOIN_UNCLOCKED && start_pacing(sk, flow)) {
		follow_pace(sk, flow);
	} else {
		set_cwnd(tcp_sk(sk), flow, granted);
	}
}

/* Data is about to be sent: as much more as others' ACKs have released. */
void ccc_cwnd_release(struct sock *sk, struct ccc_flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 packets;

	if (flow->cwnd.paced && is_open(sk) && ccc_cwnd_read_grant(sk, flow)) {
		follow_pace(sk, flow);
		return;
	}
	/* Those two leave together. */
	if (flow->cwnd.spread)
		WRITE_ONCE(sk->sk_pacing_rate,
			   READ_ONCE(sk->sk_max_pacing_rate));
	/* What is released to a flow that has room is not used. */
	packets = ccc_ack_clock_take(flow, tp->mss_cache);
	if (!packets || tcp_packets_in_flight(tp) < cwnd || !is_open(sk) ||
	    !ccc_cwnd_read_grant(sk, flow))
		return;
	set_cwnd(tp, flow, max(cwnd, min(flow->grant.cwnd, cwnd + packets)));
	follow_ack_clock(sk, flow);
}
