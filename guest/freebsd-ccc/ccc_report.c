/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a flow tells the device: its slot of the report table, written under a
 * sequence count, and when a message is due.
 *
 * A slot is written in the epoch section in which it was found to be live, see
 * ccc_slot_is_live().
 */
#include "ccc_flow.h"

static uint8_t
wire_state(const struct tcpcb *tp, const struct ccc_flow *flow)
{
	if (flow->recovery.in_recovery)
		return (VIRTIO_CCC_STATE_FR);
	if (flow->recovery.in_loss)
		return (VIRTIO_CCC_STATE_LOSS);
	return (tp->snd_cwnd <= tp->snd_ssthresh ? VIRTIO_CCC_STATE_SS :
	    VIRTIO_CCC_STATE_CA);
}

static uint32_t
wire_ssthresh(const struct tcpcb *tp)
{
	if (tp->snd_ssthresh >= TCP_MAXWIN << TCP_MAX_WINSHIFT)
		return (VIRTIO_CCC_SSTHRESH_UNSET);
	return (tp->snd_ssthresh);
}

/* Odd while it is written; nobody else writes it. */
static void
step_seq(struct virtio_ccc_report *wire)
{
	atomic_store_32(&wire->seq, htole32(le32toh(wire->seq) + 1));
}

static void
write_hot(const struct tcpcb *tp, const struct ccc_flow *flow, tcp_seq una)
{
	const struct ccc_recovery *recovery = &flow->recovery;
	struct virtio_ccc_report *wire = flow->slot->report;
	const struct ccc_report *report = &flow->report;

	wire->state = report->state;
	wire->flags = (report->active ? VIRTIO_CCC_R_ACTIVE : 0) |
	    (report->cwnd_limited ? VIRTIO_CCC_R_CWND_LIMITED : 0);
	wire->priority = htole16(flow->priority);
	wire->acked_limited_bytes = htole64(report->acked_limited_bytes);
	wire->delivered_bytes = htole64(report->delivered_bytes);
	wire->cwnd_growth_bytes = htole32(report->cwnd_growth_bytes);
	wire->congestion_events = htole16(recovery->congestion_events);
	wire->timeouts = htole16(recovery->timeouts);
	wire->spurious_events = htole16(recovery->spurious_events);
	wire->beta = htole16(flow->shadow.beta);
	wire->congestion_epoch = htole32(recovery->congestion_epoch);
	wire->cwnd_bytes = htole32(tp->snd_cwnd);
	wire->ssthresh_bytes = htole32(wire_ssthresh(tp));
	wire->srtt_us = htole32(report->srtt_us);
	wire->min_rtt_us = htole32(flow->rtt.min_us);
	wire->inflight_bytes = htole32(tp->snd_max - una);
	wire->mss_bytes = htole16(min_t(uint32_t, ccc_flow_mss(tp), UINT16_MAX));
	wire->rtt_sample = htole16(report->rtt_sample);
}

static void
write_cold(const struct tcpcb *tp, const struct ccc_flow *flow)
{
	struct virtio_ccc_report *wire = flow->slot->report;

	wire->generation = htole32(flow->slot->generation);
	ccc_tcp_addresses(tp, wire);
	strncpy((char *)wire->algorithm, ccc_inner_name(flow),
	    sizeof(wire->algorithm));
}

static struct ccc_signals
signals_of(const struct ccc_flow *flow)
{
	return ((struct ccc_signals) {
		.congestion_events = flow->recovery.congestion_events,
		.timeouts = flow->recovery.timeouts,
		.spurious_events = flow->recovery.spurious_events,
		.priority = flow->priority,
		.state = flow->report.state,
		.active = flow->report.active,
	});
}

