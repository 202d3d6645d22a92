// SPDX-License-Identifier: GPL-2.0
/*
 * What a flow tells the device: its slot of the report table, written under a
 * sequence count, and when the doorbell is due.
 *
 * A slot is written in the RCU section in which it was found to be live, see
 * ccc_flow_is_live(): after a grace period nobody writes to an extent that was
 * taken back, and it can be cleared and offered again.
 */
#include <linux/moduleparam.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/route.h>

#include "flow.h"

static unsigned int report_shift = 3;
module_param(report_shift, uint, 0644);
MODULE_PARM_DESC(report_shift,
		 "send a message per window >> this, 0 to 31 (default 3: 8 in an RTT)");

static u8 wire_state(const struct sock *sk, u8 ca_state)
{
	switch (ca_state) {
	case TCP_CA_CWR:
	case TCP_CA_Recovery:
		return VIRTIO_CCC_STATE_FR;
	case TCP_CA_Loss:
		return VIRTIO_CCC_STATE_LOSS;
	default:
		return tcp_in_slow_start(tcp_sk(sk)) ? VIRTIO_CCC_STATE_SS :
						       VIRTIO_CCC_STATE_CA;
	}
}

/* With or without the socket's lock. */
u16 ccc_report_priority(const struct sock *sk)
{
	u8 tos = READ_ONCE(inet_sk(sk)->tos);

	return ccc_priority(READ_ONCE(sk->sk_priority), rt_tos2priority(tos));
}

static u32 wire_ssthresh(const struct tcp_sock *tp)
{
	if (tp->snd_ssthresh >= TCP_INFINITE_SSTHRESH)
		return VIRTIO_CCC_SSTHRESH_UNSET;
	return ccc_bytes(tp->snd_ssthresh, tp->mss_cache);
}

/* Odd while it is written; nobody else writes it, so it need not be kept. */
static void step_seq(struct virtio_ccc_report *wire)
{
	WRITE_ONCE(wire->seq, cpu_to_le32(le32_to_cpu(wire->seq) + 1));
}

static void write_hot(const struct sock *sk, struct ccc_flow *flow)
{
	const struct ccc_recovery *recovery = &flow->recovery;
	struct virtio_ccc_report *wire = flow->slot->report;
	const struct ccc_report *report = &flow->report;
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 min_rtt = tcp_min_rtt(tp);
	u32 mss = tp->mss_cache;

	wire->state = report->state;
	wire->flags = (report->active ? VIRTIO_CCC_R_ACTIVE : 0) |
		      (report->cwnd_limited ? VIRTIO_CCC_R_CWND_LIMITED : 0) |
		      (report->opening ? VIRTIO_CCC_R_OPENING : 0);
	wire->priority = cpu_to_le16(report->priority);
	wire->acked_limited_bytes = cpu_to_le64(report->acked_limited_bytes);
	wire->delivered_bytes = cpu_to_le64(report->delivered_bytes);
	wire->cwnd_growth_bytes = cpu_to_le32(report->cwnd_growth_bytes);
	wire->congestion_events = cpu_to_le16(recovery->congestion_events);
	wire->timeouts = cpu_to_le16(recovery->timeouts);
	wire->spurious_events = cpu_to_le16(recovery->spurious_events);
	wire->beta = cpu_to_le16(flow->shadow.beta);
	wire->congestion_epoch = cpu_to_le32(recovery->congestion_epoch);
	wire->cwnd_bytes = cpu_to_le32(ccc_bytes(tcp_snd_cwnd(tp), mss));
	wire->ssthresh_bytes = cpu_to_le32(wire_ssthresh(tp));
	wire->srtt_us = cpu_to_le32(report->srtt_us);
	wire->min_rtt_us = cpu_to_le32(min_rtt == ~0U ? 0 : min_rtt);
	wire->inflight_bytes = cpu_to_le32(ccc_bytes(
		max(tcp_packets_in_flight(tp), report->opening), mss));
	wire->mss_bytes = cpu_to_le16(min_t(u32, mss, U16_MAX));
	wire->rtt_sample = cpu_to_le16(
		report->rtt_us ? ccc_rtt_sample(report->rtt_us) : 0);
}

