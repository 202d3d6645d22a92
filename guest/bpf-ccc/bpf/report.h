/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a flow tells the device: its slot of the report table, written under a
 * sequence count, and when a message is due.
 */
#ifndef CCC_BPF_REPORT_H
#define CCC_BPF_REPORT_H

#include "grant.h"
#include "opening.h"

/* So long after a flow's message the loader looks for others by itself (serve.rs). */
#define CCC_POLLED_US		500000
/* A message per window >> this: 8 in a round trip. */
#define CCC_REPORT_SHIFT	3

static inline u8 wire_state(const struct sock *sk, u8 state)
{
	switch (state) {
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

/* The kernel's ip_tos2prio[]: best effort, bulk, interactive, both. */
static inline u32 tos_priority(u8 tos)
{
	const u32 priorities = 0x4620;

	return priorities >> ((tos & 0x18) >> 1) & 0xf;
}

static inline u16 report_priority(const struct sock *sk)
{
	return ccc_priority(sk->sk_priority, tos_priority(inet_sk(sk)->tos));
}

static inline void ccc_look(const struct sock *sk, struct ccc_tcp *tcp)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	tcp->now_us = tp->tcp_mstamp;
	tcp->cwnd = tp->snd_cwnd;
	tcp->ssthresh = tp->snd_ssthresh;
	tcp->mss = tp->mss_cache;
	tcp->srtt_us = tp->srtt_us >> 3;
	tcp->rtt_us = tp->rack.rtt_us;
	tcp->min_rtt_us = tp->rtt_min.s[0].v;
	tcp->in_flight = tcp_packets_in_flight(tp);
	tcp->delivered = tp->delivered;
	tcp->snd_una = tp->snd_una;
	tcp->snd_nxt = tp->snd_nxt;
	tcp->priority = report_priority(sk);
}

static inline u32 wire_ssthresh(const struct ccc_tcp *tcp)
{
	if (tcp->ssthresh >= TCP_INFINITE_SSTHRESH)
		return VIRTIO_CCC_SSTHRESH_UNSET;
	return ccc_bytes(tcp->ssthresh, tcp->mss);
}

static inline void write_hot(const struct ccc_flow *flow,
			     const struct ccc_tcp *tcp,
			     struct virtio_ccc_report *wire)
{
	const struct ccc_report *report = &flow->report;
	u32 min_rtt = tcp->min_rtt_us;
	u32 mss = tcp->mss;

	wire->state = report->now.state;
	wire->flags = (report->now.active ? VIRTIO_CCC_R_ACTIVE : 0) |
		      (report->cwnd_limited ? VIRTIO_CCC_R_CWND_LIMITED : 0) |
		      (report->opening ? VIRTIO_CCC_R_OPENING : 0);
	wire->priority = report->now.priority;
	wire->acked_limited_bytes = report->acked_limited_bytes;
	wire->delivered_bytes = report->delivered_bytes;
	wire->cwnd_growth_bytes = report->cwnd_growth_bytes;
	wire->congestion_events = report->now.congestion_events;
	wire->timeouts = report->now.timeouts;
	wire->spurious_events = report->now.spurious_events;
	wire->beta = flow->shadow.beta;
	wire->congestion_epoch = flow->recovery.congestion_epoch;
	wire->cwnd_bytes = ccc_bytes(tcp->cwnd, mss);
	wire->ssthresh_bytes = wire_ssthresh(tcp);
	wire->srtt_us = report->srtt_us;
	wire->min_rtt_us = min_rtt == ~0U ? 0 : min_rtt;
	wire->inflight_bytes =
		ccc_bytes(max_t(u32, tcp->in_flight, report->opening), mss);
	wire->mss_bytes = min_t(u32, mss, U16_MAX);
	wire->rtt_sample = report->rtt_us ? ccc_rtt_sample(report->rtt_us) : 0;
}

static inline void write_addresses(const struct sock *sk,
				   struct virtio_ccc_report *wire)
{
	const struct sock_common *common = &sk->__sk_common;
	const struct inet_sock *inet = inet_sk(sk);
	const u8 *v6;

	wire->sport = bpf_ntohs(inet->inet_sport);
	wire->dport = bpf_ntohs(common->skc_dport);
	__builtin_memset(wire->saddr, 0, sizeof(wire->saddr));
	__builtin_memset(wire->daddr, 0, sizeof(wire->daddr));
	wire->family = 4;
	if (bpf_core_field_exists(common->skc_v6_daddr) &&
	    common->skc_family == AF_INET6) {
		bpf_core_read(wire->saddr, 16, &common->skc_v6_rcv_saddr);
		bpf_core_read(wire->daddr, 16, &common->skc_v6_daddr);
		v6 = wire->daddr;
		if (*(u64 *)v6 || *(u32 *)(v6 + 8) != bpf_htonl(0xffff)) {
			wire->family = 6;
			return;
		}
		/* IPv4 in a socket of IPv6. */
		__builtin_memset(wire->saddr, 0, sizeof(wire->saddr));
		__builtin_memset(wire->daddr, 0, sizeof(wire->daddr));
	}
	*(u32 *)wire->saddr = inet->inet_saddr;
	*(u32 *)wire->daddr = common->skc_daddr;
}

/* Not static: clang-14 gives static data no place in its BTF. */
const char wire_cubic[16] = "cubic", wire_reno[16] = "reno";

static inline void write_cold(const struct sock *sk, const struct ccc_flow *flow,
			      struct virtio_ccc_report *wire)
{
	wire->generation = flow->generation;
	write_addresses(sk, wire);
	__builtin_memcpy(wire->algorithm, flow->cubic ? wire_cubic : wire_reno, 16);
}

/* Of a packet that was delivered; 0, which is none, is more than any. */
static inline void note_rtt(struct ccc_report *report, u32 rtt_us)
{
	if (rtt_us - 1 < report->rtt_us - 1)
		report->rtt_us = rtt_us;
}

/* Bring the flow's own numbers up to date. */
static inline void update(struct ccc_report *report, const struct ccc_tcp *tcp)
{
	u32 packets = ccc_delivered_packets(tcp->delivered,
					    report->tcp_delivered);

	report->delivered_bytes += (u64)packets * tcp->mss;
	report->tcp_delivered = tcp->delivered;
	if (packets)
		note_rtt(report, tcp->rtt_us);
	report->now.priority = tcp->priority;
	report->now.active = tcp->active;
	report->now.state = tcp->state;
}

static inline bool signals_differ(const struct ccc_signals *a,
				  const struct ccc_signals *b)
{
	const u64 *one = (const u64 *)a, *other = (const u64 *)b;

	return one[0] != other[0] || one[1] != other[1];
}

/*
 * Whether it is more than that the flow has or has no data: that may be so thousands
 * of times a second, and waits for the loader's next look.
 */
static inline bool has_happened(const struct ccc_signals *now,
				const struct ccc_signals *told)
{
	struct ccc_signals as_active = *told;

	as_active.active = now->active;
	return signals_differ(now, &as_active);
}

static inline bool is_due(const struct ccc_tcp *tcp,
			  const struct ccc_report *report, u32 interval_us)
{
	if (ccc_report_too_soon(tcp->now_us - report->notified_us, interval_us))
		return false;
	return ccc_report_due(report->delivered_bytes -
				      report->notified_delivered_bytes,
			      report->cwnd_growth_bytes -
				      report->notified_growth_bytes,
			      tcp->cwnd, tcp->mss, CCC_REPORT_SHIFT);
}

/* The device is told of all that is in the report. */
static inline void note_notified(struct ccc_report *report, u64 now_us)
{
	report->notified_us = now_us;
	report->notified_delivered_bytes = report->delivered_bytes;
	report->notified_growth_bytes = report->cwnd_growth_bytes;
	report->notified = report->now;
	report->at_once = 0;
	report->rtt_us = 0;
}

/* What the average is of. */
static inline u32 rtt_now(const struct ccc_tcp *tcp, struct ccc_report *report,
			  u64 delivered, u32 cwnd_bytes)
{
	u64 elapsed_us = tcp->now_us - report->averaged_us;

	/*
	 * A window that is not the limit has places that nobody holds, until the
	 * report in which it is.
	 */
	if (!report->cwnd_limited) {
		report->averaged_us = 0;
		return tcp->srtt_us;
	}
	if (delivered)
		report->averaged_us = tcp->now_us;
	return ccc_rtt_held(tcp->srtt_us, elapsed_us, delivered, cwnd_bytes,
			    report->rtt_rounds);
}

/* Shares by rate count it: device and driver must use the same. */
static inline void average_rtt(const struct ccc_tcp *tcp, struct ccc_flow *flow)
{
	struct ccc_report *report = &flow->report;
	u32 cwnd_bytes = ccc_bytes(tcp->cwnd, tcp->mss);
	u64 delivered = report->delivered_bytes -
			report->notified_delivered_bytes;
	u32 rtt_us, part;

	/* It has two segments for a part of the time. */
	if (flow->cwnd.spread_rate)
		cwnd_bytes = min_t(u64, cwnd_bytes, flow->grant.cwnd_bytes);
	rtt_us = rtt_now(tcp, report, delivered, cwnd_bytes);
	part = ccc_rtt_part(delivered, cwnd_bytes);
	report->rtt_rounds = ccc_rtt_rounds(report->rtt_rounds, part);
	report->srtt_us = ccc_rtt_average(report->srtt_us, rtt_us, part,
					  report->rtt_rounds,
					  &report->srtt_rest);
}

/*
 * Have the device look at the slot if @op says so or it is due: an update that is
 * asked for is known to be.  Only then it is written: counters tell all that was
 * since, and a device that begins anew has a window that is at most a message old.
 */
__weak int ccc_report(struct ccc_table *table, struct ccc_flow *flow,
		      const struct ccc_tcp *tcp, u32 op)
{
	struct virtio_ccc_report *wire;
	bool urgent, wakes;
	u32 seq;

	if (!table || !flow || !tcp)
		return 0;
	update(&flow->report, tcp);
	urgent = (op && op != VIRTIO_CCC_OP_UPDATE) || flow->report.at_once ||
		 signals_differ(&flow->report.now, &flow->report.notified);
	if (!op && (urgent || is_due(tcp, &flow->report,
				     flow->grant.report_interval_us)))
		op = VIRTIO_CCC_OP_UPDATE;
	if (!op)
		return 0;
	if (op == VIRTIO_CCC_OP_UPDATE)
		average_rtt(tcp, flow);
	wire = &table->report[ccc_slot_of(flow)];
	seq = wire->seq | 1;
	READ_FIELD(wire->seq) = seq;
	ccc_barrier();	/* odd before the first change */
	write_hot(flow, tcp, wire);
	ccc_barrier();	/* the last change before even */
	READ_FIELD(wire->seq) = seq + 1;
	wakes = urgent &&
		(tcp->now_us - flow->report.notified_us > CCC_POLLED_US ||
		 flow->report.at_once ||
		 has_happened(&flow->report.now, &flow->report.notified));
	note_notified(&flow->report, tcp->now_us);
	ccc_tell(table, op, flow->slot, flow->generation, wakes);
	return 0;
}

/* What is to be reported of a flow that is, or will be, in @state. */
static inline void ccc_look_as(const struct sock *sk, struct ccc_tcp *tcp,
			       u8 state)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	ccc_look(sk, tcp);
	tcp->state = wire_state(sk, state);
	tcp->active = tcp_has_sent(tp) || tcp_has_unsent(tp);
}

