/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Congestion events: which there are, what the device is told of them, and what
 * the flow's window does until it has answered.
 */
#include "tests/native/tcp.h"

/* Half of the window, which is what Reno leaves. */
#define HALF	(WINDOW / 2)

/* TCP goes to @state, with these signs; if it @reduces, it asks for a window first. */
struct step {
	u8 state;
	bool reduces;
	bool lost;	/* a segment is marked as lost */
	bool marked;	/* the ACK says that there was a mark (ECN) */
	bool probed;	/* a tail loss probe has repaired a loss */
};

/* What is counted and reported of it. */
struct episode {
	const char *name;
	struct step steps[2];
	u32 events, timeouts;
};

static const struct episode episodes[] = {
	{ "a loss", {{ TCP_CA_Recovery, .reduces = 1, .lost = 1 }}, 1, 0 },
	{ "a mark", {{ TCP_CA_CWR, .reduces = 1, .marked = 1 }}, 1, 0 },
	{ "a loss that a probe has repaired",
	  {{ TCP_CA_CWR, .reduces = 1, .probed = 1 }}, 1, 0 },
	{ "a full queue of this host's", {{ TCP_CA_CWR, .reduces = 1 }}, 0, 0 },
	{ "the loss of such a queue",
	  {{ TCP_CA_CWR, .reduces = 1 }, { TCP_CA_Recovery, .lost = 1 }}, 1, 0 },
	{ "a timeout", {{ TCP_CA_Loss, .reduces = 1, .lost = 1 }}, 1, 1 },
	{ "a timeout in recovery",
	  {{ TCP_CA_Recovery, .reduces = 1, .lost = 1 },
	   { TCP_CA_Loss, .lost = 1 }}, 1, 1 },
	{ "a timeout that repeats",
	  {{ TCP_CA_Loss, .reduces = 1, .lost = 1 },
	   { TCP_CA_Loss, .lost = 1 }}, 1, 1 },
	{ "nothing but another order", {{ TCP_CA_Disorder }}, 0, 0 },
};

static void take(const struct step *step)
{
	if (step->marked)
		ack_event(0, CA_ACK_ECE);
	if (step->probed) {
		tcp.tlp_high_seq = tcp.snd_nxt;
		tcp.tlp_retrans = 1;
		ack_event(0, 0);
		ack_event(1, 0);
		tcp.tlp_high_seq = 0;
	}
	tcp.lost_out = step->lost;
	if (step->reduces)
		ask_ssthresh();
	if (step->state)
		enter(step->state);
}

static void what_is_counted(void)
{
	for (size_t i = 0; i < sizeof(episodes) / sizeof(episodes[0]); i++) {
		const struct episode *one = &episodes[i];

		check = one->name;
		begin();
		couple();
		take(&one->steps[0]);
		take(&one->steps[1]);
		expect("events", flow()->report.now.congestion_events, one->events);
		expect("timeouts", flow()->report.now.timeouts, one->timeouts);
		expect("reported events", report()->congestion_events, one->events);
		expect("reported timeouts", report()->timeouts, one->timeouts);
		expect("epoch", report()->congestion_epoch, one->events ? EPOCH : 0);
		undo();
		expect("spurious events", report()->spurious_events, one->events);
		undo();
		expect("undone again", report()->spurious_events, one->events);
	}
}

static void an_event_of_its_own_reduces_the_flow(void)
{
	u32 shadow;

	couple();
	shadow = flow()->shadow.cwnd;
	lose_one();
	expect("threshold", tcp.snd_ssthresh, HALF);
	expect("shadow window", flow()->shadow.cwnd, shadow / 2);
	expect("told beta", report()->beta, CCC_BETA_HALF);
	expect("told at once", last_wakes(), true);
	recover();
	acks(2);
	expect("window before the answer", tcp.snd_cwnd, HALF);
	expect("shadow window after it", flow()->shadow.cwnd, shadow / 2);
}

static void a_full_queue_of_this_host_s_is_charged_to_nobody(void)
{
	couple();
	expect("threshold", ask_ssthresh(), HALF);
	enter(TCP_CA_CWR);
	expect("the flow awaits an answer", flow()->shadow.charged, false);
	recover();
	/* Sooner than it would wait for an answer. */
	acks(WINDOW);
	expect("window", tcp.snd_cwnd, WINDOW);
}