static void write_addresses(const struct sock *sk,
			    struct virtio_ccc_report *wire)
{
	const struct inet_sock *inet = inet_sk(sk);

	wire->sport = cpu_to_le16(ntohs(inet->inet_sport));
	wire->dport = cpu_to_le16(ntohs(inet->inet_dport));
	memset(wire->saddr, 0, sizeof(wire->saddr));
	memset(wire->daddr, 0, sizeof(wire->daddr));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		wire->family = 6;
		memcpy(wire->saddr, &inet6_sk(sk)->saddr, 16);
		memcpy(wire->daddr, &sk->sk_v6_daddr, 16);
		return;
	}
#endif
	wire->family = 4;
	memcpy(wire->saddr, &inet->inet_saddr, 4);
	memcpy(wire->daddr, &inet->inet_daddr, 4);
}

static void write_cold(const struct sock *sk, const struct ccc_flow *flow)
{
	const struct ccc_slot *slot = flow->slot;
	struct virtio_ccc_report *wire = slot->report;

	wire->generation = cpu_to_le32(slot->generation);
	write_addresses(sk, wire);
	memcpy(wire->algorithm, flow->inner->name,
	       min(sizeof(wire->algorithm), sizeof(flow->inner->name)));
}

/* Bring the flow's own numbers up to date. */
static void update(const struct sock *sk, struct ccc_report *report, u8 state,
		   bool active)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	report->delivered_bytes +=
		(u64)ccc_delivered_packets(tp->delivered,
					   report->tcp_delivered) *
		tp->mss_cache;
	report->tcp_delivered = tp->delivered;
	report->priority = ccc_report_priority(sk);
	WRITE_ONCE(report->updated, tcp_jiffies32);
	WRITE_ONCE(report->active, active);
	WRITE_ONCE(report->state, state);
}

static struct ccc_signals signals_of(const struct ccc_flow *flow)
{
	return (struct ccc_signals) {
		.congestion_events = flow->recovery.congestion_events,
		.timeouts = flow->recovery.timeouts,
		.spurious_events = flow->recovery.spurious_events,
		.priority = flow->report.priority,
		.state = flow->report.state,
		.active = flow->report.active,
	};
}

bool ccc_report_is_told(const struct ccc_flow *flow)
{
	const struct ccc_signals *told = &flow->report.last_notified.signals;

	return !flow->report.at_once && flow->report.state == told->state &&
	       flow->report.active == told->active &&
	       flow->report.priority == told->priority &&
	       flow->recovery.congestion_events == told->congestion_events &&
	       flow->recovery.timeouts == told->timeouts &&
	       flow->recovery.spurious_events == told->spurious_events;
}

/* Enough is acknowledged that was not told. */
static bool has_progressed(const struct tcp_sock *tp,
			   const struct ccc_report *report)
{
	return ccc_report_due(report->delivered_bytes -
				      report->last_notified.delivered_bytes,
			      report->cwnd_growth_bytes -
				      report->last_notified.cwnd_growth_bytes,
			      tcp_snd_cwnd(tp), tp->mss_cache,
			      READ_ONCE(report_shift));
}

/* The device is told of all that is in the report. */
static void note_notified(struct ccc_flow *flow, u64 now_us)
{
	struct ccc_report *report = &flow->report;

	report->last_notified.delivered_bytes = report->delivered_bytes;
	report->last_notified.cwnd_growth_bytes = report->cwnd_growth_bytes;
	report->last_notified.signals = signals_of(flow);
	report->last_notified.at_us = now_us;
	report->at_once = false;
	report->rtt_us = 0;
}

