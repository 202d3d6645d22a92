/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slots that many sockets want at the same time: no slot has two owners, and in the
 * end none is in use or idle.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "tests/native/tcp.h"

#define THREADS		4
#define SOCKETS		1400
/* So few that most of the sockets want those of others. */
#define SLOTS		64
#define SECONDS		1

static struct tcp_sock sockets[SOCKETS];
/* TCP has a lock for each. */
static pthread_mutex_t locks[SOCKETS];
/* Which socket's a slot is, and 1 more; 0: nobody's. */
static u32 owner[SLOTS];
static u64 now_us = 1000000;
static u32 doubly_owned, changes;
static volatile bool ended;
static _Thread_local u32 seed;

static u32 chance(u32 of)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % of;
}

/* Another thread runs between two atomic instructions. */
static void give_way(void)
{
	if (!chance(16))
		sched_yield();
}

static u32 *owner_of_slot(u32 i)
{
	return &owner[ccc_sk((struct sock *)&sockets[i])->slot % SLOTS];
}

static void own(u32 i)
{
	u32 before = __atomic_exchange_n(owner_of_slot(i), i + 1, __ATOMIC_SEQ_CST);

	if (before && before != i + 1)
		__atomic_add_fetch(&doubly_owned, 1, __ATOMIC_SEQ_CST);
}

/* Before it is another's. */
static void disown(u32 i)
{
	u32 own = i + 1;

	if (!__atomic_compare_exchange_n(owner_of_slot(i), &own, 0, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		__atomic_add_fetch(&doubly_owned, 1, __ATOMIC_SEQ_CST);
}

/* It goes on, if it has parked and its slot is still there; else it may send. */
static bool has_a_slot(u32 i)
{
	struct sock *of = (struct sock *)&sockets[i];
	bool had = ccc_sk(of)->parked;

	sockets[i].packets_out = 1;
	sockets[i].snd_nxt = sockets[i].snd_una + MSS;
	ops->set_state(of, TCP_CA_Open);
	if (ccc_sk(of)->generation)
		return true;
	__atomic_add_fetch(&changes, had, __ATOMIC_SEQ_CST);
	if (!chance(4))
		return false;
	ops->cwnd_event(of, CA_EVENT_TX_START);
	return ccc_sk(of)->generation;
}

/* One of them does something. */
static void happen_to(u32 i)
{
	struct sock *of = (struct sock *)&sockets[i];

	sockets[i].tcp_mstamp = __atomic_add_fetch(&now_us, chance(3000),
						   __ATOMIC_SEQ_CST);
	if (!has_a_slot(i))
		return;
	own(i);
	switch (chance(8)) {
	case 0:		/* it goes on sending */
		return;
	case 1:
		disown(i);
		ops->release(of);
		ops->init(of);
		return;
	default:	/* all that was sent is acknowledged: it parks */
		disown(i);
		sockets[i].packets_out = 0;
		sockets[i].snd_una = sockets[i].snd_nxt;
		ops->cong_avoid(of, sockets[i].snd_una, 1);
	}
}

static void *run(void *number)
{
	seed = 7919 * (u32)(uintptr_t)number;
	while (!ended) {
		u32 i = chance(SOCKETS);

		pthread_mutex_lock(&locks[i]);
		happen_to(i);
		pthread_mutex_unlock(&locks[i]);
	}
	return NULL;
}

static void set_up(void)
{
	for (u32 i = 0; i < SOCKETS; i++) {
		sockets[i] = tcp;
		pthread_mutex_init(&locks[i], NULL);
	}
	for (u32 word = SLOTS / 64; word < CCC_SLOTS / 64; word++)
		table->control.in_use[word] = ~0ull;
	/* Nobody reads messages here. */
	ring_is_full = true;
	others = give_way;
}

static void no_slot_has_two_owners_and_none_is_left(void)
{
	struct timespec while_they_run = { .tv_sec = SECONDS };
	pthread_t threads[THREADS];

	set_up();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, (void *)(i + 1));
	nanosleep(&while_they_run, NULL);
	ended = true;
	for (u32 i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (u32 i = 0; i < SOCKETS; i++)
		ops->release((struct sock *)&sockets[i]);
	expect("slots with two owners", doubly_owned, 0);
	expect("slots in use at the end", table->control.in_use[0], 0);
	expect("idle slots at the end", table->control.idle[0], 0);
	expect_between("slots that another took", changes, 1, ~0u);
}

static const struct check checks[] = {
	CHECK(no_slot_has_two_owners_and_none_is_left),
};

int main(void)
{
	return ALL_HOLD(checks);
}
