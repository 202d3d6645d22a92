/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flow: its slot, its window, what it reports.
 */
#include "shim/connection.h"

static void
without_a_device_it_is_its_inner_algorithm(struct kunit *test)
{
	begin(10);
	device.live = false;
	ack(2);
	EQ(connection.snd_cwnd, 12 * MSS);
	EQ(flow.slot == NULL, true);
	EQ(device.registered, 0);
}

static void
the_first_data_acknowledged_registers(struct kunit *test)
{
	begin(10);
	connection.t_ccv.bytes_this_ack = 0;
	connection.t_ccv.curack = connection.snd_una;
	ccc_flow_ack(&connection.t_ccv, &flow, CC_ACK);
	EQ(device.registered, 0);
	ack(2);
	EQ(device.registered, 1);
	EQ(device.report.generation, 1);
	EQ(device.report.seq % 2, 0);
	EQ(device.report.state, VIRTIO_CCC_STATE_SS);
	EQ(device.report.mss_bytes, MSS);
	EQ(device.report.delivered_bytes, 2 * MSS);
	EQ(device.report.acked_limited_bytes, 2 * MSS);
	/* Until the device has answered, alone. */
	EQ(connection.snd_cwnd, 12 * MSS);
}

static void
a_window_goes_to_what_is_granted(struct kunit *test)
{
	uint32_t before;
	int i;

	begin_coupled(10, 40);
	for (i = 0; i < 8; i++) {
		before = connection.snd_cwnd;
		ack(2);
		/* No burst: of what an ACK acknowledges, CCC_RAMP_MAX times. */
		LE(connection.snd_cwnd, before + 2 * CCC_RAMP_MAX * MSS);
	}
	round_trip();
	EQ(connection.snd_cwnd, 40 * MSS);
	EQ(connection.snd_ssthresh, 39 * MSS);
	grant_to(0, 20);
	round_trip();
	round_trip();
	EQ(connection.snd_cwnd, 20 * MSS);
	grant_to(0, 0);
	round_trip();
	round_trip();
	round_trip();
	EQ(connection.snd_cwnd, CCC_CWND_MIN * MSS);
}

static void
the_inner_algorithm_grows_a_shadow(struct kunit *test)
{
	uint32_t i, before;

	begin_coupled(20, 20);
	round_trip();
	before = device.report.cwnd_growth_bytes;
	for (i = 0; i < 10; i++)
		round_trip();
	/* A packet in a round trip is reported; the window is the grant. */
	EQ(flow.report.cwnd_growth_bytes - before, 10 * MSS);
	EQ(connection.snd_cwnd, 20 * MSS);
	EQ(flow.shadow.cwnd, 31 * MSS);
}

static void
without_answer_it_goes_on_alone(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	device.stale = true;
	round_trip();
	EQ(flow.grant.coupled, false);
	EQ(connection.snd_cwnd, 21 * MSS);
	device.stale = false;
	round_trip();
	round_trip();
	EQ(connection.snd_cwnd, 20 * MSS);
}

static void
a_line_that_stays_torn_keeps_the_earlier_grant(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	device.line[0].seq = 1;
	grant_to(0, 80);
	round_trip();
	EQ(connection.snd_cwnd, 20 * MSS);
}

static void
a_line_out_of_range_couples_nothing(struct kunit *test)
{
	begin_coupled(20, 40);
	device.grant.line = LINES;
	ack(2);
	EQ(flow.grant.coupled, false);
	device.grant.line = 0;
	device.grant.generation++;
	ack(2);
	EQ(flow.grant.coupled, false);
}

static void
tables_that_are_withdrawn_are_left(struct kunit *test)
{
	begin_coupled(20, 20);
	device.offer++;
	device.report.seq = 100;
	ack(2);
	/* It took another slot of the new offer at once, with another generation. */
	EQ(device.registered, 2 - (flow.slot == NULL));
	EQ(device.left, 0);
	device.live = false;
	ack(2);
	EQ(flow.slot == NULL, true);
	EQ(device.taken, false);
}