/* What the average is of. */
static u32 rtt_now(const struct tcp_sock *tp, struct ccc_flow *flow,
		   u64 delivered, u32 cwnd, u64 now_us)
{
	struct ccc_report *report = &flow->report;
	u64 elapsed_us = now_us - report->averaged_us;
	u32 srtt_us = tp->srtt_us >> 3;

	/*
	 * A window that is not the limit has places that nobody holds, until the
	 * report in which it is.  So has less than two segments: whose pause is
	 * longer or shorter than what is granted asks for would seem nearer or
	 * farther, and be granted so.
	 */
	if (!report->cwnd_limited || flow->cwnd.spread) {
		report->averaged_us = 0;
		return srtt_us;
	}
	if (delivered)
		report->averaged_us = now_us;
	return ccc_rtt_held(srtt_us, elapsed_us, delivered, cwnd,
			    report->rtt_rounds);
}

/* Shares by rate count it: device and driver must use the same. */
static void average_rtt(const struct tcp_sock *tp, struct ccc_flow *flow,
			u64 now_us)
{
	struct ccc_report *report = &flow->report;
	u32 cwnd = ccc_bytes(tcp_snd_cwnd(tp), tp->mss_cache);
	u64 delivered = report->delivered_bytes -
			report->last_notified.delivered_bytes;
	u32 rtt_us, part;

	/* It has two segments for a part of the time. */
	if (flow->cwnd.spread)
		cwnd = min_t(u64, cwnd, flow->grant.cwnd_bytes);
	rtt_us = rtt_now(tp, flow, delivered, cwnd, now_us);
	part = ccc_rtt_part(delivered, cwnd);
	report->rtt_rounds = ccc_rtt_rounds(report->rtt_rounds, part);
	report->srtt_us = ccc_rtt_average(report->srtt_us, rtt_us, part,
					  report->rtt_rounds,
					  &report->srtt_rest);
}

/*
 * Write the slot, and have the device look at it.  Only then: counters add up, so
 * it misses nothing but what it will be told of.
 */
static void publish(const struct sock *sk, struct ccc_flow *flow, u16 op,
		    u64 now_us)
{
	const struct ccc_slot *slot = flow->slot;

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "slot may have been withdrawn");
	step_seq(slot->report);
	virt_wmb();	/* odd before the first change */
	if (op == VIRTIO_CCC_OP_REGISTER)
		write_cold(sk, flow);
	write_hot(sk, flow);
	virt_wmb();	/* the last change before even */
	step_seq(slot->report);
	note_notified(flow, now_us);
	ccc_doorbell_send(slot->dev, op, slot->index, slot->generation);
}

/* What is not to be told costs no look at the clock. */
static void report_as(const struct sock *sk, struct ccc_flow *flow, u8 ca_state,
		      bool active)
{
	struct ccc_report *report = &flow->report;
	const struct tcp_sock *tp = tcp_sk(sk);
	bool news;
	u64 now_us;

	update(sk, report, wire_state(sk, ca_state), active);
	news = !ccc_report_is_told(flow);
	if (!news && !has_progressed(tp, report))
		return;
	now_us = tcp_clock_us();
	if (!news && ccc_report_too_soon(now_us - report->last_notified.at_us,
					 flow->grant.report_interval_us))
		return;
	average_rtt(tp, flow, now_us);
	publish(sk, flow, VIRTIO_CCC_OP_UPDATE, now_us);
}

bool ccc_report_is_steady(const struct ccc_flow *flow)
{
	return flow->report.state == VIRTIO_CCC_STATE_CA && flow->report.active;
}

/* What TCP will have counted as delivered when there is a message's worth. */
u32 ccc_report_due_at(const struct tcp_sock *tp, const struct ccc_flow *flow)
{
	const struct ccc_report *report = &flow->report;
	u64 told = report->delivered_bytes -
		   report->last_notified.delivered_bytes;
	u32 shift = min(READ_ONCE(report_shift), 31u);
	u32 bytes = ccc_bytes(tcp_snd_cwnd(tp), tp->mss_cache) >> shift;

	if (told >= bytes)
		return report->tcp_delivered;
	return report->tcp_delivered +
	       DIV_ROUND_UP(bytes - (u32)told, max_t(u32, tp->mss_cache, 1));
}

