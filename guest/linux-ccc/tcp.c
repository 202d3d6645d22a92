// SPDX-License-Identifier: GPL-2.0
/*
 * What TCP calls.
 */
#include <linux/inet_diag.h>
#include <linux/module.h>

#include "flow.h"

/*
 * A message is due at a quiet ACK, and nothing else, so far; or, where it would be
 * too early, a look at what may have changed.
 */
static noinline void tell_quietly(struct sock *sk, struct ccc_flow *flow, u32 acked)
{
	ccc_quiet_add_up(sk, flow);
	if (ccc_report_is_early(tcp_sk(sk), flow))
		ccc_report_update(sk, flow, inet_csk(sk)->icsk_ca_state);
	else
		ccc_report_now(sk, flow);
	if (ccc_quiet_goes_on(sk, flow))
		return;
	flow->quiet.settled = false;
	ccc_cwnd_update(sk, flow, acked);
}

static noinline void follow_ack(struct sock *sk, struct ccc_flow *flow, u32 ack,
		       u32 acked, bool cwnd_limited)
{
	u8 ca_state = inet_csk(sk)->icsk_ca_state;
	u32 before = tcp_snd_cwnd(tcp_sk(sk));
	bool wakes;
	u32 growth;

	ccc_quiet_end(sk, flow);
	/* What TCP has held back in recovery would leave as one burst, too. */
	wakes = flow->recovery.over ||
		(!flow->report.cwnd_limited && !flow->cwnd.paced);
	flow->recovery.over = false;
	cwnd_limited |= ccc_cwnd_is_held(sk, flow);
	growth = ccc_shadow_grow(sk, flow, ack, acked);
	ccc_report_acked(sk, flow, acked, growth, cwnd_limited);
	if (flow->grant.coupled && ca_state != TCP_CA_Loss)
		tcp_snd_cwnd_set(tcp_sk(sk), before);
	if (wakes && flow->report.cwnd_limited && ccc_cwnd_wake(sk, flow))
		ccc_report_wake(flow);
	ccc_report_update(sk, flow, ca_state);
	if (ca_state != TCP_CA_Loss)
		ccc_cwnd_update(sk, flow, acked);
}

static void ccc_tcp_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	bool cwnd_limited = tcp_is_cwnd_limited(sk);
	struct ccc_flow *flow;

	rcu_read_lock();
	flow = ccc_flow_get_sender(sk);
	if (!flow)
		ccc_inner_of(sk)->cong_avoid(sk, ack, acked);
	else if (!cwnd_limited || !ccc_quiet_is(sk, flow))
		follow_ack(sk, flow, ack, acked, cwnd_limited);
	else if (ccc_quiet_ack(sk, flow, acked))
		tell_quietly(sk, flow, acked);
	rcu_read_unlock();
}

/* The slot is not used here: whether it is live will be seen where it is. */
static void ccc_tcp_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct ccc_flow *flow = ccc_sk(sk)->flow;

	if (inner->pkts_acked)
		inner->pkts_acked(sk, sample);
	if (!flow)
		return;
	ccc_ack_clock_tick(flow, (u64)sample->pkts_acked *
				 tcp_sk(sk)->mss_cache);
	ccc_report_rtt(flow, sample->rtt_us);
}

/* Not in line: few ACKs come here, and all would save registers for it. */
static noinline void watched_ack(struct sock *sk, u32 flags)
{
	struct ccc_flow *flow;

	rcu_read_lock();
	flow = ccc_flow_get(sk);
	if (flow) {
		ccc_quiet_end(sk, flow);
		ccc_recovery_ack(sk, flow, flags);
	}
	/* cong_avoid() does not run while TCP reduces the window. */
	if (flow && flow->report.state == VIRTIO_CCC_STATE_FR) {
		ccc_report_end_of_data(sk, flow);
		ccc_report_update(sk, flow, inet_csk(sk)->icsk_ca_state);
	}
	rcu_read_unlock();
}

static void ccc_tcp_in_ack_event(struct sock *sk, u32 flags)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	const struct ccc_flow *flow = ccc_sk(sk)->flow;

	if (inner->in_ack_event)
		inner->in_ack_event(sk, flags);
	if (flow && ccc_recovery_is_watched(sk, flow, flags))
		watched_ack(sk, flags);
}

/* It takes at most what it is granted; more is released by ACKs. */
static void take_window(struct sock *sk, struct ccc_flow *flow, bool joins)
{
	if (inet_csk(sk)->icsk_ca_state > TCP_CA_Disorder)
		return;
	ccc_cwnd_update(sk, flow, 0);
	if (!joins)
		return;
	ccc_opening_look(sk, flow);
	ccc_report_update(sk, flow, inet_csk(sk)->icsk_ca_state);
	if (flow->report.opening != 1)
		ccc_cwnd_join(sk, flow);
}

/* Data leaves, and nothing was in flight. */
static void begin_or_resume(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct ccc_flow *flow = ccc_flow_get(sk);
	bool joins = !flow || !flow->report.active;

	if (flow) {
		ccc_quiet_end(sk, flow);
		/* The aggregate has gone on without it and its shadow window. */
		if (tcp_jiffies32 - tcp_sk(sk)->lsndtime > icsk->icsk_rto)
			ccc_shadow_stop(sk, flow);
		ccc_report_resume(sk, flow);
	} else {
		flow = ccc_flow_attach(sk);
	}
	if (flow)
		take_window(sk, flow, joins);
}

static void tx_start(struct sock *sk)
{
	if (!inet_csk(sk)->icsk_ca_initialized)
		return;
	rcu_read_lock();
	begin_or_resume(sk);
	rcu_read_unlock();
}

