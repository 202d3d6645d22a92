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

#define READ_WORD(of)	(*(volatile u64 *)(of))

/* The generation, line and flags that the device has written for the slot. */
static inline u64 accepted_word(const struct ccc_table *table,
				const struct ccc_flow *flow)
{
	return READ_WORD(&table->grant[ccc_slot_of(flow)]);
}

static inline const struct virtio_ccc_grant_line *
line_of(const struct ccc_table *table, const struct ccc_grant *grant)
{
	const struct virtio_ccc_grant_line *line =
		&table->line[grant->line & (CCC_LINES - 1)];

	/* Else it is found anew for each of its fields. */
	barrier_var(line);
	return line;
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

static inline bool is_steady(const struct ccc_report *report)
{
	return report->now.state == VIRTIO_CCC_STATE_CA && report->now.active;
}

/* So many are due at the latest, if none is. */
static inline u32 packets_of_message(u32 cwnd)
{
	return (cwnd + (1 << CCC_REPORT_SHIFT) - 1) >> CCC_REPORT_SHIFT;
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
 * Note which levels grant the same packets: the device writes another at each growth
 * of any flow, and few of these are a packet of this one's.
 */
static inline void note_same_levels(struct ccc_grant *grant)
{
	grant->same_level = ccc_grant_first_level(grant->units, grant->begin);
	grant->same_levels = ccc_grant_levels(grant->units, grant->mss);
}

/*
 * Note whether the next ACK may be quiet, and what it then has to find.  Whatever
 * else the program does with the flow clears this.
 */
static inline void ccc_quiet_next(struct sock *sk, const struct ccc_table *table,
				  struct ccc_flow *flow)
{
	u64 accepted = accepted_word(table, flow);
	u64 status = READ_WORD(&table->status);
	struct ccc_grant *grant = &flow->grant;
	u32 line = 0;

	ccc_sk(sk)->settled = 0;
	if (ccc_sk(sk)->timed || !nothing_is_on_its_way(flow) ||
	    !window_is_granted(tcp_sk(sk), grant) ||
	    !is_steady(&flow->report) || !flow->report.cwnd_limited ||
	    signals_differ(&flow->report.now, &flow->report.notified) ||
	    !is_accepted(table, flow, &line) || line != grant->line ||
	    status >> 32 != grant->instance ||
	    !ccc_grant_stays(grant->level, grant->units, grant->mss,
			     grant->begin))
		return;
	note_same_levels(grant);
	grant->accepted = accepted;
	grant->status = status;
	flow->report.tcp_due = due_after(&flow->report, grant->granted,
					 grant->mss);
	flow->report.sk_priority = sk->sk_priority;
	ccc_sk(sk)->settled = 1;
}

/*
 * Whether the line grants what it did, whatever level was written meanwhile.  Each
 * field is read in one piece; from which writing it is does not matter, since those
 * that are not looked at change with the epoch, or may wait for the next message.
 */
static inline bool grants_the_same(const struct virtio_ccc_grant_line *line,
				   const struct ccc_grant *grant)
{
	return READ_FIELD(line->epoch) == grant->epoch &&
	       READ_FIELD(line->flags) == grant->flags &&
	       READ_FIELD(line->level) - grant->same_level <
		       grant->same_levels;
}

/*
 * Whether the general way would find nothing new, at an ACK that uses the window.
 * TCP's state is that of the last: set_state() tells of another.  Another segment
 * size is seen with the next message, or after a window.
 */
static inline bool ccc_is_quiet(const struct sock *sk,
				const struct ccc_table *table,
				const struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	const struct tcp_sock *tp = tcp_sk(sk);

	/* One with nothing on its way parks. */
	return ccc_sk(sk)->settled && tp->packets_out && tcp_has_unsent(tp) &&
	       tp->snd_cwnd == grant->granted &&
	       sk->sk_priority == flow->report.sk_priority &&
	       READ_WORD(&table->status) == grant->status &&
	       tp->tcp_mstamp < READ_FIELD(table->control.lease_us) &&
	       accepted_word(table, flow) == grant->accepted &&
	       grants_the_same(line_of(table, grant), grant);
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
	/* Where reports have to be far apart, there is a look once a window. */
	return flow->shadow.quiet_acked >= flow->grant.granted ||
	       !ccc_report_too_soon(tp->tcp_mstamp - report->notified_us,
				    flow->grant.report_interval_us);
}

/*
 * The inner algorithm has what quiet ACKs have acknowledged, before anything else
 * happens to it: as one ACK of all that, of a window at the most.  They were limited
 * by the window that was granted, whatever this ACK is.
 */
static __noinline void ccc_quiet_add_up(struct sock *sk, struct ccc_flow *flow,
					bool limited)
{
	u32 acked = flow->shadow.quiet_acked, growth;

	flow->shadow.quiet_acked = 0;
	if (!flow->shadow.cwnd)
		return;
	flow->report.acked_limited_bytes += (u64)acked * flow->grant.mss;
	flow->shadow.owed += ccc_shadow_scale(&flow->shadow, acked,
					      flow->grant.granted);
	if (!limited)
		return;
	growth = ccc_shadow_grow_apart(sk, flow, tcp_sk(sk)->snd_una, 0, true);
	flow->report.cwnd_growth_bytes += growth * flow->grant.mss;
}

/*
 * Whether the line, of which grants_the_same() has just said so, says another level
 * at the most; that is read.  The threshold's is another in each writing, with
 * shares by rate: who looks in the general way divides it, as all do whom an event
 * makes use it.
 */
static inline bool follow_level(const struct virtio_ccc_grant_line *line,
				struct ccc_grant *grant)
{
	u64 level = READ_FIELD(line->level);

	if (READ_FIELD(line->rounding_offset) != grant->rounding_offset ||
	    READ_FIELD(line->report_interval_us) != grant->report_interval_us ||
	    ccc_level_jumps(grant->level, level))
		return false;
	grant->level = level;
	return true;
}

/*
 * A message was due at an ACK that was quiet but for that.  Whether its window is
 * still what is granted: the average of the RTT may have another part of it now.
 */
static inline bool ccc_quiet_goes_on(const struct sock *sk,
				     const struct ccc_table *table,
				     struct ccc_flow *flow)
{
	struct ccc_grant *grant = &flow->grant;

	if (!is_steady(&flow->report) ||
	    tcp_sk(sk)->mss_cache != grant->mss ||
	    tcp_sk(sk)->snd_cwnd_clamp < grant->granted ||
	    !follow_level(line_of(table, grant), grant))
		return false;
	grant->units = units_of(flow, grant->flags);
	if (!ccc_grant_stays(grant->level, grant->units, grant->mss,
			     grant->begin))
		return false;
	note_same_levels(grant);
	flow->report.tcp_due = flow->report.tcp_delivered +
			       packets_of_message(grant->granted);
	return true;
}

#endif /* CCC_BPF_QUIET_H */