static void
a_flow_whose_fin_is_acknowledged_leaves(struct kunit *test)
{
	begin_coupled(20, 20);
	connection.t_flags |= TF_SENTFIN;
	connection.test_queued = connection.snd_max - connection.snd_una;
	ack((connection.snd_max - connection.snd_una) / MSS);
	EQ(device.left, 1);
	EQ(device.report.state, VIRTIO_CCC_STATE_FREE);
	EQ(device.taken, false);
	connection.t_ccv.bytes_this_ack = 1;
	ccc_flow_ack(&connection.t_ccv, &flow, CC_ACK);
	EQ(device.registered, 1);
}

static void
a_priority_is_in_the_next_report(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	flow.priority = 3 * VIRTIO_CCC_PRIORITY_ONE;
	ack(2);
	EQ(device.report.priority, 3 * VIRTIO_CCC_PRIORITY_ONE);
	round_trip();
	round_trip();
	EQ(connection.snd_cwnd, 60 * MSS);
}

static void
an_application_that_is_slow_is_no_limit(struct kunit *test)
{
	uint64_t before;

	begin_coupled(20, 20);
	round_trip();
	before = device.report.acked_limited_bytes;
	connection.test_queued = 4 * MSS;
	connection.snd_max = connection.snd_una + 4 * MSS;
	ack(2);
	EQ(device.report.acked_limited_bytes, before);
	EQ(device.report.flags & VIRTIO_CCC_R_CWND_LIMITED, 0);
	EQ(device.report.flags & VIRTIO_CCC_R_ACTIVE, VIRTIO_CCC_R_ACTIVE);
}

static void
round_trips_are_measured(struct kunit *test)
{
	int i;

	begin_coupled(20, 20);
	for (i = 0; i < 20; i++)
		round_trip();
	LE(flow.rtt.srtt_us, RTT_US + RTT_US / 8);
	GE(flow.rtt.srtt_us, RTT_US - RTT_US / 8);
	EQ(device.report.min_rtt_us, flow.rtt.min_us);
}

static void
after_idleness_it_is_active_again(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	connection.test_queued = 0;
	connection.snd_max = connection.snd_una;
	ack(0);
	EQ(device.report.flags & VIRTIO_CCC_R_ACTIVE, 0);
	connection.test_queued = 1u << 30;
	ccc_flow_after_idle(&connection.t_ccv, &flow);
	EQ(connection.snd_cwnd, 10 * MSS);
	EQ(device.report.flags, VIRTIO_CCC_R_ACTIVE |
	    VIRTIO_CCC_R_CWND_LIMITED);
	EQ(flow.shadow.cwnd, 0);
}

static void
a_window_that_the_peer_cannot_take_is_not_granted(struct kunit *test)
{
	int i;

	begin_coupled(20, 20);
	connection.snd_scale = 0;
	grant_to(0, 200);
	for (i = 0; i < 8; i++)
		round_trip();
	EQ(connection.snd_cwnd, TCP_MAXWIN / MSS * MSS);
}

static void
a_receiver_that_is_the_limit_is_not_the_window(struct kunit *test)
{
	uint64_t before;

	begin_coupled(20, 20);
	round_trip();
	connection.snd_wnd = 10 * MSS;
	before = device.report.acked_limited_bytes;
	ack(2);
	EQ(device.report.acked_limited_bytes, before);
	EQ(device.report.flags & VIRTIO_CCC_R_CWND_LIMITED, 0);
}

static void
no_pause_is_a_round_trip(struct kunit *test)
{
	uint32_t before;
	int i;

	begin_coupled(20, 20);
	for (i = 0; i < 10; i++)
		round_trip();
	before = flow.rtt.srtt_us;
	/* All that was written is on its way, and later there is more. */
	connection.test_queued = connection.snd_max - connection.snd_una;
	ack(2);
	test_now_us += 30 * RTT_US;
	connection.test_queued = 1u << 30;
	connection.snd_max += 2 * MSS;
	for (i = 0; i < 3; i++)
		round_trip();
	LE(flow.rtt.srtt_us, before + RTT_US / 4);
	/* Nor is the time without a device. */
	round_trip();
	device.live = false;
	device.changes++;
	ack(2);
	test_now_us += 600 * RTT_US;
	connection.snd_una = connection.snd_max;
	connection.snd_max += 20 * MSS;
	device.live = true;
	device.offer++;
	device.changes++;
	ack(2);
	accept(20);
	for (i = 0; i < 3; i++)
		round_trip();
	EQ(device.registered, 2);
	LE(flow.rtt.srtt_us, before + RTT_US / 4);
}

