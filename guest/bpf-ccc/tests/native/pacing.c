/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is sent at a rate: by a flow that joins, by one that has less than two
 * segments, and by one whose application has the say.
 */
#include "tests/native/tcp.h"

#define WAITS		SK_PACING_NEEDED
#define WAITS_NOT	SK_PACING_NONE
#define QUEUE_WAITS	SK_PACING_FQ
/* What TCP puts there before it sends. */
#define TCPS_OWN	123456u

/* That of so many bytes in a round trip. */
static u64 rate_of(u64 bytes)
{
	return bytes * 1000000 / RTT_US;
}

/* Nothing was sent for @us; then TCP's window is that of a new connection. */
static void come_back_after(u64 us)
{
	ack_all();
	wait_us(us);
	tcp.snd_cwnd = 10;
	send(10);
}

static void come_back(void)
{
	come_back_after(50000);
}

static void who_comes_back_takes_its_part_at_its_rate(void)
{
	couple();
	come_back();
	expect("window", tcp.snd_cwnd, WINDOW);
	expect("TCP's timer", sk->sk_pacing_status, WAITS);
	expect("rate", sk->sk_pacing_rate, rate_of(WINDOW * MSS));
	sk->sk_pacing_rate = TCPS_OWN;
	ops->min_tso_segs(sk);
	expect("rate of the next packets", sk->sk_pacing_rate,
	       rate_of(WINDOW * MSS));
	ack(2);
	expect("rate after an ACK", sk->sk_pacing_rate, rate_of(WINDOW * MSS));
}

static void it_takes_no_more_at_once_than_a_host_s_queues_hold(void)
{
	couple();
	grant(3 * CCC_JOIN_MAX, COUPLED, EPOCH + 1);
	come_back();
	expect("window", tcp.snd_cwnd, CCC_JOIN_MAX);
}

/* Whose window is the limit of what is sent, though TCP does not see it. */
static void what_is_acknowledged_meanwhile_is_of_its_window(void)
{
	u64 before;

	couple();
	come_back();
	before = flow()->report.acked_limited_bytes;
	tcp.is_cwnd_limited = 0;
	ack(2);
	expect("acknowledged bytes", flow()->report.acked_limited_bytes - before,
	       2 * MSS);
	expect("the window is the limit", flow()->report.cwnd_limited, true);
}

static void once_its_window_is_in_flight_acks_pace_it(void)
{
	couple();
	come_back();
	tcp.packets_out = WINDOW;
	ack(2);
	expect("window", tcp.snd_cwnd, WINDOW);
	expect("TCP's timer", sk->sk_pacing_status, WAITS_NOT);
	sk->sk_pacing_rate = TCPS_OWN;
	ops->min_tso_segs(sk);
	expect("rate", sk->sk_pacing_rate, TCPS_OWN);
}

static void a_window_that_is_not_used_is_given_up(void)
{
	couple();
	come_back();
	tcp.packets_out = 2;
	wait_us(CCC_PACED_RTTS * RTT_US);
	ack(2);
	expect_between("window", tcp.snd_cwnd, 10, 30);
	expect("TCP's timer", sk->sk_pacing_status, WAITS_NOT);
}

static void alone_nothing_is_paced(void)
{
	couple();
	come_back();
	lease_ends();
	ack(2);
	expect("TCP's timer", sk->sk_pacing_status, WAITS_NOT);
	sk->sk_pacing_rate = TCPS_OWN;
	ops->min_tso_segs(sk);
	expect("rate", sk->sk_pacing_rate, TCPS_OWN);
}

/* Until when TCP has counted on. */
static void what_waits_for_its_time_is_waited_for(void)
{
	couple();
	come_back();
	tcp.packets_out = WINDOW;
	tcp.tcp_wstamp_ns = (tcp.tcp_mstamp + RTT_US) * 1000;
	ack(2);
	expect("TCP's timer", sk->sk_pacing_status, WAITS);
	wait_us(2 * RTT_US);
	ack(2);
	expect("TCP's timer later", sk->sk_pacing_status, WAITS_NOT);
}

