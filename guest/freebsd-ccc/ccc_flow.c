/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flow: how it takes a slot and gives it back, and how its window goes to what
 * is granted.
 *
 * FreeBSD asks an algorithm nothing before it sends, so a flow takes its slot
 * with the first data that is acknowledged, and approaches a larger window by
 * what its own ACKs release.
 */
#include "ccc_flow.h"

/* Bytes of data in a full segment, without the options that each one carries. */
uint32_t
ccc_flow_mss(const struct tcpcb *tp)
{
	return (max_t(uint32_t, tcp_fixed_maxseg(tp), 1));
}

/* TCP moves its own mark after the algorithm has seen the ACK. */
uint32_t
ccc_flow_una(const struct tcpcb *tp, const struct cc_var *ccv)
{
	if (SEQ_GT(ccv->curack, tp->snd_una) &&
	    SEQ_LEQ(ccv->curack, tp->snd_max))
		return (ccv->curack);
	return (tp->snd_una);
}

static void
attach(struct tcpcb *tp, struct ccc_flow *flow, bool cwnd_limited)
{
	uint32_t changes = ccc_slot_changes();

	if (flow->done || flow->changes == changes)
		return;
	flow->changes = changes;
	if (!ccc_tcp_in_scope(tp))
		return;
	flow->slot = ccc_slot_take();
	if (flow->slot == NULL)
		return;
	memset(&flow->grant, 0, sizeof(flow->grant));
	memset(&flow->report, 0, sizeof(flow->report));
	memset(&flow->cwnd, 0, sizeof(flow->cwnd));
	/* What was timed before has been acknowledged unseen. */
	flow->rtt.timing = false;
	ccc_recovery_first(flow);
	memset(&flow->shadow, 0, sizeof(flow->shadow));
	flow->shadow.beta = CCC_BETA_HALF;
	flow->report.cwnd_limited = cwnd_limited;
	ccc_report_first(tp, flow);
}

void
ccc_flow_detach(struct tcpcb *tp, struct ccc_flow *flow)
{
	if (flow->slot == NULL)
		return;
	if (ccc_slot_is_live(flow->slot))
		ccc_report_last(tp, flow);
	ccc_slot_drop(flow->slot);
	flow->slot = NULL;
	flow->grant.coupled = false;
	ccc_shadow_stop(flow);
	/* It takes another as soon as there is one. */
	flow->changes = ccc_slot_changes() - 1;
}

bool
ccc_flow_has_slot(struct tcpcb *tp, struct ccc_flow *flow)
{
	if (flow->slot != NULL && !ccc_slot_is_live(flow->slot))
		ccc_flow_detach(tp, flow);
	return (flow->slot != NULL);
}

static bool
in_slow_start(const struct ccc_flow *flow)
{
	return ((flow->grant.flags & VIRTIO_CCC_L_SLOW_START) != 0);
}

/* True if the flow is coupled, with its granted window up to date. */
bool
ccc_flow_is_coupled(struct tcpcb *tp, struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	bool was_coupled = grant->coupled;
	uint32_t epoch = grant->epoch, packets;

	ccc_grant_read(tp, flow);
	if (!grant->coupled) {
		ccc_shadow_stop(flow);
		return (false);
	}
	if (ccc_shadow_awaits(flow))
		flow->grant.cwnd = ccc_apply_beta(grant->cwnd,
		    flow->shadow.beta);
	packets = tp->snd_cwnd / ccc_flow_mss(tp);
	if (grant->redivided) {
		flow->report.rtt_rounds = 0;
		flow->cwnd.shed = ccc_shed(packets, grant->cwnd);
		flow->cwnd.ramp = ccc_ramp(packets, grant->cwnd);
	} else if (grant->epoch != epoch) {
		flow->cwnd.shed = 0;
	}
	ccc_shadow_follow_epoch(&tp->t_ccv, flow, was_coupled);
	return (true);
}

/*
 * Keep TCP in the aggregate's phase: in congestion avoidance the window is above
 * the threshold for slow start.
 */
static void
set_cwnd(struct tcpcb *tp, const struct ccc_flow *flow, uint32_t packets)
{
	uint32_t most = TCP_MAXWIN << tp->snd_scale, mss = ccc_flow_mss(tp);
	uint64_t ssthresh = (uint64_t)flow->grant.ssthresh * mss;

	packets = ccc_cwnd_clamp(packets, max_t(uint32_t, most / mss, 1));
	tp->snd_cwnd = packets * mss;
	if (!in_slow_start(flow))
		ssthresh = min_t(uint64_t, ssthresh, tp->snd_cwnd - mss);
	tp->snd_ssthresh = min_t(uint64_t, ssthresh,
	    TCP_MAXWIN << TCP_MAX_WINSHIFT);
}

