/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Most ACKs change nothing but counters: the grant is that of the last look, the
 * window what is granted, and no message is due.  That is seen here by little,
 * given what only the program itself changes (ccc_quiet_next()).
 */
#ifndef CCC_BPF_QUIET_H
#define CCC_BPF_QUIET_H

#include "cwnd.h"

/* So many packets, rounded, are more than the CCC_CWND_MIN that are spread. */
#define CCC_UNSPREAD	(CCC_CWND_MIN + 2)

/* The generation, line and flags that the device has written for the slot. */
static inline u64 accepted_word(const struct ccc_table *table,
				const struct ccc_flow *flow)
{
	return *(volatile u64 *)&table->grant[ccc_slot_of(flow)];
}

static inline bool nothing_is_on_its_way(const struct ccc_flow *flow)
{
	const struct ccc_shadow *shadow = &flow->shadow;
	const struct ccc_cwnd *cwnd = &flow->cwnd;

	return !cwnd->ramp && !cwnd->shed && shadow->cwnd &&
	       !shadow->charged && shadow->epoch == flow->grant.epoch;
}

static inline bool window_is_granted(const struct tcp_sock *tp,
				     const struct ccc_grant *grant)
{
	return grant->coupled && !(grant->flags & VIRTIO_CCC_L_SLOW_START) &&
	       !grant->epoch_known && grant->granted >= CCC_UNSPREAD &&
	       grant->cwnd == grant->granted &&
	       tp->snd_cwnd == grant->granted &&
	       tp->snd_ssthresh == min_t(u32, grant->ssthresh, tp->snd_cwnd);
}

static inline bool all_is_told(const struct ccc_report *report)
{
	return report->now.state == VIRTIO_CCC_STATE_CA && report->now.active &&
	       !signals_differ(&report->now, &report->notified);
}

/* What TCP will have counted as delivered when a message is due for that. */
static inline u32 due_after(const struct ccc_report *report, u32 cwnd, u32 mss)
{
	u64 told = report->delivered_bytes - report->notified_delivered_bytes;
	u32 bytes = ccc_bytes(cwnd, mss) >> CCC_REPORT_SHIFT;

	if (told >= bytes)
		return report->tcp_delivered;
	return report->tcp_delivered +
	       (u32)(bytes - told + mss - 1) / max_t(u32, mss, 1);
}

/*
 * Note whether the next ACK may be quiet, and what it then has to find.  Whatever
 * else the program does with the flow clears this.
 */
static inline void ccc_quiet_next(struct sock *sk, const struct ccc_table *table,
				  struct ccc_flow *flow)
{
	u64 accepted = accepted_word(table, flow);
	u32 line = 0;

	if (ccc_sk(sk)->timed || !nothing_is_on_its_way(flow) ||
	    !window_is_granted(tcp_sk(sk), &flow->grant) ||
	    !all_is_told(&flow->report) || !flow->report.cwnd_limited ||
	    !is_accepted(table, flow, &line) || line != flow->grant.line) {
		ccc_sk(sk)->settled = 0;
		return;
	}
	flow->grant.accepted = accepted;
	flow->report.tcp_due = due_after(&flow->report, flow->grant.granted,
					 flow->grant.mss);
	flow->report.sk_priority = sk->sk_priority;
	flow->report.tos = inet_sk(sk)->tos;
	ccc_sk(sk)->settled = 1;
}

/*
 * Whether the line that has changed gives the same packets as before: the device
 * writes one for all flows at each growth of any, and few of these are a packet of
 * this flow's.  Not in line: it would save registers for it at each ACK.
 */
static __noinline bool ccc_quiet_line(const struct ccc_table *table,
				      struct ccc_flow *flow)
{
	struct ccc_grant *grant = &flow->grant;
	struct ccc_line now;

	if (!read_line(&table->line[grant->line & (CCC_LINES - 1)], &now) ||
	    now.epoch != grant->epoch || now.flags != grant->flags ||
	    now.ssthresh_level != grant->ssthresh_level ||
	    now.rounding_offset != grant->rounding_offset ||
	    now.report_interval_us != grant->report_interval_us ||
	    is_redivided(grant, &now) ||
	    part_of(flow, now.level) != grant->granted)
		return false;
	grant->seq = now.seq;
	grant->level = now.level;
	grant->cwnd_bytes = ccc_grant_bytes(now.level, grant->units);
	return true;
}

/*
 * Whether the general way would find nothing new, at an ACK that uses the window.
 * TCP's state is that of the last: set_state() tells of another.
 */
static inline bool ccc_is_quiet(const struct sock *sk,
				const struct ccc_table *table,
				struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct virtio_ccc_grant_line *line =
		&table->line[grant->line & (CCC_LINES - 1)];

	/* One with nothing on its way parks. */
	return ccc_sk(sk)->settled && tp->packets_out && tcp_has_unsent(tp) &&
	       tp->snd_cwnd == grant->granted &&
	       tp->mss_cache == grant->mss &&
	       sk->sk_priority == flow->report.sk_priority &&
	       inet_sk(sk)->tos == flow->report.tos &&
	       ccc_table_is_live(table, tp->tcp_mstamp) &&
	       READ_FIELD(table->status.instance) == grant->instance &&
	       accepted_word(table, flow) == grant->accepted &&
	       (READ_FIELD(line->seq) == grant->seq ||
		ccc_quiet_line(table, flow));
}

/*
 * An ACK that is quiet: what it acknowledges is noted.  The rest is done by the
 * general way, when that is next gone, which it is if this says that a message is
 * due: the device hears of growth by messages alone.
 */
static inline bool ccc_quiet_ack(const struct sock *sk, struct ccc_flow *flow,
				 u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	struct ccc_report *report = &flow->report;

	flow->shadow.quiet_acked += acked;
	note_rtt(report, tp->rack.rtt_us);
	if (seq_before(tp->delivered, report->tcp_due))
		return false;
	/* Where reports have to be far apart, once a window. */
	return flow->shadow.quiet_acked >= flow->grant.granted ||
	       !ccc_report_too_soon(tp->tcp_mstamp - report->notified_us,
				    flow->grant.report_interval_us);
}

/*
 * The inner algorithm has what quiet ACKs have acknowledged, before anything else
 * happens to it: as one ACK of all that, of a window at the most.  They were limited
 * by the window that was granted, whatever this ACK is.
 */
static __noinline void ccc_quiet_end(struct sock *sk, struct ccc_flow *flow)
{
	u32 acked = flow->shadow.quiet_acked, growth;

	flow->shadow.quiet_acked = 0;
	if (!flow->shadow.cwnd)
		return;
	flow->report.acked_limited_bytes += (u64)acked * flow->grant.mss;
	flow->shadow.owed += ccc_shadow_scale(&flow->shadow, acked,
					      flow->grant.granted);
	if (!tcp_is_cwnd_limited(sk))
		return;
	growth = ccc_shadow_grow_apart(sk, flow, tcp_sk(sk)->snd_una, 0);
	flow->report.cwnd_growth_bytes += growth * flow->grant.mss;
}

/*
 * A message was due at an ACK that was quiet but for that.  Whether its window is
 * still what is granted: the average of the RTT may have another part of it now.
 */
static inline bool ccc_quiet_goes_on(const struct sock *sk, struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;

	if (!all_is_told(&flow->report) ||
	    units_of(flow, grant->flags) != grant->units ||
	    tcp_sk(sk)->snd_cwnd_clamp < grant->granted)
		return false;
	flow->report.tcp_due = due_after(&flow->report, grant->granted,
					 grant->mss);
	return true;
}

#endif /* CCC_BPF_QUIET_H */