static void another_epoch(u32 packets)
{
	grant(packets, COUPLED, line()->epoch + 1);
}

static void what_was_sent_before_an_epoch_is_not_charged_to_it(void)
{
	couple();
	another_epoch(100);
	acks(1);
	lose_one();
	expect("epoch", report()->congestion_epoch, EPOCH);
	expect("threshold", tcp.snd_ssthresh, 100);
	expect("the flow awaits an answer", flow()->shadow.charged, false);
}

static void what_was_sent_in_an_epoch_is_charged_to_it(void)
{
	couple();
	another_epoch(100);
	acks(WINDOW);
	lose_one();
	expect("epoch", report()->congestion_epoch, EPOCH + 1);
	/* Half of an odd shadow window is a little less. */
	expect_between("threshold", tcp.snd_ssthresh, 49, 50);
}

static void an_old_epoch_is_forgotten_before_numbers_wrap(void)
{
	couple();
	another_epoch(100);
	acks(WINDOW);
	/* So far on that where it began would be ahead. */
	for (int i = 0; i < 3; i++) {
		tcp.snd_una += 1u << 30;
		tcp.snd_nxt += 1u << 30;
		tcp.write_seq += 1u << 30;
		acks(WINDOW);
	}
	lose_one();
	expect("epoch", report()->congestion_epoch, EPOCH + 1);
}

static void another_instance_s_epoch_is_no_reduction(void)
{
	couple();
	table->status.instance++;
	another_epoch(WINDOW);
	acks(1);
	lose_one();
	expect("epoch", report()->congestion_epoch, EPOCH + 1);
	expect("threshold", tcp.snd_ssthresh, HALF);
}

/* The segment that a probe repairs was sent before what the probe ends with. */
static void a_probe_s_loss_is_of_the_epoch_in_which_it_was_sent(void)
{
	couple();
	tcp.tlp_high_seq = tcp.snd_nxt;
	tcp.tlp_retrans = 1;
	ack_event(0, 0);
	another_epoch(100);
	ack_event(2, 0);
	ops->cong_avoid(sk, tcp.snd_una, 2);
	tcp.tlp_high_seq = 0;
	ask_ssthresh();
	enter(TCP_CA_CWR);
	expect("events", report()->congestion_events, 1);
	expect("epoch", report()->congestion_epoch, EPOCH);
}

/* A mark is that of a segment that the ACK acknowledges, here the last in flight. */
static void a_mark_is_of_what_was_acknowledged(void)
{
	couple();
	another_epoch(100);
	ack_event(tcp.packets_out, CA_ACK_ECE);
	tcp.packets_out = 0;
	ask_ssthresh();
	enter(TCP_CA_CWR);
	expect("epoch", report()->congestion_epoch, EPOCH);
}

/* Also where an earlier ACK has seen that an epoch began behind it. */
static void a_mark_of_the_last_before_an_epoch_is_not_charged_to_it(void)
{
	couple();
	another_epoch(100);
	ack_event(2, 0);
	ops->cong_avoid(sk, tcp.snd_una, 2);
	ack_event((flow()->grant.epoch_begin - tcp.snd_una) / MSS, CA_ACK_ECE);
	tcp.snd_nxt += 10 * MSS;
	tcp.packets_out = 10;
	ask_ssthresh();
	enter(TCP_CA_CWR);
	expect("epoch", report()->congestion_epoch, EPOCH);
}

static void others_events_reduce_the_shadow_window(void)
{
	u32 shadow;

	couple();
	shadow = flow()->shadow.cwnd;
	another_epoch(HALF);
	acks(1);
	expect("shadow window", flow()->shadow.cwnd, shadow / 2);
	acks(1);
	expect("  with another ACK", flow()->shadow.cwnd, shadow / 2);
	expect("the flow has told of no event", report()->congestion_events, 0);
}

static void an_answer_is_followed_while_tcp_reduces(void)
{
	couple();
	lose_one();
	another_epoch(100);
	ack(2);
	expect("threshold", tcp.snd_ssthresh, 100);
	/* And it is for that event: the shadow window has been reduced. */
	expect("shadow window", flow()->shadow.cwnd, HALF);
}