/* Also by one that has lost its slot meanwhile, and finds no other. */
static void without_a_slot_it_is_waited_for_no_longer(void)
{
	couple();
	come_back();
	tcp.packets_out = WINDOW;
	tcp.tcp_wstamp_ns = (tcp.tcp_mstamp + RTT_US) * 1000;
	table->control.id = 77;
	lease_ends();
	ack(2);
	expect("has a slot", has_slot(), false);
	expect("TCP's timer", sk->sk_pacing_status, WAITS);
	wait_us(2 * RTT_US);
	ack(2);
	expect("TCP's timer later", sk->sk_pacing_status, WAITS_NOT);
}

static void in_slow_start_nobody_is_waited_for(void)
{
	couple();
	grant(WINDOW, COUPLED | SLOW_START, EPOCH);
	come_back();
	expect("TCP's timer", sk->sk_pacing_status, WAITS_NOT);
}

static void more_for_the_flow_is_taken_at_its_rate(void)
{
	couple();
	grant(2 * WINDOW, COUPLED, EPOCH);
	ack(2);
	expect("window", tcp.snd_cwnd, 2 * WINDOW);
	expect("TCP's timer", sk->sk_pacing_status, WAITS);
	expect("rate", sk->sk_pacing_rate, rate_of(2 * WINDOW * MSS));
}

static void the_owner_s_rate_is_kept(void)
{
	couple();
	come_back();
	sk->sk_max_pacing_rate = 1000;
	ops->min_tso_segs(sk);
	expect("rate", sk->sk_pacing_rate, 1000);
	ops->release(sk);
	expect("TCP's timer once released", sk->sk_pacing_status, WAITS);
}

/* TCP waits already, and for nothing of ours. */
static void who_has_set_a_rate_is_not_paced(void)
{
	couple();
	sk->sk_pacing_status = WAITS;
	sk->sk_max_pacing_rate = 1000;
	come_back();
	sk->sk_pacing_rate = 500;
	ops->min_tso_segs(sk);
	expect("window", tcp.snd_cwnd, WINDOW);
	expect("rate", sk->sk_pacing_rate, 500);
}

static void a_queue_that_waits_is_given_the_rate(void)
{
	couple();
	sk->sk_pacing_status = QUEUE_WAITS;
	come_back();
	expect("who waits", sk->sk_pacing_status, QUEUE_WAITS);
	expect("rate", sk->sk_pacing_rate, rate_of(WINDOW * MSS));
	ops->release(sk);
	expect("who waits once released", sk->sk_pacing_status, QUEUE_WAITS);
}

static void less_than_two_segments_are_spread(void)
{
	couple();
	grant_bytes(MSS / 2, COUPLED, EPOCH + 1);
	tcp.packets_out = 2;
	for (int i = 0; i < 5; i++) {
		wait_us(RTT_US);
		ack(2);
	}
	sk->sk_pacing_rate = TCPS_OWN;
	ops->min_tso_segs(sk);
	expect("window", tcp.snd_cwnd, CCC_CWND_MIN);
	expect("TCP's timer", sk->sk_pacing_status, WAITS);
	expect_between("rate", sk->sk_pacing_rate, rate_of(MSS / 2) - 10,
		       rate_of(MSS / 2) + 10);
	grant(WINDOW, COUPLED, EPOCH + 2);
	tcp.packets_out = WINDOW;
	acks(WINDOW);
	expect("TCP's timer with more", sk->sk_pacing_status, WAITS_NOT);
}

static void who_leaps_is_paced(void)
{
	couple();
	tcp.snd_cwnd = tcp.packets_out = WINDOW / CCC_RAMP_MAX;
	ack(1);
	expect("TCP's timer of a part that ACKs release", sk->sk_pacing_status,
	       WAITS_NOT);
	tcp.snd_cwnd = tcp.packets_out = WINDOW / CCC_RAMP_MAX - 1;
	ack(1);
	expect("TCP's timer of more", sk->sk_pacing_status, WAITS);
}

static void what_an_application_writes_at_a_time_is_paced(void)
{
	couple();
	tcp.is_cwnd_limited = 0;
	tcp.max_packets_out = tcp.packets_out = WINDOW / 2;
	ack(2);
	expect("TCP's timer", sk->sk_pacing_status, WAITS);
}

