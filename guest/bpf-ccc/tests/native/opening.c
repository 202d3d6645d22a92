/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a flow says that it has to send, before its ACKs tell what it wants.
 */
#include "tests/native/tcp.h"

/* So many bytes are written, and @packets of them leave. */
static void write_bytes(u32 bytes, u32 packets)
{
	tcp.write_seq = tcp.snd_nxt + bytes;
	ops->min_tso_segs(sk);
	ops->cwnd_event(sk, CA_EVENT_TX_START);
	tcp.packets_out = tcp.max_packets_out = packets;
	tcp.snd_nxt += min_t(u32, packets * MSS, bytes);
}

/* Of a coupled flow that was idle. */
static void come_back_with(u32 bytes, u32 packets)
{
	ack_all();
	wait_us(50000);
	tcp.snd_cwnd = 10;
	tcp.is_cwnd_limited = 0;
	write_bytes(bytes, packets);
}

static void expect_opening(u32 bytes)
{
	expect("opening is told", report()->flags & VIRTIO_CCC_R_OPENING,
	       VIRTIO_CCC_R_OPENING);
	expect("limited is told", report()->flags & VIRTIO_CCC_R_CWND_LIMITED, 0);
	expect("what it has to send", report()->inflight_bytes, bytes);
}

static void expect_limited(void)
{
	expect("opening is told", report()->flags & VIRTIO_CCC_R_OPENING, 0);
	expect("limited is told", report()->flags & VIRTIO_CCC_R_CWND_LIMITED,
	       VIRTIO_CCC_R_CWND_LIMITED);
}

static void a_new_flow_tells_all_up_to_64_packets(void)
{
	write_bytes(64 * MSS - 10, 10);
	expect_opening(64 * MSS);
}

static void a_new_flow_with_more_is_limited(void)
{
	write_bytes(64 * MSS + 1, 10);
	expect_limited();
}

static void who_comes_back_tells_what_is_granted_at_the_most(void)
{
	couple();
	come_back_with(WINDOW * MSS, 10);
	expect_opening(WINDOW * MSS);
	couple();
	come_back_with(WINDOW * MSS + 1, 10);
	expect_limited();
}

/* Who has little to send has that then, too: the others' window grows for them. */
static void in_slow_start_it_tells_that_too(void)
{
	couple();
	grant(WINDOW, COUPLED | SLOW_START, EPOCH);
	ack(2);
	come_back_with(20 * MSS, 10);
	expect_opening(20 * MSS);
}

/* Of what it had to send some has left. */
static void who_takes_a_slot_later_does_not_open(void)
{
	sk->sk_dst_cache = NULL;
	write_bytes(20 * MSS, 10);
	expect("has a slot", has_slot(), false);
	sk->sk_dst_cache = &route;
	wait_us(2000000);
	tcp.snd_una += MSS;
	tcp.delivered++;
	ops->cong_avoid(sk, tcp.snd_una, 1);
	expect("has a slot once it has a route", has_slot(), true);
	expect("opening", flow()->report.opening, 0);
}

/* The device has not answered in time: that is no limit of what is granted. */
static void what_waits_for_a_grant_is_told_on(void)
{
	write_bytes(20 * MSS, 10);
	accept_flow();
	grant(WINDOW, COUPLED, EPOCH);
	tcp.snd_nxt += 2 * MSS;
	ack_event(2, 0);
	ops->cong_avoid(sk, tcp.snd_una, 2);
	expect("opening", flow()->report.opening, 18);
	expect("the window is the limit", flow()->report.cwnd_limited, false);
}

static void once_all_is_sent_acks_tell(void)
{
	couple();
	come_back_with(20 * MSS, 20);
	expect_opening(20 * MSS);
	ack_event(2, 0);
	ops->cong_avoid(sk, tcp.snd_una, 2);
	expect("opening", flow()->report.opening, 0);
	expect("the window is the limit", flow()->report.cwnd_limited, false);
}

static void what_nagle_holds_back_is_nothing_to_send(void)
{
	couple();
	come_back_with(20 * MSS + 100, 20);
	ack_event(2, 0);
	ops->cong_avoid(sk, tcp.snd_una, 2);
	expect("opening", flow()->report.opening, 0);
}

static void who_loses_a_packet_opens_no_more(void)
{
	couple();
	come_back_with(40 * MSS, 10);
	expect_opening(40 * MSS);
	lose_one();
	expect_limited();
	expect("opening", flow()->report.opening, 0);
}

/* That is not what it had when it began. */
static void who_sends_already_does_not_begin(void)
{
	couple();
	expect("what is outstanding", report()->inflight_bytes, WINDOW * MSS);
	ops->cwnd_event(sk, CA_EVENT_TX_START);
	expect("opening", flow()->report.opening, 0);
	expect("the window is the limit", flow()->report.cwnd_limited, true);
}

int main(void)
{
	static const struct check checks[] = {
		CHECK(a_new_flow_tells_all_up_to_64_packets),
		CHECK(a_new_flow_with_more_is_limited),
		CHECK(who_comes_back_tells_what_is_granted_at_the_most),
		CHECK(in_slow_start_it_tells_that_too),
		CHECK(who_takes_a_slot_later_does_not_open),
		CHECK(what_waits_for_a_grant_is_told_on),
		CHECK(once_all_is_sent_acks_tell),
		CHECK(what_nagle_holds_back_is_nothing_to_send),
		CHECK(who_loses_a_packet_opens_no_more),
		CHECK(who_sends_already_does_not_begin),
	};

	return ALL_HOLD(checks);
}