static void after_an_answer_others_events_count_again(void)
{
	couple();
	lose_one();
	another_epoch(100);
	ack(2);
	recover();
	acks(1);
	another_epoch(50);
	acks(1);
	expect("shadow window", flow()->shadow.cwnd, HALF / 2);
}

static void the_wait_for_an_answer_ends(void)
{
	couple();
	lose_one();
	recover();
	acks(1);
	expect("window at first", tcp.snd_cwnd, HALF);
	wait_us(CCC_ANSWER_MIN_US);
	acks(3 * WINDOW);
	expect("window at last", tcp.snd_cwnd, WINDOW);
}

static void an_event_opens_no_window(void)
{
	couple();
	tcp.snd_cwnd = 50;
	another_epoch(WINDOW);
	lose_one();
	expect_between("threshold", tcp.snd_ssthresh, 2, 50);
}

static void after_a_timeout_the_flow_works_its_way_up_alone(void)
{
	couple();
	tcp.lost_out = WINDOW;
	ask_ssthresh();
	enter(TCP_CA_Loss);
	expect("window", tcp.snd_cwnd, 1);
	ack(1);
	expect("window after an ACK", tcp.snd_cwnd, 2);
	ack(2);
	expect("  and one more", tcp.snd_cwnd, 4);
}

/* The aggregate begins again in slow start: the flow has a part of its threshold. */
static void after_a_timeout_it_goes_to_the_threshold(void)
{
	couple();
	grant(3, COUPLED | SLOW_START, EPOCH);
	line()->ssthresh_level = level_of((u64)HALF * MSS);
	tcp.lost_out = WINDOW;
	ask_ssthresh();
	enter(TCP_CA_Loss);
	expect("threshold", tcp.snd_ssthresh, HALF);
}

static void an_event_that_was_none_is_undone(void)
{
	u32 shadow;

	couple();
	shadow = flow()->shadow.cwnd;
	lose_one();
	tcp.snd_cwnd = HALF;
	wait_us(CCC_ANSWER_MIN_US);
	undo();
	expect("window", tcp.snd_cwnd, WINDOW);
	expect("shadow window", flow()->shadow.cwnd, shadow);
	expect("spurious events", report()->spurious_events, 1);
	expect("told at once", last_wakes(), true);
}

static void alone_it_reduces_as_the_inner_algorithm_does(void)
{
	couple();
	lease_ends();
	ack(2);
	tcp.snd_cwnd = 60;
	tcp.lost_out = 1;
	expect("threshold", ask_ssthresh(), 30);
	enter(TCP_CA_Recovery);
	expect("events", flow()->report.now.congestion_events, 1);
}

static const struct check checks[] = {
	CHECK(what_is_counted),
	CHECK(an_event_of_its_own_reduces_the_flow),
	CHECK(a_full_queue_of_this_host_s_is_charged_to_nobody),
	CHECK(what_was_sent_before_an_epoch_is_not_charged_to_it),
	CHECK(what_was_sent_in_an_epoch_is_charged_to_it),
	CHECK(an_old_epoch_is_forgotten_before_numbers_wrap),
	CHECK(another_instance_s_epoch_is_no_reduction),
	CHECK(a_probe_s_loss_is_of_the_epoch_in_which_it_was_sent),
	CHECK(a_mark_is_of_what_was_acknowledged),
	CHECK(a_mark_of_the_last_before_an_epoch_is_not_charged_to_it),
	CHECK(others_events_reduce_the_shadow_window),
	CHECK(an_answer_is_followed_while_tcp_reduces),
	CHECK(after_an_answer_others_events_count_again),
	CHECK(the_wait_for_an_answer_ends),
	CHECK(an_event_opens_no_window),
	CHECK(after_a_timeout_the_flow_works_its_way_up_alone),
	CHECK(after_a_timeout_it_goes_to_the_threshold),
	CHECK(an_event_that_was_none_is_undone),
	CHECK(alone_it_reduces_as_the_inner_algorithm_does),
};

int main(void)
{
	return ALL_HOLD(checks);
}
