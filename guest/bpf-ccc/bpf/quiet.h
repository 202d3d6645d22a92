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
 * Whether the general way would find nothing new, at an ACK that uses the window.
 * TCP's state is that of the last: set_state() tells of another.
 */
static inline bool ccc_is_quiet(const struct sock *sk,
				const struct ccc_table *table,
				const struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct virtio_ccc_grant_line *line =
		&table->line[grant->line & (CCC_LINES - 1)];

	return ccc_sk(sk)->settled && tcp_has_unsent(tp) &&
	       tp->snd_cwnd == grant->granted &&
	       tp->mss_cache == grant->mss &&
	       sk->sk_priority == flow->report.sk_priority &&
	       inet_sk(sk)->tos == flow->report.tos &&
	       ccc_table_is_live(table, tp->tcp_mstamp) &&
	       READ_FIELD(table->status.instance) == grant->instance &&
	       READ_FIELD(line->seq) == grant->seq &&
	       accepted_word(table, flow) == grant->accepted;
}

/*
 * An ACK that is quiet: the inner algorithm has it, and what is counted of each is.
 * What was delivered is counted by the general way, when that is next gone, which
 * it is if this says so: a message is due, or the inner algorithm grows.
 */
static inline bool ccc_quiet_ack(struct sock *sk, struct ccc_flow *flow, u32 ack,
				 u32 acked)
{
	u32 growth = ccc_shadow_grow_apart(sk, flow, ack, acked);
	struct ccc_report *report = &flow->report;
	const struct tcp_sock *tp = tcp_sk(sk);

	report->acked_limited_bytes += (u64)acked * flow->grant.mss;
	note_rtt(report, tp->rack.rtt_us);
	if (growth)
		report->cwnd_growth_bytes += growth * flow->grant.mss;
	return growth || !seq_before(tp->delivered, report->tcp_due);
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
