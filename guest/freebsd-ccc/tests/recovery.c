/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion events: what is counted, and where recovery leads.
 */
#include "shim/connection.h"

static void
an_event_is_counted_once(struct kunit *test)
{
	begin_coupled(20, 20);
	lose();
	EQ(device.report.congestion_events, 1);
	EQ(device.report.state, VIRTIO_CCC_STATE_FR);
	EQ(device.report.congestion_epoch, 0);
	EQ(device.report.beta, CCC_BETA_HALF);
	EQ(connection.snd_ssthresh, 10 * MSS);
	EQ(IN_RECOVERY(connection.t_flags) != 0, true);
	lose();
	EQ(device.report.congestion_events, 1);
	recover();
	EQ(connection.snd_cwnd, 10 * MSS);
}

static void
recovery_is_left_alone(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	lose();
	connection.snd_cwnd = 7 * MSS;
	grant_to(0, 90);
	ack(2);
	EQ(connection.snd_cwnd, 7 * MSS);
}

static void
a_loss_of_an_older_epoch_is_no_news(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	device.line[0].epoch = 5;
	grant_to(0, 14);
	ack(2);
	/* All that is outstanding was sent before. */
	lose();
	EQ(device.report.congestion_epoch, 4);
	EQ(connection.snd_ssthresh, 14 * MSS);
	recover();
	round_trip();
	round_trip();
	lose();
	EQ(device.report.congestion_epoch, 5);
	EQ(connection.snd_ssthresh, 7 * MSS);
}

static void
others_reductions_reduce_the_shadow(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	device.line[0].epoch++;
	grant_to(0, 12);
	ack(2);
	LE(flow.shadow.cwnd, 11 * MSS);
	EQ(IN_RECOVERY(connection.t_flags), 0);
	EQ(device.report.congestion_events, 0);
}

static void
a_timeout_is_an_event_and_repeats_are_none(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO);
	EQ(device.report.congestion_events, 1);
	EQ(device.report.timeouts, 1);
	EQ(device.report.state, VIRTIO_CCC_STATE_LOSS);
	EQ(connection.snd_cwnd, MSS);
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO);
	EQ(device.report.timeouts, 1);
	/* It works its way up alone until what was out is acknowledged. */
	ack(1);
	EQ(connection.snd_cwnd, 2 * MSS);
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO_ERR);
	EQ(device.report.spurious_events, 1);
}

/* It sent its part as one burst, of 20 packets. */
static void
a_timeout_goes_on_when_the_device_comes_back(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	device.live = false;
	device.taken = false;
	flow.slot = NULL;
	ccc_recovery_signal_alone(&connection.t_ccv, &flow, CC_RTO);
	EQ(connection.snd_cwnd, MSS);
	device.live = true;
	device.changes++;
	connection.snd_max = connection.snd_una + 20 * MSS;
	ack(1);
	EQ(device.report.state, VIRTIO_CCC_STATE_LOSS);
	accept(20);
	ack(1);
	LE(connection.snd_cwnd, 3 * MSS);
	ack(18);
	EQ(flow.recovery.in_loss, 0);
}

static void
recovery_that_ends_in_a_timeout_is_one_event(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	lose();
	EXIT_RECOVERY(connection.t_flags);
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO);
	EQ(device.report.congestion_events, 1);
	EQ(device.report.timeouts, 1);
}

/* Found on a real kernel: the ramp of what was to be given up stayed. */
static void
a_window_divided_anew_in_recovery_rises(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	lose();
	grant_to(0, 3);
	ack(2);
	connection.snd_ssthresh = 2 * MSS;
	recover();
	connection.snd_cwnd = 2 * MSS;
	connection.snd_max = connection.snd_una + 2 * MSS;
	flow.cwnd.ramp = 1 << 8;
	test_now_us += 1000000;
	grant_to(0, 26);
	device.line[0].epoch++;
	round_trip();
	round_trip();
	round_trip();
	EQ(connection.snd_cwnd, 26 * MSS);
}

static void
mark(void)
{
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_ECN);
}

static void
a_mark_is_an_event_and_reduces_at_once(struct kunit *test)
{
	begin_coupled(20, 20);
	mark();
	EQ(device.report.congestion_events, 1);
	EQ(connection.snd_cwnd, 10 * MSS);
	EQ(connection.snd_ssthresh, 10 * MSS);
	EQ(IN_CONGRECOVERY(connection.t_flags) != 0, true);
	/* Each ACK echoes it until TCP has answered. */
	mark();
	EQ(device.report.congestion_events, 1);
	EQ(connection.snd_cwnd, 10 * MSS);
}

static void
marks_that_reduce_nothing_are_no_factor(struct kunit *test)
{
	begin(20);
	ack(2);
	/* With a slot, and no grant yet. */
	mark();
	EQ(device.report.beta, CCC_BETA_HALF);
	mark();
	EQ(device.report.beta, CCC_BETA_HALF);
	EQ(device.report.congestion_events, 1);
}

static void
what_the_device_answers_is_where_recovery_leads(struct kunit *test)
{
	begin_coupled(20, 20);
	lose();
	EQ(connection.snd_ssthresh, 10 * MSS);
	/* As much as proportional rate reduction lets out. */
	connection.snd_cwnd = 5 * MSS;
	device.line[0].epoch++;
	grant_to(0, 14);
	ack(2);
	EQ(connection.snd_ssthresh, 14 * MSS);
	recover();
	EQ(connection.snd_cwnd, 14 * MSS);
	/* Not beyond where the window was. */
	lose();
	device.line[0].epoch++;
	grant_to(0, 90);
	ack(2);
	EQ(connection.snd_ssthresh, 14 * MSS);
}