/*
 * TCP's timer holds back what would fill the window: no ACK need say so.  The flow, if
 * it still has its slot.
 */
static noinline struct ccc_flow *wake_sender(struct sock *sk)
{
	struct ccc_flow *flow;

	rcu_read_lock();
	flow = ccc_flow_get(sk);
	if (flow && ccc_cwnd_is_held(sk, flow) && ccc_cwnd_wake(sk, flow)) {
		ccc_report_wake(flow);
		ccc_report_update(sk, flow, inet_csk(sk)->icsk_ca_state);
	}
	rcu_read_unlock();
	return flow;
}

/*
 * An application writes while the first packets leave.  Who has written a header
 * joins with its body.
 */
static noinline struct ccc_flow *open_sender(struct sock *sk)
{
	struct ccc_flow *flow;

	rcu_read_lock();
	flow = ccc_flow_get(sk);
	if (flow && flow->report.opening == 1) {
		take_window(sk, flow, true);
	} else if (flow) {
		ccc_opening_look(sk, flow);
		ccc_report_update(sk, flow, inet_csk(sk)->icsk_ca_state);
	}
	rcu_read_unlock();
	return flow;
}

/* It has an application's pace, and may want more than it did. */
static bool may_wake(const struct ccc_flow *flow)
{
	return flow->cwnd.smooth && !flow->cwnd.paced && flow->report.active &&
	       !flow->report.cwnd_limited && !flow->report.opening;
}

/* TCP asks before it sends, with the socket locked. */
static u32 ccc_tcp_min_tso_segs(struct sock *sk)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);
	struct ccc_flow *flow = ccc_flow_get(sk);

	if (flow && may_wake(flow))
		flow = wake_sender(sk);
	if (flow && ccc_opening_grew(sk, flow))
		flow = open_sender(sk);
	if (flow && (flow->release.waits || flow->cwnd.paced ||
		     flow->cwnd.spread)) {
		ccc_quiet_end(sk, flow);
		ccc_cwnd_release(sk, flow);
	}
	if (inner->min_tso_segs)
		return inner->min_tso_segs(sk);
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_min_tso_segs);
}

#ifdef CCC_HAVE_TX_START_OP
static void ccc_tcp_cwnd_event_tx_start(struct sock *sk)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	if (inner->cwnd_event_tx_start)
		inner->cwnd_event_tx_start(sk);
	tx_start(sk);
}
#else
static void ccc_tcp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	if (inner->cwnd_event)
		inner->cwnd_event(sk, event);
	if (event == CA_EVENT_TX_START)
		tx_start(sk);
}
#endif

static struct tcp_congestion_ops ccc_fallback_ops;

static void ccc_tcp_init(struct sock *sk)
{
	/* DCTCP puts Reno in its place if there is no ECN on this path. */
	if (ccc_flow_init(sk))
		inet_csk(sk)->icsk_ca_ops = &ccc_fallback_ops;
}

static void ccc_tcp_release(struct sock *sk)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	if (ccc_sk(sk)->flow) {
		ccc_quiet_end(sk, ccc_sk(sk)->flow);
		ccc_flow_detach(sk);
	}
	if (inner->release)
		inner->release(sk);
}

/*
 * ss(8) prints only what it knows.  Of that, the fields of BBR's record have
 * the same meaning here: a rate that may be sent, the smallest RTT, and two
 * factors of 256, for which the priority and whether the flow is coupled are
 * given.  An attribute of our own would have a number that the kernel may give
 * to somebody else, and be printed by nobody.
 *
 * Called without the socket's lock, and perhaps while it changes to or from
 * another algorithm: everything here is a number, and any number will do.
 */
static size_t ccc_tcp_get_info(struct sock *sk, u32 ext, int *attr,
			       union tcp_cc_info *info)
{
	u32 granted = READ_ONCE(ccc_sk(sk)->shown_cwnd);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = data_race(READ_ONCE(tp->srtt_us)) >> 3;
	u64 rate = 0;

	if (!(ext & (1 << (INET_DIAG_BBRINFO - 1))) &&
	    !(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	memset(&info->bbr, 0, sizeof(info->bbr));
	info->bbr.bbr_min_rtt = data_race(tcp_min_rtt(tp));
	info->bbr.bbr_pacing_gain = ccc_report_priority(sk);
	if (granted && srtt_us) {
		rate = ccc_pacing_rate(granted,
				       data_race(READ_ONCE(tp->mss_cache)),
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
	.init		= ccc_tcp_init,
	.release	= ccc_tcp_release,
	.ssthresh	= ccc_recovery_ssthresh,
	.set_state	= ccc_recovery_set_state,
	.undo_cwnd	= ccc_recovery_undo_cwnd,
	.cong_avoid	= ccc_tcp_cong_avoid,
	.pkts_acked	= ccc_tcp_pkts_acked,
	.in_ack_event	= ccc_tcp_in_ack_event,
	.min_tso_segs	= ccc_tcp_min_tso_segs,
#ifdef CCC_HAVE_TX_START_OP
	.cwnd_event_tx_start = ccc_tcp_cwnd_event_tx_start,
#else
	.cwnd_event	= ccc_tcp_cwnd_event,
#endif
	.get_info	= ccc_tcp_get_info,
};

/* What coupling has no part in goes to the inner algorithm directly. */
static void take_over_inner(void)
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

int ccc_tcp_register(void)
{
	take_over_inner();
	return tcp_register_congestion_control(&ccc_ops);
}

void ccc_tcp_unregister(void)
{
	tcp_unregister_congestion_control(&ccc_ops);
}