static void
a_report_says_all_of_the_flow(struct kunit *test)
{
	const struct virtio_ccc_report *report = &device.report;
	uint16_t sample = 0;
	uint32_t i;

	begin(20);
	connection.test_sport = 4711;
	connection.test_daddr = 0x0100000a;
	ack(2);
	EQ(report->ssthresh_bytes, VIRTIO_CCC_SSTHRESH_UNSET);
	EQ(report->sport, 4711);
	EQ(memcmp(report->daddr, &connection.test_daddr, 4), 0);
	EQ(strcmp((const char *)report->algorithm, "newreno"), 0);
	accept(20);
	for (i = 0; i < 10; i++)
		round_trip();
	for (i = 0; i < 10; i++) {
		test_now_us += RTT_US / 10;
		ack(2);
		sample = max_t(uint16_t, sample, report->rtt_sample);
	}
	EQ(report->ssthresh_bytes, 19 * MSS);
	EQ(report->cwnd_bytes, 20 * MSS);
	EQ(report->inflight_bytes, 18 * MSS);
	EQ(report->delivered_bytes, connection.snd_una - 1000);
	LE(report->srtt_us, RTT_US + RTT_US / 5);
	GE(report->srtt_us, RTT_US - RTT_US / 5);
	LE(sample * VIRTIO_CCC_RTT_UNIT_US, RTT_US + RTT_US / 5);
	GE(sample * VIRTIO_CCC_RTT_UNIT_US, RTT_US - RTT_US / 5);
}

static void
a_priority_is_told_at_once(struct kunit *test)
{
	unsigned int before;

	begin_coupled(20, 20);
	round_trip();
	device.line[0].report_interval_us = 10 * RTT_US;
	ack(2);
	before = device.updated;
	flow.priority = 2 * VIRTIO_CCC_PRIORITY_ONE;
	ack(0);
	EQ(device.updated, before + 1);
}

static void
what_others_are_given_goes_by_acks_and_a_reduction_at_once(struct kunit *test)
{
	begin_coupled(40, 40);
	round_trip();
	grant_to(0, 20);
	ack(2);
	EQ(connection.snd_cwnd, 39 * MSS);
	round_trip();
	EQ(connection.snd_cwnd, 20 * MSS);
	device.line[0].epoch++;
	grant_to(0, 10);
	ack(2);
	EQ(connection.snd_cwnd, 10 * MSS);
}

static void
without_a_slot_it_asks_again_when_one_is_free(struct kunit *test)
{
	begin(10);
	device.taken = true;
	ack(2);
	EQ(flow.slot == NULL, true);
	device.taken = false;
	ack(2);
	EQ(flow.slot == NULL, true);
	device.changes++;
	ack(2);
	EQ(flow.slot == &device.slot, true);
}

static void
what_stays_in_the_machine_is_not_coupled(struct kunit *test)
{
	begin(10);
	test_out_of_scope = true;
	ack(2);
	EQ(flow.slot == NULL, true);
	EQ(device.registered, 0);
}

static void
with_another_slot_it_begins_anew(struct kunit *test)
{
	begin_coupled(5, 5);
	round_trip();
	lose();
	recover();
	/* The device takes its tables back, and accepts them again. */
	device.offer++;
	ack(2);
	EQ(device.registered, 2);
	EQ(device.report.generation, 2);
	EQ(device.report.delivered_bytes, 2 * MSS);
	EQ(device.report.congestion_events, 0);
	EQ(device.report.beta, CCC_BETA_HALF);
	EQ(flow.grant.coupled, false);
	EQ(flow.shadow.cwnd, 0);
}

static uint64_t
odd_number(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return ((*state >> 8) >> (*state >> 33 & 63));
}

