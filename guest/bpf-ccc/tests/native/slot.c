/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slots, where another socket does something between two atomic instructions of the
 * first: none is two sockets', and none stays taken that no socket knows.
 */
#include "tests/native/tcp.h"

static struct tcp_sock second, third;

static struct sock *sock_of(struct tcp_sock *of)
{
	return (struct sock *)of;
}

static bool holds_a_slot(struct tcp_sock *of)
{
	return ccc_sk(sock_of(of))->generation != 0;
}

static u32 slot_of(struct tcp_sock *of)
{
	return ccc_sk(sock_of(of))->slot;
}

/* It has data to send. */
static void sends(struct tcp_sock *of)
{
	of->write_seq = of->snd_nxt + MSS;
	ops->cwnd_event(sock_of(of), CA_EVENT_TX_START);
	of->packets_out = 1;
	of->snd_nxt = of->write_seq;
}

/* All of it is acknowledged. */
static void parks(struct tcp_sock *of)
{
	of->packets_out = 0;
	of->snd_una = of->snd_nxt;
	ops->cong_avoid(sock_of(of), of->snd_una, 1);
}

/* It is not to look for another slot. */
static void goes_on(struct tcp_sock *of)
{
	of->packets_out = 1;
	of->snd_nxt = of->snd_una + MSS;
	ops->set_state(sock_of(of), TCP_CA_Open);
}

/* The first has parked in slot 0, no other is free, and the second comes later. */
static void first_has_parked(u64 later_us)
{
	second = third = tcp;
	sends(&tcp);
	parks(&tcp);
	memset(table->control.in_use, 0xff, sizeof(table->control.in_use));
	second.tcp_mstamp += later_us;
	third.tcp_mstamp += later_us;
}

static void expect_nothing_left(void)
{
	ops->release(sock_of(&tcp));
	ops->release(sock_of(&second));
	expect("the slot is in use when all have gone", is_in_use(0), false);
	expect("it is idle then", is_idle(0), false);
	expect("its state", table->report[0].state, VIRTIO_CCC_STATE_FREE);
	expect("last operation", last_op(), VIRTIO_CCC_OP_LEAVE);
}

static void second_goes_on(void)
{
	others = NULL;
	goes_on(&second);
}

static void second_takes_it_and_parks(void)
{
	others = NULL;
	sends(&second);
	parks(&second);
}

static void second_takes_it_parks_and_goes_on(void)
{
	second_takes_it_and_parks();
	others = second_goes_on;
}

/* Just before the first would have had it again. */
static void it_is_taken_and_given_back_to_nobody(void)
{
	first_has_parked(2 * CCC_IDLE_US);
	others = second_takes_it_and_parks;
	goes_on(&tcp);
	expect("the first has a slot", holds_a_slot(&tcp), false);
	expect("the second is told to leave", last_op(), VIRTIO_CCC_OP_LEAVE);
	expect("its generation", last_generation(), table->flow[0].generation);
	expect("its state", table->report[0].state, VIRTIO_CCC_STATE_FREE);
	goes_on(&second);
	expect_nothing_left();
}

static void it_is_taken_while_its_taker_goes_on(void)
{
	first_has_parked(2 * CCC_IDLE_US);
	others = second_takes_it_parks_and_goes_on;
	goes_on(&tcp);
	expect("the second came between", others == NULL, true);
	expect("the first has a slot", holds_a_slot(&tcp), false);
	expect_nothing_left();
}

static void what_another_has_is_left_to_it(void)
{
	first_has_parked(2 * CCC_IDLE_US);
	second_takes_it_and_parks();
	goes_on(&tcp);
	expect("the first has a slot", holds_a_slot(&tcp), false);
	expect("the second has still parked", is_idle(0), true);
	goes_on(&second);
	expect("the second has its slot", holds_a_slot(&second), true);
	expect_nothing_left();
}

static void who_has_just_parked_keeps_its_slot(void)
{
	first_has_parked(CCC_IDLE_US / 2);
	sends(&second);
	expect("the second has a slot", holds_a_slot(&second), false);
	goes_on(&tcp);
	expect("the first has a slot", holds_a_slot(&tcp), true);
	expect_nothing_left();
}

static void who_parked_long_ago_leaves(void)
{
	u32 generation;

	first_has_parked(2 * CCC_IDLE_US);
	generation = table->flow[0].generation;
	messages = 0;
	sends(&second);
	expect("slot", slot_of(&second), 0);
	expect("first operation", told[0].message.doorbell.op,
	       VIRTIO_CCC_OP_LEAVE);
	expect("its generation", told[0].message.doorbell.generation, generation);
	expect("the loader is woken", told[0].flags, BPF_RB_FORCE_WAKEUP);
	expect("second operation", told[1].message.doorbell.op,
	       VIRTIO_CCC_OP_REGISTER);
	expect("the generation is another",
	       told[1].message.doorbell.generation != generation, true);
	expect_nothing_left();
}

static void one_takes_what_is_idle(void)
{
	first_has_parked(2 * CCC_IDLE_US);
	sends(&second);
	/* As long after that, too. */
	third.tcp_mstamp += 2 * CCC_IDLE_US;
	sends(&third);
	expect("the second has a slot", holds_a_slot(&second), true);
	expect("a third has one", holds_a_slot(&third), false);
	expect_nothing_left();
}

static void second_sends(void)
{
	others = NULL;
	sends(&second);
}

static void one_takes_what_is_free(void)
{
	second = tcp;
	others = second_sends;
	sends(&tcp);
	expect("the first has a slot", holds_a_slot(&tcp), true);
	expect("the second has a slot", holds_a_slot(&second), true);
	expect("it is the same", slot_of(&tcp) == slot_of(&second), false);
}

static void another_s_slot_is_not_used(void)
{
	sends(&tcp);
	table->flow[0].generation++;
	ack(1);
	expect("acknowledged bytes of the other",
	       table->flow[0].report.acked_limited_bytes, 0);
}

static void no_report_is_read_that_is_being_written(void)
{
	first_has_parked(2 * CCC_IDLE_US);
	others = read_report;
	sends(&second);
	expect_between("reports that were read", reads, 2, 1000);
	expect("of them while they were written", torn_reads, 0);
}

static const struct check checks[] = {
	CHECK(it_is_taken_and_given_back_to_nobody),
	CHECK(it_is_taken_while_its_taker_goes_on),
	CHECK(what_another_has_is_left_to_it),
	CHECK(who_has_just_parked_keeps_its_slot),
	CHECK(who_parked_long_ago_leaves),
	CHECK(one_takes_what_is_idle),
	CHECK(one_takes_what_is_free),
	CHECK(another_s_slot_is_not_used),
	CHECK(no_report_is_read_that_is_being_written),
};

int main(void)
{
	return ALL_HOLD(checks);
}
