/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flow's logic in user space, on a connection and a device of our own.
 */
#include "../ccc_flow.h"
#include "kunit/test.h"

#define	MSS	1000u
#define	RTT_US	100000u
#define	LINES	2

#define	EQ(a, b)	KUNIT_EXPECT_EQ(test, (uint64_t)(a), (uint64_t)(b))
#define	LE(a, b)	KUNIT_CHECK(test, (uint64_t)(a), <=, (uint64_t)(b))
#define	GE(a, b)	KUNIT_EXPECT_GE(test, (uint64_t)(a), (uint64_t)(b))

/* The device, as the driver shows it. */
static struct {
	struct ccc_config config;
	struct virtio_ccc_grant_line line[LINES];
	struct virtio_ccc_report report;
	struct virtio_ccc_slot_grant grant;
	struct ccc_slot slot;
	uint32_t changes, offer, instance;
	bool live, stale, taken;
	unsigned int registered, updated, left;
} device;

static struct tcpcb connection;
static struct ccc_flow flow;
struct ccc_slot *
ccc_slot_take(void)
{
	if (!device.live || device.taken)
		return (NULL);
	device.taken = true;
	device.slot.generation = ccc_next_generation(device.slot.generation);
	device.slot.offer = device.offer;
	return (&device.slot);
}

void
ccc_slot_drop(struct ccc_slot *slot)
{
	(void)slot;
	device.taken = false;
}

bool
ccc_slot_is_live(const struct ccc_slot *slot)
{
	return (device.live && slot->offer == device.offer);
}

uint32_t
ccc_slot_changes(void)
{
	return (device.changes);
}

void
ccc_doorbell_send(struct ccc_device *dev, uint16_t op, uint32_t slot,
    uint32_t generation)
{
	(void)dev;
	(void)slot;
	if (generation != device.slot.generation)
		return;
	device.registered += op == VIRTIO_CCC_OP_REGISTER;
	device.updated += op == VIRTIO_CCC_OP_UPDATE;
	device.left += op == VIRTIO_CCC_OP_LEAVE;
}

const struct ccc_config *
ccc_device_config(const struct ccc_device *dev)
{
	(void)dev;
	return (&device.config);
}

const struct virtio_ccc_grant_line *
ccc_device_line(const struct ccc_device *dev, uint16_t line)
{
	(void)dev;
	return (&device.line[line]);
}

uint32_t
ccc_device_instance(const struct ccc_device *dev)
{
	(void)dev;
	return (device.instance);
}

bool
ccc_device_is_stale(const struct ccc_device *dev)
{
	(void)dev;
	return (device.stale);
}

/* What the aggregate grants to a flow of priority 1, in packets. */
static void
grant_to(uint16_t line, uint64_t packets)
{
	device.line[line].level = ((packets * MSS) << VIRTIO_CCC_LEVEL_SHIFT) /
	    VIRTIO_CCC_PRIORITY_ONE;
}

static void
accept(uint64_t packets)
{
	device.grant.generation = device.slot.generation;
	device.grant.flags = VIRTIO_CCC_G_ACCEPTED;
	device.grant.cap_bytes = VIRTIO_CCC_CAP_NONE;
	device.line[0].flags = VIRTIO_CCC_L_COUPLED;
	device.line[0].ssthresh_level = VIRTIO_CCC_LEVEL_UNSET;
	grant_to(0, packets);
}

/* A connection that is established, has much to send and its window in flight. */
static void
begin(uint32_t packets)
{
	memset(&device, 0, sizeof(device));
	memset(&connection, 0, sizeof(connection));
	memset(&flow, 0, sizeof(flow));
	test_inner_takes_pipe = false;
	device.config = (struct ccc_config) { .slots = 1, .grant_lines = LINES,
	    .rate_share = true, .slot_cap = true };
	device.slot.report = &device.report;
	device.slot.grant = &device.grant;
	device.live = true;
	connection = (struct tcpcb) { .snd_cwnd = packets * MSS,
	    .snd_ssthresh = TCP_MAXWIN << TCP_MAX_WINSHIFT,
	    .snd_wnd = 1u << 30, .snd_scale = 14, .snd_una = 1000,
	    .snd_max = 1000 + packets * MSS, .test_mss = MSS,
	    .test_queued = 1u << 30 };
	connection.t_ccv.tp = &connection;
	connection.t_ccv.cc_data = &flow;
	flow.priority = VIRTIO_CCC_PRIORITY_ONE;
	flow.changes = device.changes - 1;
	test_now_us = 1000000;
}