static bool
is_due(const struct tcpcb *tp, const struct ccc_flow *flow)
{
	const struct ccc_signals signals = signals_of(flow);
	const struct ccc_report *report = &flow->report;
	uint32_t mss = ccc_flow_mss(tp);

	if (memcmp(&signals, &report->last_notified.signals,
	    sizeof(signals)) != 0)
		return (true);
	if (ccc_report_too_soon(ccc_now_us() - report->last_notified.at_us,
	    flow->grant.report_interval_us))
		return (false);
	return (ccc_report_due(
	    report->delivered_bytes - report->last_notified.delivered_bytes,
	    report->cwnd_growth_bytes - report->last_notified.cwnd_growth_bytes,
	    tp->snd_cwnd / mss, mss, ccc_report_shift()));
}

/* The device is told of all that is in the report. */
static void
note_notified(struct ccc_flow *flow)
{
	struct ccc_report *report = &flow->report;

	report->last_notified.at_us = ccc_now_us();
	report->last_notified.delivered_bytes = report->delivered_bytes;
	report->last_notified.cwnd_growth_bytes = report->cwnd_growth_bytes;
	report->last_notified.signals = signals_of(flow);
	report->rtt_sample = 0;
}

/* Shares by rate count it: device and driver must use the same. */
static void
average_rtt(const struct tcpcb *tp, struct ccc_flow *flow)
{
	struct ccc_report *report = &flow->report;
	uint64_t delivered = report->delivered_bytes -
	    report->last_notified.delivered_bytes;
	uint32_t part = ccc_rtt_part(delivered, tp->snd_cwnd);

	report->rtt_rounds = ccc_rtt_rounds(report->rtt_rounds, part);
	report->srtt_us = ccc_rtt_average(report->srtt_us,
	    ccc_rtt_smoothed(tp, flow), part, report->rtt_rounds,
	    &report->srtt_rest);
}

/* Write the slot and, unless @op is 0, have the device look at it. */
static void
publish(const struct tcpcb *tp, struct ccc_flow *flow, tcp_seq una,
    uint16_t op)
{
	const struct ccc_slot *slot = flow->slot;

	step_seq(slot->report);
	atomic_thread_fence_rel();	/* odd before the first change */
	if (op == VIRTIO_CCC_OP_REGISTER)
		write_cold(tp, flow);
	write_hot(tp, flow, una);
	atomic_thread_fence_rel();	/* the last change before even */
	step_seq(slot->report);
	if (op != 0) {
		note_notified(flow);
		ccc_doorbell_send(slot->dev, op, slot->index, slot->generation);
	}
}

void
ccc_report_update(const struct tcpcb *tp, struct ccc_flow *flow, tcp_seq una,
    bool active)
{
	bool due;

	flow->report.active = active;
	flow->report.state = wire_state(tp, flow);
	due = is_due(tp, flow);
	if (due)
		average_rtt(tp, flow);
	publish(tp, flow, una, due ? VIRTIO_CCC_OP_UPDATE : 0);
}

/* An ACK outside recovery, and the bytes by which the inner algorithm grew. */
void
ccc_report_acked(struct ccc_flow *flow, uint32_t bytes, uint32_t growth_bytes,
    bool counts_limited)
{
	struct ccc_report *report = &flow->report;

	report->delivered_bytes += bytes;
	report->cwnd_growth_bytes += growth_bytes;
	if (counts_limited)
		report->acked_limited_bytes += bytes;
}

/* A new flow's. */
void
ccc_report_first(const struct tcpcb *tp, struct ccc_flow *flow)
{
	struct ccc_report *report = &flow->report;

	report->active = true;
	report->srtt_us = ccc_rtt_smoothed(tp, flow);
	report->state = wire_state(tp, flow);
	publish(tp, flow, tp->snd_una, VIRTIO_CCC_OP_REGISTER);
}

void
ccc_report_last(const struct tcpcb *tp, struct ccc_flow *flow)
{
	flow->report.active = false;
	flow->report.state = VIRTIO_CCC_STATE_FREE;
	publish(tp, flow, tp->snd_una, VIRTIO_CCC_OP_LEAVE);
}
