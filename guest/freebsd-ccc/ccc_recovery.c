/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion events: what is one, in which epoch its segment was sent, and what
 * the flow's own window does until the device has answered.  Recovery itself is
 * TCP's.
 */
#include "ccc_flow.h"

static void
count_event(struct ccc_flow *flow, uint32_t epoch)
{
	struct ccc_recovery *recovery = &flow->recovery;

	recovery->congestion_events++;
	recovery->congestion_epoch = epoch;
	recovery->undoable = true;
}

/*
 * The threshold after an event, in bytes: to where TCP is to take the window.
 * Only a segment of the present epoch will be charged, and only once.
 */
static uint32_t
threshold(struct cc_var *ccv, struct ccc_flow *flow, ccc_signal_t type,
    uint32_t epoch)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t mss = ccc_flow_mss(tp), granted = flow->grant.cwnd;
	uint32_t packets = max_t(uint32_t, tp->snd_cwnd / mss, CCC_CWND_MIN);

	flow->recovery.window = packets;
	if (epoch == flow->grant.epoch && !ccc_shadow_awaits(flow)) {
		ccc_shadow_charge(ccv, flow, type);
		granted = ccc_apply_beta(granted, flow->shadow.beta);
	}
	return (clamp_t(uint32_t, granted, CCC_CWND_MIN, packets) * mss);
}

/* The inner algorithm reduces the connection's own window, once for an event. */
static void
reduce_alone(struct cc_var *ccv, struct ccc_flow *flow, ccc_signal_t type,
    bool event)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t mss = ccc_flow_mss(tp), before = tp->snd_cwnd;

	ccc_inner_signal(ccv, flow, type);
	if (event)
		flow->shadow.beta = ccc_beta(tp->snd_ssthresh / mss,
		    before / mss, flow->shadow.beta);
}

static void
begin_recovery(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	bool event = !IN_RECOVERY(tp->t_flags);
	uint32_t epoch;

	if (!ccc_flow_is_coupled(tp, flow)) {
		epoch = ccc_grant_epoch_of(flow, tp->snd_una);
		reduce_alone(ccv, flow, CC_NDUPACK, event);
	} else {
		epoch = ccc_grant_epoch_of(flow, tp->snd_una);
		if (event)
			tp->snd_ssthresh = threshold(ccv, flow, CC_NDUPACK,
			    epoch);
		ENTER_RECOVERY(tp->t_flags);
	}
	if (event)
		count_event(flow, epoch);
}

/* A mark comes back with an ACK of what was sent a round trip ago. */
static void
mark(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);
	bool event = !IN_CONGRECOVERY(tp->t_flags);
	uint32_t epoch;

	if (!ccc_flow_is_coupled(tp, flow)) {
		epoch = ccc_grant_epoch_of(flow, tp->snd_una);
		reduce_alone(ccv, flow, CC_ECN, event);
	} else {
		epoch = ccc_grant_epoch_of(flow, tp->snd_una);
		if (event) {
			tp->snd_ssthresh = threshold(ccv, flow, CC_ECN, epoch);
			tp->snd_cwnd = tp->snd_ssthresh;
		}
		ENTER_CONGRECOVERY(tp->t_flags);
	}
	if (event)
		count_event(flow, epoch);
}

static void
begin_loss(const struct tcpcb *tp, struct ccc_recovery *recovery)
{
	recovery->in_loss = true;
	recovery->loss_end = tp->snd_max;
}

/*
 * The flow has a slot from now on.  After a timeout it goes on to work its way
 * up alone: who took its part at once would send that as one burst.
 */
void
ccc_recovery_first(struct ccc_flow *flow)
{
	flow->recovery = (struct ccc_recovery) {
	    .in_loss = flow->recovery.in_loss,
	    .loss_end = flow->recovery.loss_end };
}

/* A timeout is over when all that was out then is acknowledged. */
void
ccc_recovery_acked(const struct cc_var *ccv, struct ccc_flow *flow)
{
	struct ccc_recovery *recovery = &flow->recovery;

	if (recovery->in_loss && SEQ_GEQ(ccv->curack, recovery->loss_end))
		recovery->in_loss = false;
}

