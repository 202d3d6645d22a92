/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a flow takes a slot of its tenant's table, and gives it back.
 *
 * A flow that has nothing on its way parks: it sets its slot's bit in control.idle and
 * leaves the slot alone.  So does one whose peer has not answered for long.  Whoever
 * clears that bit has the slot: its socket, when it goes on, or, where no slot is free,
 * another that has data to send.  A program that does otherwise has another PROTOCOL in
 * src/mark.rs, for connections of before an upgrade keep theirs.
 */
#ifndef CCC_BPF_SLOT_H
#define CCC_BPF_SLOT_H

#include "report.h"

/* How long a flow that has parked keeps its slot if others want it. */
#define CCC_IDLE_US		1000000
/* Timeouts in a row after which nobody seems to be there. */
#define CCC_DEAF_TIMEOUTS	3
/* Attempts to take a slot that others want too. */
#define CCC_TAKE_TRIES		4

/*
 * The number of the lowest bit that is set, which counts those below it.  Without
 * branches: each would be one more way for the verifier to follow.
 */
static inline u32 lowest_bit(u64 word)
{
	u64 below = (word & -word) - 1;

	below -= (below >> 1) & 0x5555555555555555;
	below = (below & 0x3333333333333333) +
		((below >> 2) & 0x3333333333333333);
	below = (below + (below >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (below * 0x0101010101010101) >> 56;
}

/*
 * The lowest free slot: neighbours round evenly, and the device looks less.  Less
 * than 0: there is none.
 */
__weak int ccc_slot_take(struct ccc_table *table)
{
	int tries = 0;
	u32 word;

	if (!table)
		return -1;
	for (word = 0; word < CCC_SLOTS / 64; word++) {
		u64 *in_use = &table->control.in_use[word];
		u64 free = ~*(volatile u64 *)in_use;
		u32 bit;

		if (!free || tries == CCC_TAKE_TRIES)
			continue;
		bit = lowest_bit(free);
		if (!(__sync_fetch_and_or(in_use, 1ull << bit) & 1ull << bit))
			return word * 64 + bit;
		tries++;
	}
	return -1;
}

static inline void ccc_slot_drop(struct ccc_table *table, u32 slot)
{
	u64 before;

	/* What is fetched is of use, or this orders nothing (ccc_barrier()). */
	before = __sync_fetch_and_and(ccc_word_of(table->control.in_use, slot),
				      ~ccc_bit_of(slot));
	barrier_var(before);
}

/*
 * Nothing is on its way, for want of data or of a peer that takes it: the slot may be
 * another's.  What is sent next, or acknowledged, has the flow go on.
 */
static inline void ccc_flow_park(struct sock *sk, struct ccc_table *table)
{
	struct ccc_sock *csk = ccc_sk(sk);

	if (tcp_has_sent(tcp_sk(sk)) &&
	    inet_csk(sk)->icsk_retransmits < CCC_DEAF_TIMEOUTS)
		return;
	csk->parked = csk->generation;
	csk->generation = 0;
	ccc_barrier();	/* the last of the flow before it may be another's */
	__sync_fetch_and_or(ccc_word_of(table->control.idle, csk->slot),
			    ccc_bit_of(csk->slot));
}

/* The flow that has parked there leaves; its last report stands. */
static inline void vacate(struct ccc_table *table, u32 slot)
{
	struct virtio_ccc_report *wire =
		&table->report[slot & (CCC_SLOTS - 1)];
	u32 seq = wire->seq | 1;

	READ_FIELD(wire->seq) = seq;
	ccc_barrier();	/* odd before the change */
	wire->state = VIRTIO_CCC_STATE_FREE;
	ccc_barrier();	/* the change before even */
	READ_FIELD(wire->seq) = seq + 1;
	ccc_tell(table, VIRTIO_CCC_OP_LEAVE, slot,
		 ccc_flow_at(table, slot)->generation, true);
}

/* Whether the slot of a flow that has parked is the caller's from now on. */
static inline bool ccc_idle_clear(struct ccc_table *table, u32 slot)
{
	u64 bit = ccc_bit_of(slot);

	return __sync_fetch_and_and(ccc_word_of(table->control.idle, slot),
				    ~bit) & bit;
}

/* A flow that has parked goes on, unless another has its slot. */
static __noinline bool ccc_flow_unpark(struct sock *sk)
{
	struct ccc_sock *csk = ccc_sk(sk);
	struct ccc_table *table = ccc_table_of(csk->tenant);
	u32 parked = csk->parked, slot = csk->slot;
	volatile u32 *generation;

	csk->parked = 0;
	if (!table || table->control.id != csk->table_id)
		goto gone;
	generation = &ccc_flow_at(table, slot)->generation;
	if (*generation != parked || !ccc_idle_clear(table, slot))
		goto gone;
	/*
	 * Another took it just now, and has parked: it leaves, for it may have
	 * found its bit clear meanwhile and then gives the slot back no more.
	 */
	if (*generation != parked) {
		vacate(table, slot);
		ccc_slot_drop(table, slot);
		goto gone;
	}
	csk->generation = parked;
	return true;
gone:
	ccc_timer_off(sk);
	return false;
}

/* The socket's flow, unless its table or slot has gone. */
static inline struct ccc_flow *ccc_flow_get(struct sock *sk,
					    struct ccc_table **table)
{
	struct ccc_sock *csk = ccc_sk(sk);
	struct ccc_flow *flow;

	if (!csk->generation && !(csk->parked && ccc_flow_unpark(sk)))
		return NULL;
	*table = ccc_table_of(csk->tenant);
	if (!*table || (*table)->control.id != csk->table_id) {
		csk->generation = 0;
		ccc_timer_off(sk);
		return NULL;
	}
	flow = ccc_flow_at(*table, csk->slot);
	return flow->generation == csk->generation ? flow : NULL;
}

static inline bool idles_long(struct ccc_table *table, u32 slot, u64 now_us)
{
	u64 since_us = READ_FIELD(ccc_flow_at(table, slot)->report.notified_us);

	return (s64)(now_us - since_us) > CCC_IDLE_US;
}

/*
 * A slot whose flow has parked long ago.  One is looked at in each word, further on
 * each time, as a clock's hand goes: all have been after as many calls as a word has
 * bits.  Less than 0: there was none.
 */
__weak int ccc_slot_steal(struct ccc_table *table, u64 now_us)
{
	u32 hand, i;

	if (!table)
		return -1;
	hand = __sync_fetch_and_add(&table->control.hand, 1);
	for (i = 0; i < CCC_SLOTS / 64; i++) {
		u32 word = (hand + i) & (CCC_SLOTS / 64 - 1);
		u32 first = hand & 63;
		u64 idle = *(volatile u64 *)ccc_word_of(table->control.idle,
							word * 64);
		u64 ahead = idle & ~0ull << first;
		u32 slot = word * 64 + lowest_bit(ahead ? ahead : idle);

		if (!idle || !idles_long(table, slot, now_us) ||
		    !ccc_idle_clear(table, slot))
			continue;
		vacate(table, slot);
		return slot;
	}
	return -1;
}

/* It has data to send: it takes a slot, if there is one for it. */
static inline struct ccc_flow *ccc_flow_take(struct sock *sk,
					     struct ccc_table **table)
{
	struct ccc_sock *csk = ccc_sk(sk);
	u64 now_us = tcp_sk(sk)->tcp_mstamp;
	struct ccc_flow *flow;
	int tenant, slot;
	u32 generation;

	csk->sender = 1;
	csk->look_us = now_us + CCC_LOOK_US;
	if (!ccc_in_scope(sk))
		return NULL;
	tenant = ccc_tenant_of((u64)BPF_CORE_READ(sk, sk_cgrp_data.cgroup),
			       BPF_CORE_READ(sk, __sk_common.skc_net.net,
					     net_cookie));
	if (tenant < 0)
		return NULL;
	*table = ccc_table_of(tenant);
	if (!*table || !ccc_table_is_live(*table, now_us))
		return NULL;
	slot = ccc_slot_take(*table);
	if (slot < 0)
		slot = ccc_slot_steal(*table, now_us);
	if (slot < 0)
		return NULL;
	flow = ccc_flow_at(*table, slot);
	generation = ccc_next_generation(flow->generation);
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->generation = generation;
	flow->slot = slot;
	flow->cubic = csk->cubic;
	flow->shadow.beta = CCC_BETA_HALF;
	csk->rated = 0;
	csk->watched = 1;
	csk->settled = 0;
	csk->table_id = (*table)->control.id;
	csk->tenant = tenant;
	csk->slot = slot;
	csk->generation = generation;
	return flow;
}

/* What the device is to have of it is told while the slot is still the flow's. */
static inline void ccc_flow_leave(struct sock *sk, struct ccc_table *table,
				  struct ccc_flow *flow)
{
	u32 slot = flow->slot;

	ccc_report_last(sk, table, flow);
	ccc_sk(sk)->generation = 0;
	ccc_slot_drop(table, slot);
}

#endif /* CCC_BPF_SLOT_H */