/* Two of each window are due; the device may have them come more slowly. */
static void
messages_of_progress_are_no_closer_than_the_device_says(struct kunit *test)
{
	unsigned int before, i;

	begin_coupled(16, 16);
	round_trip();
	before = device.updated;
	for (i = 0; i < 8; i++)
		round_trip();
	KUNIT_EXPECT_GE(test, device.updated - before, 16u);
	device.line[0].report_interval_us = 4 * RTT_US;
	round_trip();
	before = device.updated;
	for (i = 0; i < 8; i++)
		round_trip();
	KUNIT_EXPECT_GE(test, device.updated - before, 1u);
	KUNIT_EXPECT_GE(test, before + 3, device.updated);
}

/* Whatever the device grants, and whatever TCP meets. */
static void
any_device_is_borne(struct kunit *test)
{
	static const ccc_signal_t signals[] = { CC_NDUPACK, CC_ECN, CC_RTO,
	    CC_RTO_ERR };
	uint64_t n = 1;
	uint32_t i;

	begin_coupled(20, 20);
	for (i = 0; i < 200000; i++) {
		device.line[0].level = odd_number(&n);
		device.line[0].ssthresh_level = odd_number(&n);
		device.line[0].flags = odd_number(&n);
		device.line[0].epoch = odd_number(&n);
		device.line[0].seq = odd_number(&n);
		device.grant.cap_bytes = odd_number(&n);
		device.grant.line = odd_number(&n);
		device.instance = odd_number(&n);
		test_now_us += odd_number(&n) % RTT_US;
		if (odd_number(&n) % 7 == 0 && flow.slot != NULL)
			ccc_recovery_signal(&connection.t_ccv, &flow,
			    signals[odd_number(&n) % ARRAY_SIZE(signals)]);
		if (odd_number(&n) % 5 == 0 && flow.slot != NULL)
			recover();
		ack(odd_number(&n) % 4);
		KUNIT_ASSERT_GE(test, connection.snd_cwnd, MSS);
		KUNIT_ASSERT_LE(test, connection.snd_cwnd,
		    TCP_MAXWIN << TCP_MAX_WINSHIFT);
		KUNIT_ASSERT_LE(test, device.report.seq % 2, 0u);
	}
}

static struct kunit_case cases[] = {
	KUNIT_CASE(without_a_device_it_is_its_inner_algorithm),
	KUNIT_CASE(the_first_data_acknowledged_registers),
	KUNIT_CASE(a_window_goes_to_what_is_granted),
	KUNIT_CASE(the_inner_algorithm_grows_a_shadow),
	KUNIT_CASE(without_answer_it_goes_on_alone),
	KUNIT_CASE(a_line_that_stays_torn_keeps_the_earlier_grant),
	KUNIT_CASE(a_line_out_of_range_couples_nothing),
	KUNIT_CASE(tables_that_are_withdrawn_are_left),
	KUNIT_CASE(a_flow_whose_fin_is_acknowledged_leaves),
	KUNIT_CASE(a_priority_is_in_the_next_report),
	KUNIT_CASE(an_application_that_is_slow_is_no_limit),
	KUNIT_CASE(round_trips_are_measured),
	KUNIT_CASE(after_idleness_it_is_active_again),
	KUNIT_CASE(a_window_that_the_peer_cannot_take_is_not_granted),
	KUNIT_CASE(a_receiver_that_is_the_limit_is_not_the_window),
	KUNIT_CASE(no_pause_is_a_round_trip),
	KUNIT_CASE(a_report_says_all_of_the_flow),
	KUNIT_CASE(a_priority_is_told_at_once),
	KUNIT_CASE(what_others_are_given_goes_by_acks_and_a_reduction_at_once),
	KUNIT_CASE(without_a_slot_it_asks_again_when_one_is_free),
	KUNIT_CASE(what_stays_in_the_machine_is_not_coupled),
	KUNIT_CASE(with_another_slot_it_begins_anew),
	KUNIT_CASE(messages_of_progress_are_no_closer_than_the_device_says),
	KUNIT_CASE(any_device_is_borne),
	{ 0 }
};

static struct kunit_suite suite = {
	.name = "ccc-freebsd-flow",
	.test_cases = cases,
};
kunit_test_suite(suite)