/* TCP has met congestion; the flow has no slot. */
void
ccc_recovery_signal_alone(struct cc_var *ccv, struct ccc_flow *flow,
    ccc_signal_t type)
{
	if (type == CC_RTO)
		begin_loss(ccc_tcpcb(ccv), &flow->recovery);
	else if (type == CC_RTO_ERR)
		flow->recovery.in_loss = false;
	ccc_inner_signal(ccv, flow, type);
}

/*
 * Recovery that ends in a timeout is reported already, and only counts as a
 * timeout; one that repeats before anything was acknowledged counts no more.
 * After it the flow works its way up alone, to its part of the aggregate.
 */
static void
time_out(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct ccc_recovery *recovery = &flow->recovery;
	struct tcpcb *tp = ccc_tcpcb(ccv);
	uint32_t mss = ccc_flow_mss(tp);
	bool coupled = ccc_flow_is_coupled(tp, flow);
	uint32_t before = max_t(uint32_t, tp->snd_cwnd / mss, CCC_CWND_MIN);
	uint32_t target = flow->grant.cwnd;

	if (!recovery->in_loss) {
		if (!recovery->in_recovery)
			count_event(flow, ccc_grant_epoch_of(flow, tp->snd_una));
		recovery->timeouts++;
	}
	flow->shadow.cwnd = 0;
	ccc_inner_signal(ccv, flow, CC_RTO);
	if (coupled && !recovery->in_loss) {
		if ((flow->grant.flags & VIRTIO_CCC_L_SLOW_START) != 0 &&
		    flow->grant.ssthresh != UINT32_MAX)
			target = max_t(uint32_t, target, flow->grant.ssthresh);
		tp->snd_ssthresh = clamp_t(uint32_t, target, CCC_CWND_MIN,
		    before) * mss;
	}
	recovery->in_recovery = false;
	begin_loss(tp, recovery);
}

/* The timeout was none: TCP has put the window back. */
static void
undo(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct ccc_recovery *recovery = &flow->recovery;

	ccc_inner_signal(ccv, flow, CC_RTO_ERR);
	recovery->in_loss = false;
	if (!recovery->undoable)
		return;
	recovery->undoable = false;
	recovery->spurious_events++;
}

/* TCP has met congestion; the flow has a slot. */
void
ccc_recovery_signal(struct cc_var *ccv, struct ccc_flow *flow,
    ccc_signal_t type)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);

	switch (type) {
	case CC_NDUPACK:
		begin_recovery(ccv, flow);
		break;
	case CC_ECN:
		mark(ccv, flow);
		break;
	case CC_RTO:
		time_out(ccv, flow);
		break;
	case CC_RTO_ERR:
		undo(ccv, flow);
		break;
	default:
		ccc_inner_signal(ccv, flow, type);
	}
	flow->recovery.in_recovery = IN_RECOVERY(tp->t_flags);
	flow->rtt.timing = false;
	ccc_report_update(tp, flow, tp->snd_una, true);
}

/*
 * An ACK while TCP reduces: the device may have answered the event.  The window
 * is what recovery lets out just now, so what it was at the event is the bound.
 */
void
ccc_recovery_ack(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct ccc_recovery *recovery = &flow->recovery;
	struct tcpcb *tp = ccc_tcpcb(ccv);

	recovery->in_recovery = IN_RECOVERY(tp->t_flags);
	if (!recovery->in_recovery || !flow->shadow.charged)
		return;
	if (ccc_flow_is_coupled(tp, flow) && !flow->shadow.charged)
		tp->snd_ssthresh = clamp_t(uint32_t, flow->grant.cwnd,
		    CCC_CWND_MIN, recovery->window) * ccc_flow_mss(tp);
}

/* TCP leaves recovery: by the kernel's way, which sends no burst. */
void
ccc_recovery_end(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct tcpcb *tp = ccc_tcpcb(ccv);

	flow->recovery.in_recovery = false;
	if (!ccc_flow_is_coupled(tp, flow)) {
		ccc_inner_post_recovery(ccv, flow);
		return;
	}
	ccc_shadow_post_recovery(ccv, flow);
	newreno_cc_post_recovery(ccv);
}