static void
an_event_is_told_at_once(struct kunit *test)
{
	unsigned int before;

	begin_coupled(20, 20);
	round_trip();
	device.line[0].report_interval_us = 10 * RTT_US;
	ack(2);
	before = device.updated;
	lose();
	EQ(device.updated, before + 1);
	EQ(device.report.congestion_events, 1);
	before = device.updated;
	ack(0);
	EQ(device.updated, before);
}

static void
a_timeout_that_was_none_is_taken_back_once(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO);
	EQ(device.report.state, VIRTIO_CCC_STATE_LOSS);
	connection.snd_cwnd = connection.snd_ssthresh = 20 * MSS;
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO_ERR);
	EQ(device.report.spurious_events, 1);
	EQ(flow.recovery.in_loss, false);
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO_ERR);
	EQ(device.report.spurious_events, 1);
}

static void
what_is_in_flight_is_no_factor(struct kunit *test)
{
	begin_coupled(40, 40);
	test_inner_takes_pipe = true;
	round_trip();
	/* The others have left, and have left the shadow where it was. */
	flow.shadow.cwnd = 26 * MSS;
	lose();
	LE(device.report.beta, CCC_BETA_HALF);
	GE(device.report.beta, CCC_BETA_HALF - 2048);
	EQ(flow.shadow.cwnd, 13 * MSS);
	EQ(connection.snd_max - connection.snd_una, 40 * MSS);
}

static void
the_inner_algorithm_hears_of_the_event_before_it(struct kunit *test)
{
	unsigned int before;

	begin(20);
	ack(2);
	accept(20);
	before = test_inner_signals;
	ack(2);
	EQ(flow.shadow.cwnd, 20 * MSS);
	EQ(test_inner_signals, before + 1);
	EQ(device.report.congestion_events, 0);
	round_trip();
	EQ(test_inner_signals, before + 1);
	EQ(connection.snd_cwnd, 20 * MSS);
}

static void
a_factor_is_the_inner_algorithms(struct kunit *test)
{
	begin_coupled(9, 9);
	lose();
	/* Half of nine packets are four. */
	EQ(device.report.beta, (4u << 16) / 9);
}

static void
what_comes_in_recovery_is_delivered_and_opens_nothing(struct kunit *test)
{
	uint64_t delivered, limited;

	begin_coupled(20, 20);
	round_trip();
	lose();
	delivered = device.report.delivered_bytes;
	limited = device.report.acked_limited_bytes;
	ack(2);
	EQ(device.report.delivered_bytes, delivered + 2 * MSS);
	EQ(device.report.acked_limited_bytes, limited);
}

static void
a_timeout_leads_to_what_is_granted(struct kunit *test)
{
	begin_coupled(20, 20);
	round_trip();
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO);
	EQ(connection.snd_ssthresh, 20 * MSS);
	/* The window is one segment now, and what it was is gone. */
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_RTO);
	EQ(connection.snd_ssthresh, 2 * MSS);
}

static void
a_timeout_alone_that_was_none_is_over(struct kunit *test)
{
	begin(20);
	device.live = false;
	ack(2);
	ccc_recovery_signal_alone(&connection.t_ccv, &flow, CC_RTO);
	EQ(flow.recovery.in_loss, true);
	ccc_recovery_signal_alone(&connection.t_ccv, &flow, CC_RTO_ERR);
	EQ(flow.recovery.in_loss, false);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(an_event_is_counted_once),
	KUNIT_CASE(recovery_is_left_alone),
	KUNIT_CASE(a_loss_of_an_older_epoch_is_no_news),
	KUNIT_CASE(others_reductions_reduce_the_shadow),
	KUNIT_CASE(a_timeout_is_an_event_and_repeats_are_none),
	KUNIT_CASE(a_timeout_goes_on_when_the_device_comes_back),
	KUNIT_CASE(recovery_that_ends_in_a_timeout_is_one_event),
	KUNIT_CASE(a_window_divided_anew_in_recovery_rises),
	KUNIT_CASE(a_mark_is_an_event_and_reduces_at_once),
	KUNIT_CASE(marks_that_reduce_nothing_are_no_factor),
	KUNIT_CASE(what_the_device_answers_is_where_recovery_leads),
	KUNIT_CASE(an_event_is_told_at_once),
	KUNIT_CASE(a_timeout_that_was_none_is_taken_back_once),
	KUNIT_CASE(what_is_in_flight_is_no_factor),
	KUNIT_CASE(the_inner_algorithm_hears_of_the_event_before_it),
	KUNIT_CASE(a_factor_is_the_inner_algorithms),
	KUNIT_CASE(what_comes_in_recovery_is_delivered_and_opens_nothing),
	KUNIT_CASE(a_timeout_leads_to_what_is_granted),
	KUNIT_CASE(a_timeout_alone_that_was_none_is_over),
	{ 0 }
};

static struct kunit_suite suite = {
	.name = "ccc-freebsd-recovery",
	.test_cases = cases,
};
kunit_test_suite(suite)