bool ccc_report_is_early(const struct tcp_sock *tp, const struct ccc_flow *flow)
{
	return ccc_report_too_soon(tp->tcp_mstamp -
					   flow->report.last_notified.at_us,
				   flow->grant.report_interval_us);
}

/* There is a message's worth, of a flow in congestion avoidance. */
void ccc_report_now(const struct sock *sk, struct ccc_flow *flow)
{
	u64 now_us = tcp_sk(sk)->tcp_mstamp;

	update(sk, &flow->report, VIRTIO_CCC_STATE_CA, true);
	average_rtt(tcp_sk(sk), flow, now_us);
	publish(sk, flow, VIRTIO_CCC_OP_UPDATE, now_us);
}

/* The flow is, or will be, in @ca_state. */
void ccc_report_update(const struct sock *sk, struct ccc_flow *flow,
		       u8 ca_state)
{
	bool has_data = tcp_sk(sk)->packets_out || !tcp_write_queue_empty(sk);

	report_as(sk, flow, ca_state, has_data);
}

/* It sends again. */
void ccc_report_resume(const struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->report.active)
		ccc_opening_begin(sk, flow);
	report_as(sk, flow, inet_csk(sk)->icsk_ca_state, true);
}

/*
 * A flow that has nothing to send, or a part of a segment that Nagle holds back, does
 * not use a larger window.
 */
void ccc_report_end_of_data(const struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (tp->write_seq - tp->snd_nxt >= tp->mss_cache)
		return;
	flow->report.cwnd_limited = false;
	flow->report.opening = 0;
}

/* An ACK, and the packets by which the inner algorithm grew; see shadow.c. */
void ccc_report_acked(const struct sock *sk, struct ccc_flow *flow, u32 acked,
		      u32 growth, bool cwnd_limited)
{
	struct ccc_report *report = &flow->report;
	u32 mss = tcp_sk(sk)->mss_cache;

	report->cwnd_limited = cwnd_limited;
	ccc_report_end_of_data(sk, flow);
	ccc_opening_acked(sk, flow);
	report->cwnd_growth_bytes += growth * mss;
	/* Counted after a timeout too, in case all flows have timed out. */
	if (cwnd_limited)
		report->acked_limited_bytes += (u64)acked * mss;
}

/* It wants more than it did, of which the next report tells at once. */
void ccc_report_wake(struct ccc_flow *flow)
{
	flow->report.cwnd_limited = true;
	flow->report.opening = 0;
	flow->report.at_once = true;
}

/* ACKs that were limited by the window, and not counted then. */
void ccc_report_quiet(struct ccc_flow *flow, u32 acked)
{
	flow->report.acked_limited_bytes += (u64)acked * flow->grant.mss;
}

void ccc_report_rtt(struct ccc_flow *flow, s32 rtt_us)
{
	if (rtt_us > 0)
		flow->report.rtt_us =
			min_not_zero(flow->report.rtt_us, (u32)rtt_us);
}

/* With another window the flow has another RTT. */
void ccc_report_restart_rtt(struct ccc_flow *flow)
{
	flow->report.rtt_rounds = 0;
}

/* A new flow's: it has data to send. */
void ccc_report_first(const struct sock *sk, struct ccc_flow *flow)
{
	struct ccc_report *report = &flow->report;

	ccc_opening_begin(sk, flow);
	report->tcp_delivered = tcp_sk(sk)->delivered;
	report->srtt_us = tcp_sk(sk)->srtt_us >> 3;
	update(sk, report, wire_state(sk, inet_csk(sk)->icsk_ca_state), true);
	publish(sk, flow, VIRTIO_CCC_OP_REGISTER, tcp_clock_us());
}

void ccc_report_last(const struct sock *sk, struct ccc_flow *flow)
{
	update(sk, &flow->report, VIRTIO_CCC_STATE_FREE, false);
	publish(sk, flow, VIRTIO_CCC_OP_LEAVE, tcp_clock_us());
}