/* The flow is, or will be, in @state. */
static inline void ccc_report_update(const struct sock *sk,
				     struct ccc_table *table,
				     struct ccc_flow *flow, u8 state)
{
	struct ccc_tcp tcp = {};

	ccc_look_as(sk, &tcp, state);
	ccc_report(table, flow, &tcp, 0);
}

/* It sends again. */
static inline void ccc_report_resume(const struct sock *sk,
				     struct ccc_table *table,
				     struct ccc_flow *flow)
{
	struct ccc_tcp tcp = {};

	if (!flow->report.now.active)
		ccc_opening_begin(sk, flow);
	ccc_look_as(sk, &tcp, ca_state(sk));
	tcp.active = true;
	ccc_report(table, flow, &tcp, 0);
}

/* A flow that has nothing to send does not use a larger window. */
static inline void ccc_report_end_of_data(const struct sock *sk,
					  struct ccc_flow *flow)
{
	if (!tcp_has_unsent(tcp_sk(sk)))
		flow->report.cwnd_limited = 0;
}

/* An ACK, and the packets by which the inner algorithm grew; see shadow.h. */
static inline void ccc_report_acked(const struct sock *sk, struct ccc_flow *flow,
				    u32 acked, u32 growth, bool cwnd_limited)
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

/*
 * A new flow's: it has data to send.  Nobody reads the slot's cold half before the
 * hot half says that it is in use.
 */
static inline void ccc_report_first(const struct sock *sk,
				    struct ccc_table *table,
				    struct ccc_flow *flow)
{
	struct ccc_tcp tcp = {
		.state = wire_state(sk, ca_state(sk)),
		.active = true,
	};

	ccc_look(sk, &tcp);
	write_cold(sk, flow, &table->report[ccc_slot_of(flow)]);
	ccc_opening_begin(sk, flow);
	flow->report.tcp_delivered = tcp.delivered;
	flow->report.srtt_us = tcp.srtt_us;
	ccc_report(table, flow, &tcp, VIRTIO_CCC_OP_REGISTER);
}

static inline void ccc_report_last(const struct sock *sk,
				   struct ccc_table *table,
				   struct ccc_flow *flow)
{
	struct ccc_tcp tcp = { .state = VIRTIO_CCC_STATE_FREE };

	ccc_look(sk, &tcp);
	ccc_report(table, flow, &tcp, VIRTIO_CCC_OP_LEAVE);
}

#endif /* CCC_BPF_REPORT_H */