/* An ACK of so many packets, and what TCP sends then. */
static void
ack(uint32_t packets)
{
	struct tcpcb *tp = &connection;
	struct cc_var *ccv = &tp->t_ccv;

	ccv->bytes_this_ack = packets * MSS;
	ccv->curack = tp->snd_una + packets * MSS;
	ccv->flags |= CCF_CWND_LIMITED;
	ccc_flow_ack(ccv, &flow, CC_ACK);
	tp->snd_una = ccv->curack;
	if (SEQ_GT(tp->snd_una + tp->snd_cwnd, tp->snd_max))
		tp->snd_max = tp->snd_una + tp->snd_cwnd;
}

/* A round trip, of ACKs for two packets each. */
static void
round_trip(void)
{
	uint32_t acks = max_t(uint32_t, connection.snd_cwnd / MSS / 2, 1), i;

	for (i = 0; i < acks; i++) {
		test_now_us += RTT_US / acks;
		if (i == acks - 1)
			connection.t_ccv.flags |= CCF_ABC_SENTAWND;
		ack(2);
	}
}

static void
begin_coupled(uint32_t packets, uint64_t granted)
{
	begin(packets);
	ack(2);
	accept(granted);
	ack(2);
}

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
lose(void)
{
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_NDUPACK);
}

static void
recover(void)
{
	connection.t_ccv.curack = connection.snd_max;
	ccc_recovery_end(&connection.t_ccv, &flow);
	EXIT_RECOVERY(connection.t_flags);
}

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

static struct kunit_case flow_cases[] = {
	KUNIT_CASE(without_a_device_it_is_its_inner_algorithm),
	KUNIT_CASE(the_first_data_acknowledged_registers),
	KUNIT_CASE(a_window_goes_to_what_is_granted),
	KUNIT_CASE(the_inner_algorithm_grows_a_shadow),
	KUNIT_CASE(an_event_is_counted_once),
	KUNIT_CASE(recovery_is_left_alone),
	KUNIT_CASE(a_loss_of_an_older_epoch_is_no_news),
	KUNIT_CASE(others_reductions_reduce_the_shadow),
	KUNIT_CASE(a_timeout_is_an_event_and_repeats_are_none),
	KUNIT_CASE(a_timeout_goes_on_when_the_device_comes_back),
	KUNIT_CASE(recovery_that_ends_in_a_timeout_is_one_event),
	KUNIT_CASE(a_window_divided_anew_in_recovery_rises),
	KUNIT_CASE(without_answer_it_goes_on_alone),
	KUNIT_CASE(a_line_that_stays_torn_keeps_the_earlier_grant),
	KUNIT_CASE(a_line_out_of_range_couples_nothing),
	KUNIT_CASE(tables_that_are_withdrawn_are_left),
	KUNIT_CASE(a_flow_whose_fin_is_acknowledged_leaves),
	KUNIT_CASE(a_priority_is_in_the_next_report),
	KUNIT_CASE(an_application_that_is_slow_is_no_limit),
	KUNIT_CASE(round_trips_are_measured),
	KUNIT_CASE(messages_of_progress_are_no_closer_than_the_device_says),
	KUNIT_CASE(a_mark_is_an_event_and_reduces_at_once),
	KUNIT_CASE(marks_that_reduce_nothing_are_no_factor),
	KUNIT_CASE(what_the_device_answers_is_where_recovery_leads),
	KUNIT_CASE(an_event_is_told_at_once),
	KUNIT_CASE(a_timeout_that_was_none_is_taken_back_once),
	KUNIT_CASE(after_idleness_it_is_active_again),
	KUNIT_CASE(a_window_that_the_peer_cannot_take_is_not_granted),
	KUNIT_CASE(a_receiver_that_is_the_limit_is_not_the_window),
	KUNIT_CASE(no_pause_is_a_round_trip),
	KUNIT_CASE(what_is_in_flight_is_no_factor),
	KUNIT_CASE(the_inner_algorithm_hears_of_the_event_before_it),
	KUNIT_CASE(any_device_is_borne),
	{ 0 }
};

static struct kunit_suite flow_suite = {
	.name = "ccc-freebsd",
	.test_cases = flow_cases,
};
kunit_test_suite(flow_suite)
