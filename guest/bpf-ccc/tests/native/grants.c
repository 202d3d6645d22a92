/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Grants: when one is in force, and what is read of it.
 */
#include "tests/native/tcp.h"

#define HALF	(WINDOW / 2)

static void what_is_granted_is_the_window(void)
{
	couple();
	expect("the flow is coupled", flow()->grant.coupled, true);
	expect("window", tcp.snd_cwnd, WINDOW);
	acks(5 * WINDOW);
	expect("window after five round trips", tcp.snd_cwnd, WINDOW);
}

static void a_grant_by_rate_counts_the_rtt(void)
{
	couple();
	grant(0, COUPLED | VIRTIO_CCC_L_RATE, EPOCH + 1);
	line()->level = level_of((u64)HALF * MSS) / RTT_US + 1;
	acks(WINDOW);
	expect("window", tcp.snd_cwnd, HALF);
}

static void a_window_is_no_more_than_tcp_s_limit(void)
{
	couple();
	tcp.snd_cwnd_clamp = 50;
	acks(WINDOW);
	expect("window", tcp.snd_cwnd, 50);
}

/* What ends a grant. */
static void the_lease_ends(void) { lease_ends(); }
static void the_extent_is_not_accepted(void) { table->status.status = 0; }
static void the_flow_is_refused(void) { table->grant[0].flags = 0; }
static void another_flow_is_accepted(void) { table->grant[0].generation++; }
static void the_line_does_not_exist(void) { table->grant[0].line = CCC_LINES; }
static void the_line_couples_nobody(void) { grant(HALF, 0, EPOCH); }
static void another_tenant_has_the_table(void) { table->control.id = 77; }

static void no_level_is_set(void)
{
	line()->seq += 2;
	line()->level = VIRTIO_CCC_LEVEL_UNSET;
}

static const struct check ends[] = {
	CHECK(the_lease_ends),
	CHECK(the_extent_is_not_accepted),
	CHECK(the_flow_is_refused),
	CHECK(another_flow_is_accepted),
	CHECK(the_line_does_not_exist),
	CHECK(the_line_couples_nobody),
	CHECK(another_tenant_has_the_table),
	CHECK(no_level_is_set),
};

static void without_a_grant_the_flow_is_as_the_inner_algorithm_has_it(void)
{
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		check = ends[i].name;
		begin();
		couple();
		ends[i].run();
		acks(5 * WINDOW);
		/* In which Reno grows by a packet each. */
		expect_between("window after ten round trips", tcp.snd_cwnd,
			       WINDOW + 8, WINDOW + 10);
		expect("the flow is coupled", has_slot() && flow()->grant.coupled,
		       false);
	}
}

static void without_a_table_the_flow_has_no_slot(void)
{
	couple();
	table->control.id = 77;
	ack(2);
	expect("it has a slot", has_slot(), false);
}

static void a_line_that_is_being_written_is_not_read(void)
{
	couple();
	grant(HALF, COUPLED, EPOCH + 1);
	line()->seq++;
	acks(WINDOW);
	expect("window", tcp.snd_cwnd, WINDOW);
	line()->seq++;
	acks(WINDOW);
	expect("window once it is written", tcp.snd_cwnd, HALF);
}

/* The device writes whenever it is waited for. */
static void write_once_more(void)
{
	line()->seq += 2;
}

static void a_line_that_changes_meanwhile_is_not_read(void)
{
	couple();
	grant(HALF, COUPLED, EPOCH + 1);
	others = write_once_more;
	acks(WINDOW);
	expect("window", tcp.snd_cwnd, WINDOW);
	others = NULL;
	acks(WINDOW);
	expect("window once it is written", tcp.snd_cwnd, HALF);
}

static void a_threshold_is_granted_with_the_window(void)
{
	couple();
	grant(WINDOW, COUPLED | SLOW_START, EPOCH);
	line()->ssthresh_level = level_of(300ull * MSS);
	ack(2);
	expect("threshold in slow start", tcp.snd_ssthresh, 300);
	grant(WINDOW, COUPLED, EPOCH);
	line()->ssthresh_level = level_of(300ull * MSS);
	ack(2);
	expect("threshold beyond it", tcp.snd_ssthresh, tcp.snd_cwnd);
}

static void slow_start_has_no_shadow_window(void)
{
	couple();
	expect("shadow window", flow()->shadow.cwnd, WINDOW);
	grant(WINDOW, COUPLED | SLOW_START, EPOCH);
	ack(2);
	expect("shadow window in slow start", flow()->shadow.cwnd, 0);
}

/* It is the algorithm's own window that grows, and not the flow's. */
static void the_inner_algorithm_does_not_open_the_window(void)
{
	couple();
	grant(WINDOW, COUPLED | SLOW_START, EPOCH);
	ack(2);
	tcp.snd_cwnd = WINDOW - 10;
	tcp.packets_out = 3;
	tcp.write_seq = tcp.snd_nxt + 2 * MSS;
	ack(2);
	expect("window of a flow that has no more to send", tcp.snd_cwnd,
	       WINDOW - 10);
}

static void less_for_the_flow_is_given_up_at_the_pace_of_acks(void)
{
	couple();
	grant(HALF, COUPLED, EPOCH);
	acks(1);
	expect_between("window after one ACK", tcp.snd_cwnd, WINDOW - 2,
		       WINDOW - 1);
	acks(WINDOW);
	expect("window after a round trip", tcp.snd_cwnd, HALF);
}

static void an_event_s_reduction_is_done_at_once(void)
{
	couple();
	grant(HALF, COUPLED, EPOCH + 1);
	acks(1);
	expect("window", tcp.snd_cwnd, HALF);
}

static void credit_of_a_larger_window_does_not_open_a_smaller_one(void)
{
	couple();
	tcp.snd_cwnd_cnt = WINDOW - 1;
	grant(HALF, COUPLED, EPOCH + 1);
	acks(1);
	expect_between("credit", tcp.snd_cwnd_cnt, 0, HALF - 1);
}

static const struct check checks[] = {
	CHECK(what_is_granted_is_the_window),
	CHECK(a_grant_by_rate_counts_the_rtt),
	CHECK(a_window_is_no_more_than_tcp_s_limit),
	CHECK(without_a_grant_the_flow_is_as_the_inner_algorithm_has_it),
	CHECK(without_a_table_the_flow_has_no_slot),
	CHECK(a_line_that_is_being_written_is_not_read),
	CHECK(a_line_that_changes_meanwhile_is_not_read),
	CHECK(a_threshold_is_granted_with_the_window),
	CHECK(slow_start_has_no_shadow_window),
	CHECK(the_inner_algorithm_does_not_open_the_window),
	CHECK(less_for_the_flow_is_given_up_at_the_pace_of_acks),
	CHECK(an_event_s_reduction_is_done_at_once),
	CHECK(credit_of_a_larger_window_does_not_open_a_smaller_one),
};

int main(void)
{
	return ALL_HOLD(checks);
}
