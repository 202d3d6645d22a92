// SPDX-License-Identifier: GPL-2.0
/*
 * What a flow tells the device: its slot of the report table, written under a
 * sequence count, and when the doorbell is due.
 *
 * A slot is written only while it is the flow's and the device's, both in one
 * RCU section: after a grace period nobody writes to a chunk that was taken
 * back, and it can be cleared and lent again.
 */
#include <linux/moduleparam.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/route.h>

#include "flow.h"

static unsigned int report_shift = 3;
module_param(report_shift, uint, 0644);
MODULE_PARM_DESC(report_shift,
		 "ring the doorbell per window >> this (default 3: 8 in an RTT)");

u8 ccc_wire_state(const struct sock *sk, u8 ca_state)
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

bool ccc_has_data(const struct sock *sk)
{
	return tcp_sk(sk)->packets_out || !tcp_write_queue_empty(sk);
}

/* With or without the socket's lock. */
u16 ccc_priority_of(const struct sock *sk)
{
	u8 tos = READ_ONCE(inet_sk(sk)->tos);

	return ccc_priority(READ_ONCE(sk->sk_priority),
			    rt_tos2priority(tos));
}

static u32 ccc_wire_ssthresh(const struct tcp_sock *tp)
{
	if (tp->snd_ssthresh >= TCP_INFINITE_SSTHRESH)
		return VIRTIO_CCC_SSTHRESH_UNSET;
	return ccc_bytes(tp->snd_ssthresh, tp->mss_cache);
}

static void ccc_report_begin(struct ccc_slot *slot)
{
	WRITE_ONCE(slot->report->seq, cpu_to_le32(++slot->seq));
	virt_wmb();	/* odd before the first change */
}

static void ccc_report_end(struct ccc_slot *slot)
{
	virt_wmb();	/* the last change before even */
	WRITE_ONCE(slot->report->seq, cpu_to_le32(++slot->seq));
}

static void ccc_write_hot(const struct sock *sk, struct ccc_slot *slot)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct virtio_ccc_report *report = slot->report;
	u32 min_rtt = tcp_min_rtt(tp);
	u32 mss = tp->mss_cache;

	report->state = slot->state;
	report->flags = (slot->active ? VIRTIO_CCC_R_ACTIVE : 0) |
			(slot->limited ? VIRTIO_CCC_R_CWND_LIMITED : 0);
	report->priority = cpu_to_le16(slot->priority);
	report->acked_limited_bytes = cpu_to_le64(slot->acked);
	report->delivered_bytes = cpu_to_le64(slot->delivered);
	report->cwnd_growth_bytes = cpu_to_le32(slot->grown);
	report->congestion_events = cpu_to_le16(slot->events);
	report->timeouts = cpu_to_le16(slot->timeouts);
	report->spurious_events = cpu_to_le16(slot->undos);
	report->beta = cpu_to_le16(slot->beta);
	report->congestion_epoch = cpu_to_le32(slot->event_epoch);
	report->cwnd_bytes = cpu_to_le32(ccc_bytes(tcp_snd_cwnd(tp), mss));
	report->ssthresh_bytes = cpu_to_le32(ccc_wire_ssthresh(tp));
	report->srtt_us = cpu_to_le32(slot->srtt_us);
	report->min_rtt_us = cpu_to_le32(min_rtt == ~0U ? 0 : min_rtt);
	report->inflight_bytes =
		cpu_to_le32(ccc_bytes(tcp_packets_in_flight(tp), mss));
	report->mss_bytes = cpu_to_le16(min_t(u32, mss, U16_MAX));
	report->rtt_sample = cpu_to_le16(slot->rtt);
}

/* Bring the slot's own numbers up to date. */
static void ccc_update(const struct sock *sk, struct ccc_slot *slot, u8 state,
		       bool active)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	slot->delivered += (u64)ccc_delivered(tp->delivered,
					      slot->tcp_delivered) *
			   tp->mss_cache;
	slot->tcp_delivered = tp->delivered;
	slot->priority = ccc_priority_of(sk);
	WRITE_ONCE(slot->updated, tcp_jiffies32);
	WRITE_ONCE(slot->active, active);
	slot->state = state;
}

static bool ccc_is_due(const struct tcp_sock *tp, const struct ccc_slot *slot)
{
	const struct ccc_rung *rung = &slot->rung;

	if (slot->state != rung->state || slot->active != rung->active ||
	    slot->priority != rung->priority ||
	    slot->events != rung->events ||
	    slot->timeouts != rung->timeouts || slot->undos != rung->undos)
		return true;
	return ccc_report_due(slot->delivered - rung->delivered,
			      slot->grown - rung->grown, tcp_snd_cwnd(tp),
			      tp->mss_cache, READ_ONCE(report_shift));
}

