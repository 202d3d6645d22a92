// SPDX-License-Identifier: GPL-2.0
/*
 * The inner algorithm's own window.
 *
 * A coupled flow's window is its part of the aggregate.  An algorithm that
 * only adds a segment in a round-trip time does not mind whose window that
 * is; one with a memory does.  CUBIC remembers the window at which it last met
 * congestion and grows towards it: if others change the window under its
 * hands, without its knowing why, it grows as fast as it may.
 *
 * So in congestion avoidance the inner algorithm is given a window of its
 * own, the twin's.  It is moved by nothing but the algorithm: opened by
 * cong_avoid(), for as many acknowledged segments as the twin's window would
 * have had in the same time, and reduced by ssthresh() whenever the aggregate
 * is, whichever flow was the cause.  What the twin grows is what is reported.
 *
 * The aggregate grows by the mean of its twins' growth and is reduced together
 * with them; thus their difference shrinks with each reduction, and the twin
 * of each flow becomes what the flows are together: one connection with that
 * algorithm.  Until then it is the smaller of the two, which is the safe side.
 *
 * An algorithm like Vegas also closes its window a little, without an event.
 * That is reported as growth below 0.
 *
 * In slow start, and after a timeout, there is no twin: the host decides on
 * acknowledged data alone, or the flow works its way up by itself.
 */
#include "flow.h"

/*
 * Put the twin's window into the socket, or take it out again.  Between the two
 * who reads the window without the socket's lock may find the twin's.
 */
static void ccc_twin_swap(struct tcp_sock *tp, struct ccc_twin *twin)
{
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 ssthresh = tp->snd_ssthresh;

	tcp_snd_cwnd_set(tp, twin->cwnd);
	twin->cwnd = cwnd;
	WRITE_ONCE(tp->snd_ssthresh, twin->ssthresh);
	twin->ssthresh = ssthresh;
	swap(tp->snd_cwnd_cnt, twin->cwnd_cnt);
	swap(tp->prior_cwnd, twin->prior_cwnd);
}

void ccc_twin_start(struct ccc_twin *twin, u32 cwnd)
{
	twin->cwnd = ccc_window(cwnd, CCC_WINDOW_MAX);
	twin->cwnd_cnt = 0;
	twin->ssthresh = twin->cwnd;
	twin->prior_cwnd = twin->cwnd;
	twin->rest = 0;
	twin->reducing = false;
}

/* The flow goes on alone: what the algorithm remembers is another window. */
void ccc_twin_stop(struct sock *sk, struct ccc_twin *twin,
		   const struct tcp_congestion_ops *inner)
{
	if (!twin->cwnd)
		return;
	twin->cwnd = 0;
	inner->ssthresh(sk);
}

/* The packets by which the algorithm has opened the twin's window; modulo 2^32,
 * as it may close it.
 */
u32 ccc_twin_grow(struct sock *sk, struct ccc_twin *twin,
		  const struct tcp_congestion_ops *inner, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 before = twin->cwnd;

	acked = ccc_scale_acked(acked, twin->cwnd, tcp_snd_cwnd(tp),
				&twin->rest);
	ccc_twin_swap(tp, twin);
	inner->cong_avoid(sk, ack, acked);
	ccc_twin_swap(tp, twin);
	twin->cwnd = ccc_window(twin->cwnd, CCC_WINDOW_MAX);
	/* It has left slow start for good. */
	twin->ssthresh = min(twin->ssthresh, twin->cwnd);
	return twin->cwnd - before;
}

/*
 * What the algorithm would reduce the twin's window to.  It is not reduced yet:
 * set_state() comes next and may have more to say.
 */
u32 ccc_twin_ssthresh(struct sock *sk, struct ccc_twin *twin,
		      const struct tcp_congestion_ops *inner)
{
	struct tcp_sock *tp = tcp_sk(sk);

	twin->prior_cwnd = twin->cwnd;
	ccc_twin_swap(tp, twin);
	WRITE_ONCE(tp->snd_ssthresh, inner->ssthresh(sk));
	ccc_twin_swap(tp, twin);
	twin->reducing = true;
	return twin->ssthresh;
}

void ccc_twin_set_state(struct sock *sk, struct ccc_twin *twin,
			const struct tcp_congestion_ops *inner, u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);

	ccc_twin_swap(tp, twin);
	inner->set_state(sk, state);
	ccc_twin_swap(tp, twin);
}

void ccc_twin_reduce(struct ccc_twin *twin)
{
	u32 prior_cwnd = twin->prior_cwnd;

	ccc_twin_start(twin, min(twin->ssthresh, twin->cwnd));
	twin->prior_cwnd = prior_cwnd;
}

void ccc_twin_undo(struct sock *sk, struct ccc_twin *twin,
		   const struct tcp_congestion_ops *inner)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd;

	ccc_twin_swap(tp, twin);
	cwnd = inner->undo_cwnd(sk);
	ccc_twin_swap(tp, twin);
	ccc_twin_start(twin, cwnd);
}