/* Nothing was sent for a while; then a part of a segment leaves. */
static void come_back_with_a_header(void)
{
	ack_all();
	wait_us(50000);
	tcp.snd_cwnd = 10;
	tcp.is_cwnd_limited = 0;
	tcp.write_seq = tcp.snd_nxt + 200;
	ops->min_tso_segs(sk);
	ops->cwnd_event(sk, CA_EVENT_TX_START);
	tcp.packets_out = tcp.max_packets_out = 1;
	tcp.snd_nxt = tcp.write_seq;
}

static void a_segment_is_not_limited_by_the_window(void)
{
	couple();
	come_back_with_a_header();
	expect("the window is the limit", flow()->report.cwnd_limited, false);
	expect("has data", flow()->report.now.active, true);
	expect("paced", flow()->cwnd.paced, false);
}

static void what_follows_a_segment_joins_at_its_rate(void)
{
	u32 before;

	couple();
	come_back_with_a_header();
	before = messages;
	tcp.write_seq += 700;
	ops->min_tso_segs(sk);
	expect("messages of what fills a segment", messages - before, 0);
	tcp.write_seq += 20 * MSS;
	ops->min_tso_segs(sk);
	expect("messages of more", messages - before, 1);
	expect("wakes the loader", last_wakes(), true);
	expect("the window is the limit", flow()->report.cwnd_limited, false);
	expect("told that it has to send", report()->inflight_bytes, 21 * MSS);
	expect("paced", flow()->cwnd.paced, true);
	expect("rate", sk->sk_pacing_rate,
	       rate_of(CCC_OPENING_SPEED * 21 * MSS));
	ops->min_tso_segs(sk);
	expect("messages once it is told", messages - before, 1);
	tcp.write_seq += WINDOW * MSS;
	ops->min_tso_segs(sk);
	expect("messages of more than is granted", messages - before, 2);
	expect("the window is the limit then", flow()->report.cwnd_limited, true);
	expect("rate then", sk->sk_pacing_rate, rate_of(WINDOW * MSS));
}

/* Its ACKs tell from then on. */
static void what_follows_an_ack_does_not_join(void)
{
	u32 before;

	couple();
	come_back_with_a_header();
	ack(1);
	before = messages;
	tcp.write_seq += 20 * MSS;
	ops->min_tso_segs(sk);
	expect("messages", messages - before, 0);
	expect("paced", flow()->cwnd.paced, false);
}

/* Of the window that the aggregate has gone on without. */
static void a_long_pause_ends_the_shadow_window(void)
{
	static const struct {
		const char *name;
		u64 pause_us;
		u32 shadow;
	} pauses[] = {
		/* It has grown by what was acknowledged. */
		{ "shadow window after 100 ms", 100000, WINDOW / 2 + 1 },
		{ "shadow window after a second", 1000000, 100 },
	};

	for (size_t i = 0; i < 2; i++) {
		begin();
		couple();
		grant(100, COUPLED, EPOCH + 1);
		acks(1);
		come_back_after(pauses[i].pause_us);
		expect(pauses[i].name, flow()->shadow.cwnd, pauses[i].shadow);
	}
}

static const struct check checks[] = {
	CHECK(who_comes_back_takes_its_part_at_its_rate),
	CHECK(it_takes_no_more_at_once_than_a_host_s_queues_hold),
	CHECK(what_is_acknowledged_meanwhile_is_of_its_window),
	CHECK(once_its_window_is_in_flight_acks_pace_it),
	CHECK(a_window_that_is_not_used_is_given_up),
	CHECK(alone_nothing_is_paced),
	CHECK(what_waits_for_its_time_is_waited_for),
	CHECK(without_a_slot_it_is_waited_for_no_longer),
	CHECK(in_slow_start_nobody_is_waited_for),
	CHECK(more_for_the_flow_is_taken_at_its_rate),
	CHECK(the_owner_s_rate_is_kept),
	CHECK(who_has_set_a_rate_is_not_paced),
	CHECK(a_queue_that_waits_is_given_the_rate),
	CHECK(less_than_two_segments_are_spread),
	CHECK(who_leaps_is_paced),
	CHECK(what_an_application_writes_at_a_time_is_paced),
	CHECK(a_segment_is_not_limited_by_the_window),
	CHECK(what_follows_a_segment_joins_at_its_rate),
	CHECK(what_follows_an_ack_does_not_join),
	CHECK(a_long_pause_ends_the_shadow_window),
};

int main(void)
{
	return ALL_HOLD(checks);
}