/* The window on the way to what is granted, with so many packets acknowledged. */
static uint32_t
next_cwnd(const struct tcpcb *tp, struct ccc_flow *flow, tcp_seq una,
    uint32_t acked)
{
	uint32_t mss = ccc_flow_mss(tp), before = tp->snd_cwnd / mss;
	uint32_t in_flight = (tp->snd_max - una + mss - 1) / mss;
	uint32_t granted = flow->grant.cwnd;
	struct ccc_cwnd *cwnd = &flow->cwnd;

	if (granted >= before)
		cwnd->shed = 0;
	cwnd->ramp = ccc_ramp_on(before, granted, cwnd->ramp);
	/* What is not in flight is given up at once. */
	if (cwnd->shed != 0)
		return (ccc_shed_cwnd(min_t(uint32_t, before,
		    in_flight + acked), granted, acked, cwnd->shed,
		    &cwnd->rest));
	in_flight = ccc_ramp_in_flight(before, in_flight, acked,
	    flow->report.cwnd_limited);
	return (ccc_ramp_cwnd(before, granted, in_flight, acked, cwnd->ramp,
	    &cwnd->rest));
}

/* Whole packets of the bytes that were acknowledged since the last were told. */
static uint32_t
acked_packets(struct ccc_cwnd *cwnd, uint32_t bytes, uint32_t mss)
{
	uint64_t all = (uint64_t)cwnd->acked_rest + bytes;

	cwnd->acked_rest = all % mss;
	return (min_t(uint64_t, all / mss, CCC_CWND_MAX));
}

/* Where what is to be sent ends. */
static tcp_seq
send_end(const struct tcpcb *tp)
{
	return (tp->snd_una + ccc_tcp_queued(tp));
}

/*
 * Whether the flow's window is its limit: it has more to send, and the receiver
 * would take it.
 */
static bool
is_limited(const struct tcpcb *tp)
{
	tcp_seq end = send_end(tp);
	uint32_t mss = ccc_flow_mss(tp);

	if (tp->snd_cwnd > tp->snd_wnd)
		return (false);
	return (SEQ_GT(end, tp->snd_max) ||
	    tp->snd_max - tp->snd_una + mss >= tp->snd_cwnd);
}

/* All data and the FIN are acknowledged: what follows is no sending any more. */
static bool
is_done(const struct tcpcb *tp, tcp_seq una)
{
	return ((tp->t_flags & TF_SENTFIN) != 0 && una == tp->snd_max);
}

static void
ack_with_slot(struct cc_var *ccv, struct ccc_flow *flow, ccc_ack_type_t type)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	tcp_seq una = ccc_flow_una(tp, ccv);
	tcp_seq end = send_end(tp);
	uint32_t bytes = type == CC_ACK ? max_t(int, ccv->bytes_this_ack, 0) : 0;
	uint32_t before = tp->snd_cwnd, growth;
	bool open;

	ccc_rtt_ack(tp, flow, una);
	ccc_recovery_ack(ccv, flow);
	open = !flow->recovery.in_recovery;
	flow->report.cwnd_limited = is_limited(tp);
	growth = ccc_shadow_grow(ccv, flow, type, flow->report.cwnd_limited);
	/* Counted after a timeout too, in case all flows have timed out. */
	ccc_report_acked(flow, bytes, growth,
	    open && flow->report.cwnd_limited);
	if (flow->grant.coupled && !flow->recovery.in_loss && open)
		tp->snd_cwnd = before;
	ccc_report_update(tp, flow, una, SEQ_GT(tp->snd_max, una) ||
	    SEQ_GT(end, tp->snd_max));
	if (!open || flow->recovery.in_loss || type != CC_ACK ||
	    !ccc_flow_is_coupled(tp, flow))
		return;
	ccc_shadow_follow_phase(ccv, flow);
	set_cwnd(tp, flow, next_cwnd(tp, flow, una, acked_packets(&flow->cwnd,
	    bytes, ccc_flow_mss(tp))));
	/* The next segment is sent with this ACK if there is one. */
	if (SEQ_GT(end, tp->snd_max))
		ccc_rtt_begin(tp, flow);
}

/* An ACK has come; in an epoch section. */
void
ccc_flow_ack(struct cc_var *ccv, struct ccc_flow *flow, ccc_ack_type_t type)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);

	ccc_recovery_acked(ccv, flow);
	if (!ccc_flow_has_slot(tp, flow) && type == CC_ACK &&
	    ccv->bytes_this_ack > 0)
		attach(tp, flow, is_limited(tp));
	if (flow->slot == NULL) {
		ccc_inner_ack(ccv, flow, type);
		return;
	}
	ack_with_slot(ccv, flow, type);
	if (is_done(tp, ccc_flow_una(tp, ccv))) {
		flow->done = true;
		ccc_flow_detach(tp, flow);
	}
}

/* It sends again after a pause: the aggregate has gone on without it. */
void
ccc_flow_after_idle(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);

	ccc_inner_after_idle(ccv, flow);
	if (!ccc_flow_has_slot(tp, flow))
		return;
	ccc_shadow_stop(flow);
	flow->rtt.timing = false;
	/* Who has a segment at the most uses no window to speak of. */
	flow->report.cwnd_limited = ccc_tcp_queued(tp) > ccc_flow_mss(tp);
	ccc_report_update(tp, flow, tp->snd_una, true);
}
