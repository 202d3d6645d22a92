/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reports: what the device reads of a flow, and when it is told to look.
 */
#include "tests/native/tcp.h"

static void a_flow_registers_with_its_first_data(void)
{
	send(10);
	expect("messages", messages, 1);
	expect("operation", last_op(), VIRTIO_CCC_OP_REGISTER);
	expect("the loader is woken", last_wakes(), true);
	expect("generation of the message",
	       told[0].message.doorbell.generation, flow()->generation);
	expect("generation of the report", report()->generation,
	       flow()->generation);
	expect("sequence count is odd", report()->seq & 1, 0);
	expect("state", report()->state, VIRTIO_CCC_STATE_SS);
	expect("flags", report()->flags,
	       VIRTIO_CCC_R_ACTIVE | VIRTIO_CCC_R_CWND_LIMITED);
	expect("priority", report()->priority, VIRTIO_CCC_PRIORITY_ONE);
	expect("window", report()->cwnd_bytes, 10 * MSS);
	expect("threshold", report()->ssthresh_bytes, VIRTIO_CCC_SSTHRESH_UNSET);
	expect("segment", report()->mss_bytes, MSS);
	expect("average of the RTT", report()->srtt_us, RTT_US);
	expect("least RTT", report()->min_rtt_us, RTT_US);
	expect("the inner algorithm is another",
	       strcmp((const char *)report()->algorithm, "reno"), 0);
}

/* Of sockets of IPv4, of IPv6, and of IPv6 with a peer of IPv4. */
static void a_flow_says_whose_it_is(void)
{
	static const struct {
		const char *name;
		u16 family;
		u8 peer[16];
		u8 reported_family, reported[16];
	} sockets[] = {
		{ "IPv4", 2, { 0 }, 4, { 10, 0, 0, 1 } },
		{ "IPv6", AF_INET6, { 0xfd, [15] = 1 }, 6, { 0xfd, [15] = 1 } },
		{ "IPv4 in IPv6", AF_INET6, { [10] = 0xff, 0xff, 10, 0, 0, 1 },
		  4, { 10, 0, 0, 1 } },
	};

	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
		struct sock_common *common = &sk->__sk_common;

		begin();
		common->skc_family = sockets[i].family;
		common->skc_daddr = bpf_htonl(0x0a000001);
		memcpy(&common->skc_v6_daddr, sockets[i].peer, 16);
		common->skc_dport = bpf_ntohs(443);
		tcp.inet_conn.icsk_inet.inet_sport = bpf_ntohs(5000);
		send(10);
		check = sockets[i].name;
		expect("family", report()->family, sockets[i].reported_family);
		expect("the peer is another",
		       memcmp(report()->daddr, sockets[i].reported, 16) != 0,
		       false);
		expect("port", report()->sport, 5000);
		expect("the peer's port", report()->dport, 443);
	}
}

/* Eight messages in a round trip, which the loader reads when it next looks. */
static void progress_wakes_nobody(void)
{
	u32 before;

	couple();
	acks(WINDOW);
	before = messages;
	acks(WINDOW / 2);
	expect_between("messages in a round trip", messages - before, 7, 9);
	expect("operation", last_op(), VIRTIO_CCC_OP_UPDATE);
	expect("the loader is woken", last_wakes(), false);
}

static void messages_are_no_closer_than_the_device_says(void)
{
	u32 before;

	couple();
	line()->report_interval_us = 3 * RTT_US;
	line()->seq += 2;
	acks(WINDOW);
	before = messages;
	acks(2 * WINDOW);
	expect_between("messages in four round trips", messages - before, 1, 2);
}

static void what_is_delivered_is_counted(void)
{
	couple();
	acks(5 * WINDOW);
	expect_between("delivered bytes", report()->delivered_bytes,
		       9u * WINDOW * MSS, 11u * WINDOW * MSS);
	expect_between("of them while the window was the limit",
		       report()->acked_limited_bytes, 9u * WINDOW * MSS,
		       report()->delivered_bytes);
	expect("window", report()->cwnd_bytes, WINDOW * MSS);
	expect("threshold", report()->ssthresh_bytes, WINDOW * MSS);
	expect("state", report()->state, VIRTIO_CCC_STATE_CA);
}

static void what_an_application_limits_is_no_use_of_the_window(void)
{
	u64 before;

	couple();
	ack(2);
	tcp.is_cwnd_limited = 0;
	ack(2);
	before = flow()->report.acked_limited_bytes;
	acks(WINDOW);
	expect("acknowledged bytes while the window was the limit",
	       report()->acked_limited_bytes - before, 0);
	expect("flags", report()->flags, VIRTIO_CCC_R_ACTIVE);
}

