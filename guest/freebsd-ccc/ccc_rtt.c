/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Round-trip times in microseconds.  TCP's own are counted in ticks, which are
 * 10 ms where a virtual machine has 100 in a second.
 */
#include "ccc_flow.h"

static void
sample(struct ccc_flow *flow, uint32_t rtt_us)
{
	struct ccc_rtt *rtt = &flow->rtt;
	uint16_t wire;

	rtt_us = max_t(uint32_t, rtt_us, 1);
	wire = ccc_rtt_sample(rtt_us);
	if (flow->report.rtt_sample == 0 || wire < flow->report.rtt_sample)
		flow->report.rtt_sample = wire;
	if (rtt->min_us == 0 || rtt_us < rtt->min_us)
		rtt->min_us = rtt_us;
	if (rtt->srtt_us == 0)
		rtt->srtt_us = rtt_us;
	else
		rtt->srtt_us += ((int64_t)rtt_us - rtt->srtt_us) / 8;
}

/*
 * A flow that its window limits sends its next segment with the ACK that makes
 * room for it, and another ACK tells of that segment a round trip later.
 */
void
ccc_rtt_ack(const struct tcpcb *tp, struct ccc_flow *flow, tcp_seq ack)
{
	struct ccc_rtt *rtt = &flow->rtt;

	if (rtt->timing && SEQ_GT(ack, rtt->seq)) {
		sample(flow, min_t(uint64_t, ccc_now_us() - rtt->sent_us,
		    INT32_MAX));
		rtt->timing = false;
	}
	/* What was sent again has two times (Karn). */
	if (IN_RECOVERY(tp->t_flags) || flow->recovery.in_loss)
		rtt->timing = false;
}

void
ccc_rtt_begin(const struct tcpcb *tp, struct ccc_flow *flow)
{
	struct ccc_rtt *rtt = &flow->rtt;

	if (rtt->timing || !flow->report.cwnd_limited ||
	    IN_RECOVERY(tp->t_flags) || flow->recovery.in_loss)
		return;
	rtt->seq = tp->snd_max;
	rtt->sent_us = ccc_now_us();
	rtt->timing = true;
}

uint32_t
ccc_rtt_smoothed(const struct tcpcb *tp, const struct ccc_flow *flow)
{
	if (flow->rtt.srtt_us != 0)
		return (flow->rtt.srtt_us);
	return (((uint64_t)tp->t_srtt * tick) >> TCP_RTT_SHIFT);
}