static void ccc_announce(struct ccc_slot *slot, u16 op)
{
	struct ccc_rung *rung = &slot->rung;

	rung->delivered = slot->delivered;
	rung->grown = slot->grown;
	rung->events = slot->events;
	rung->timeouts = slot->timeouts;
	rung->undos = slot->undos;
	rung->priority = slot->priority;
	rung->state = slot->state;
	rung->active = slot->active;
	slot->rtt = 0;
	ccc_ring(slot, op);
}

/* Shares by rate count it: device and driver must use the same. */
static void ccc_average_rtt(const struct tcp_sock *tp, struct ccc_slot *slot)
{
	u32 cwnd = ccc_bytes(tcp_snd_cwnd(tp), tp->mss_cache);
	u64 delivered = slot->delivered - slot->rung.delivered;

	slot->slow_rounds = ccc_slow_rounds(slot->slow_rounds, delivered, cwnd);
	slot->slow_us = ccc_slow_rtt(slot->slow_us, tp->srtt_us >> 3, delivered,
				     cwnd, slot->slow_rounds);
	slot->srtt_us = ccc_steady_rtt(slot->srtt_us, slot->slow_us);
}

void ccc_report_as(const struct sock *sk, struct ccc_slot *slot, u8 state,
		   bool active)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	bool due;

	ccc_update(sk, slot, state, active);
	due = ccc_is_due(tp, slot);
	if (due)
		ccc_average_rtt(tp, slot);
	rcu_read_lock();
	if (ccc_slot_live(slot)) {
		ccc_report_begin(slot);
		ccc_write_hot(sk, slot);
		ccc_report_end(slot);
		if (due)
			ccc_announce(slot, VIRTIO_CCC_OP_UPDATE);
	}
	rcu_read_unlock();
}

void ccc_report(const struct sock *sk, struct ccc_slot *slot)
{
	u8 state = ccc_wire_state(sk, inet_csk(sk)->icsk_ca_state);

	ccc_report_as(sk, slot, state, ccc_has_data(sk));
}

static void ccc_write_addresses(const struct sock *sk,
				struct virtio_ccc_report *report)
{
	const struct inet_sock *inet = inet_sk(sk);

	report->sport = cpu_to_le16(ntohs(inet->inet_sport));
	report->dport = cpu_to_le16(ntohs(inet->inet_dport));
	memset(report->saddr, 0, sizeof(report->saddr));
	memset(report->daddr, 0, sizeof(report->daddr));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		report->family = 6;
		memcpy(report->saddr, &inet6_sk(sk)->saddr, 16);
		memcpy(report->daddr, &sk->sk_v6_daddr, 16);
		return;
	}
#endif
	report->family = 4;
	memcpy(report->saddr, &inet->inet_saddr, 4);
	memcpy(report->daddr, &inet->inet_daddr, 4);
}

static void ccc_write_cold(const struct sock *sk, struct ccc_slot *slot)
{
	struct virtio_ccc_report *report = slot->report;

	report->generation = cpu_to_le32(slot->generation);
	ccc_write_addresses(sk, report);
	memcpy(report->algorithm, ccc_inner_of(sk)->name,
	       min(sizeof(report->algorithm), sizeof(ccc_inner->name)));
}

/* A new flow's: it has data to send. */
void ccc_report_first(const struct sock *sk, struct ccc_slot *slot)
{
	u8 state = ccc_wire_state(sk, inet_csk(sk)->icsk_ca_state);

	slot->slow_us = tcp_sk(sk)->srtt_us >> 3;
	slot->slow_rounds = 0;
	slot->srtt_us = slot->slow_us;
	ccc_update(sk, slot, state, true);
	rcu_read_lock();
	if (ccc_slot_live(slot)) {
		ccc_report_begin(slot);
		ccc_write_cold(sk, slot);
		ccc_write_hot(sk, slot);
		ccc_report_end(slot);
		ccc_announce(slot, VIRTIO_CCC_OP_REGISTER);
	}
	rcu_read_unlock();
}

void ccc_report_last(const struct sock *sk, struct ccc_slot *slot)
{
	ccc_update(sk, slot, VIRTIO_CCC_STATE_FREE, false);
	rcu_read_lock();
	if (ccc_slot_live(slot)) {
		ccc_report_begin(slot);
		ccc_write_hot(sk, slot);
		ccc_report_end(slot);
		ccc_ring(slot, VIRTIO_CCC_OP_LEAVE);
	}
	rcu_read_unlock();
}