/* Whose window is its inner algorithm's own. */
static void growth_is_what_the_inner_algorithm_grows_by(void)
{
	send(10);
	tcp.snd_ssthresh = 10;
	acks(60);
	expect_between("window", tcp.snd_cwnd, 15, 20);
	expect("growth", flow()->report.cwnd_growth_bytes,
	       (tcp.snd_cwnd - 10) * MSS);
}

static void coupled_it_grows_as_in_a_window_of_its_own(void)
{
	u32 before, shadow;

	couple();
	before = flow()->report.cwnd_growth_bytes;
	shadow = flow()->shadow.cwnd;
	acks(10 * WINDOW);
	ops->set_state(sk, TCP_CA_Open);
	expect_between("packets in 20 round trips", flow()->shadow.cwnd - shadow,
		       18, 21);
	expect("growth", flow()->report.cwnd_growth_bytes - before,
	       (flow()->shadow.cwnd - shadow) * MSS);
}

static void a_priority_is_told_at_once(void)
{
	couple();
	sk->sk_priority = 3;
	ack(2);
	expect("priority", report()->priority, 3 * VIRTIO_CCC_PRIORITY_ONE);
	expect("the loader is woken", last_wakes(), true);
}

/* The loader is woken for it where it may not be looking by itself any more. */
static void the_end_of_data_is_told_at_once(void)
{
	u32 before;

	couple();
	before = messages;
	ack_all();
	expect("messages", messages - before, 1);
	expect("flags", report()->flags, 0);
	expect("the loader is woken", last_wakes(), false);
	wait_us(2 * CCC_POLLED_US);
	send(10);
	expect("flags once it goes on", report()->flags,
	       VIRTIO_CCC_R_ACTIVE | VIRTIO_CCC_R_CWND_LIMITED);
	expect("the loader is woken then", last_wakes(), true);
}

static void each_state_is_told_at_once(void)
{
	static const struct {
		const char *name;
		u8 state, reported;
	} states[] = {
		{ "recovery", TCP_CA_Recovery, VIRTIO_CCC_STATE_FR },
		{ "reduction", TCP_CA_CWR, VIRTIO_CCC_STATE_FR },
		{ "timeout", TCP_CA_Loss, VIRTIO_CCC_STATE_LOSS },
	};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		begin();
		couple();
		check = states[i].name;
		enter(states[i].state);
		expect("state", report()->state, states[i].reported);
		expect("the loader is woken", last_wakes(), true);
		tcp.snd_cwnd = WINDOW;
		enter(TCP_CA_Open);
		expect("state once it is over", report()->state,
		       VIRTIO_CCC_STATE_CA);
		expect("the loader is woken then", last_wakes(), true);
	}
}

/* Where cong_avoid() does not run. */
static void recovery_reports_what_is_delivered(void)
{
	u64 before;

	couple();
	lose_one();
	before = report()->delivered_bytes;
	acks(WINDOW / 4);
	expect_between("delivered bytes", report()->delivered_bytes - before,
		       WINDOW / 4 * MSS, WINDOW / 2 * MSS);
}

static void messages_without_room_are_counted(void)
{
	couple();
	ring_is_full = true;
	sk->sk_priority = 3;
	ack(2);
	expect("lost messages", table->control.lost, 1);
}

static void no_report_is_read_that_is_being_written(void)
{
	couple();
	others = read_report;
	acks(WINDOW);
	lose_one();
	recover();
	acks(WINDOW);
	ops->release(sk);
	expect_between("reports that were read", reads, 10, 1000000);
	expect("of them while they were written", torn_reads, 0);
}

static const struct check checks[] = {
	CHECK(a_flow_registers_with_its_first_data),
	CHECK(a_flow_says_whose_it_is),
	CHECK(progress_wakes_nobody),
	CHECK(messages_are_no_closer_than_the_device_says),
	CHECK(what_is_delivered_is_counted),
	CHECK(what_an_application_limits_is_no_use_of_the_window),
	CHECK(growth_is_what_the_inner_algorithm_grows_by),
	CHECK(coupled_it_grows_as_in_a_window_of_its_own),
	CHECK(a_priority_is_told_at_once),
	CHECK(the_end_of_data_is_told_at_once),
	CHECK(each_state_is_told_at_once),
	CHECK(recovery_reports_what_is_delivered),
	CHECK(messages_without_room_are_counted),
	CHECK(no_report_is_read_that_is_being_written),
};

int main(void)
{
	return ALL_HOLD(checks);
}
