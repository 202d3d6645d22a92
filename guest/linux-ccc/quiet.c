// SPDX-License-Identifier: GPL-2.0
/*
 * Most ACKs change nothing but counters: the grant is that of the last look, the
 * window what is granted, and no message is due.  That is seen here by little,
 * given what only the module itself changes (ccc_quiet_next()).
 *
 * Another segment size is seen with the next message, or after a window.
 */
#include "flow.h"

/* So many packets, rounded, are more than the CCC_CWND_MIN that are spread. */
#define CCC_UNSPREAD	(CCC_CWND_MIN + 2)

/* The generation, line and flags that the device has written for the slot. */
static u64 accepted_word(const struct ccc_slot *slot)
{
	return READ_ONCE(*(const u64 *)slot->grant);
}

/*
 * Whether the line grants what it did, whatever level was written meanwhile.  Each
 * field is read in one piece; of which writing it is does not matter, since those
 * that are not looked at change with the epoch, or may wait for the next message.
 */
static bool grants_the_same(const struct ccc_extent *lines,
			    const struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	const struct virtio_ccc_grant_line *line = &lines->line[grant->line];

	return READ_ONCE(lines->use.accepted) &&
	       le32_to_cpu(READ_ONCE(lines->status->instance)) ==
		       flow->quiet.instance &&
	       le32_to_cpu(READ_ONCE(line->epoch)) == grant->epoch &&
	       le32_to_cpu(READ_ONCE(line->flags)) == grant->flags &&
	       le64_to_cpu(READ_ONCE(line->level)) - flow->quiet.same_level <
		       flow->quiet.same_levels;
}

/*
 * Whether the general way would find nothing new, at an ACK that uses the window.
 * TCP's state is that of the last: set_state() tells of another.
 */
bool ccc_quiet_is(const struct sock *sk, const struct ccc_flow *flow)
{
	const struct ccc_slot *slot = flow->slot;
	const struct tcp_sock *tp = tcp_sk(sk);

	return flow->quiet.settled && tp->packets_out && tcp_send_head(sk) &&
	       tcp_snd_cwnd(tp) == flow->grant.part &&
	       READ_ONCE(sk->sk_priority) == flow->quiet.sk_priority &&
	       !READ_ONCE(slot->dev->doorbell.stale) &&
	       accepted_word(slot) == flow->quiet.accepted &&
	       ccc_grant_cap(slot) == flow->grant.cap_bytes &&
	       grants_the_same(slot->dev->slots.extent[0], flow);
}

/*
 * An ACK that is quiet: what it acknowledges is noted.  The rest is done by the
 * general way, when that is next gone, which it is if this says that a message is
 * due: the device hears of growth by messages alone.
 */
bool ccc_quiet_ack(const struct sock *sk, struct ccc_flow *flow, u32 acked)
{
	struct ccc_quiet *quiet = &flow->quiet;

	quiet->acked += acked;
	if ((s32)(tcp_sk(sk)->delivered - quiet->tcp_due) < 0)
		return false;
	/* Where reports have to be far apart, there is a look once a window. */
	return quiet->acked >= flow->grant.part ||
	       !ccc_report_is_early(tcp_sk(sk), flow);
}

/*
 * The inner algorithm has what quiet ACKs have acknowledged, before anything else
 * happens to it, as one ACK of all that.  They were limited by the window that was
 * granted, whatever is now.
 */
void ccc_quiet_add_up(struct sock *sk, struct ccc_flow *flow)
{
	u32 acked = flow->quiet.acked;

	flow->quiet.acked = 0;
	if (!flow->shadow.cwnd)
		return;
	ccc_report_quiet(flow, acked);
	flow->report.cwnd_growth_bytes +=
		ccc_shadow_grow_late(sk, flow, acked) * flow->grant.mss;
}

/* Notes which levels grant the same packets, if the present one does. */
static bool note_same_levels(struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;

	if (!ccc_grant_stays(grant->level, grant->units, grant->mss,
			     grant->begin))
		return false;
	flow->quiet.same_level =
		ccc_grant_first_level(grant->units, grant->begin);
	flow->quiet.same_levels = ccc_grant_levels(grant->units, grant->mss);
	return true;
}

/*
 * Whether the line, of which grants_the_same() has just said so, says another level
 * at the most; that is read.  The threshold's is another in each writing, with
 * shares by rate: who looks in the general way divides it, as all do whom an event
 * makes use it.
 */
static bool follow_level(const struct ccc_slot *slot, struct ccc_grant *grant)
{
	const struct virtio_ccc_grant_line *line =
		&slot->dev->slots.extent[0]->line[grant->line];
	u64 level = le64_to_cpu(READ_ONCE(line->level));

	if (le32_to_cpu(READ_ONCE(line->rounding_offset)) !=
		    grant->rounding_offset ||
	    le32_to_cpu(READ_ONCE(line->report_interval_us)) !=
		    grant->report_interval_us ||
	    ccc_level_jumps(grant->level, level))
		return false;
	grant->level = level;
	return true;
}

/*
 * A message was due at an ACK that was quiet but for that, and has been sent, unless
 * it was too early.
 * Whether its window is still what is granted: the average of the RTT may have
 * another part of it now.
 */
bool ccc_quiet_goes_on(const struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_grant *grant = &flow->grant;
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!ccc_report_is_steady(flow) || tp->mss_cache != grant->mss ||
	    tp->snd_cwnd_clamp < grant->part ||
	    !follow_level(flow->slot, grant))
		return false;
	grant->units = ccc_grant_units(flow->report.priority,
				       flow->report.srtt_us,
				       grant->flags & VIRTIO_CCC_L_RATE);
	if (!note_same_levels(flow))
		return false;
	ccc_ack_clock_count(flow, grant->units, true);
	flow->quiet.tcp_due = ccc_report_due_at(tp, flow);
	return true;
}

/* The flow has just settled (cwnd.c): whether its next ACK may be quiet. */
void ccc_quiet_next(const struct sock *sk, struct ccc_flow *flow)
{
	const struct ccc_slot *slot = flow->slot;
	struct ccc_quiet *quiet = &flow->quiet;
	u16 line;

	quiet->accepted = accepted_word(slot);
	quiet->instance = ccc_grant_instance(slot->dev);
	quiet->sk_priority = READ_ONCE(sk->sk_priority);
	quiet->tcp_due = ccc_report_due_at(tcp_sk(sk), flow);
	quiet->settled = flow->grant.part >= CCC_UNSPREAD && ccc_inner_adds_up &&
			 flow->report.cwnd_limited &&
			 ccc_report_is_steady(flow) &&
			 ccc_report_is_told(flow) &&
			 !flow->recovery.ece && !flow->recovery.tail_sent_us &&
			 ccc_grant_is_accepted(slot, &line) &&
			 line == flow->grant.line && note_same_levels(flow);
}
