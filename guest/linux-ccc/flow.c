// SPDX-License-Identifier: GPL-2.0
/*
 * How a flow takes a slot and gives it back.
 */
#include "flow.h"

static void ccc_slot_reset(const struct sock *sk, struct ccc_slot *slot)
{
	slot->coupled = false;
	slot->ece = false;
	slot->undoable = false;
	/* Wants all it can have, until its ACKs tell otherwise. */
	slot->limited = true;
	slot->reduced = false;
	slot->local = false;
	slot->tail_sent_us = 0;
	slot->charged = false;
	slot->twin.cwnd = 0;
	slot->share = 0;
	slot->climb = 0;
	slot->joining = false;
	slot->acked = 0;
	slot->delivered = 0;
	slot->grown = 0;
	slot->events = 0;
	slot->timeouts = 0;
	slot->undos = 0;
	slot->beta = CCC_BETA_HALF;
	slot->event_epoch = 0;
	slot->rtt = 0;
	slot->tcp_delivered = tcp_sk(sk)->delivered;
	memset(&slot->view, 0, sizeof(slot->view));
}

struct ccc_slot *ccc_enter(struct sock *sk)
{
	struct ccc_flow *flow = ccc_flow(sk);
	struct ccc_slot *slot;

	/*
	 * Its route is looked up when it sends, and anew after IP_TOS, SO_MARK
	 * and the like: it tries again with its next ACK.
	 */
	flow->tried = ccc_room_now() - 1;
	if (!__sk_dst_get(sk))
		return NULL;
	flow->tried = ccc_room_now();
	if (!ccc_in_scope(sk))
		return NULL;
	slot = ccc_slot_take();
	if (!slot)
		return NULL;
	ccc_slot_reset(sk, slot);
	WRITE_ONCE(slot->sk, sk);
	flow->slot = slot;
	ccc_report_first(sk, slot);
	return slot;
}

void ccc_leave(struct sock *sk, struct ccc_slot *slot)
{
	ccc_clock_count(slot, 0, false);
	ccc_report_last(sk, slot);
	ccc_flow(sk)->slot = NULL;
	ccc_show(sk, 0);
	ccc_slot_drop(slot);
}

/* The flow's slot, unless the device has gone or wants the chunk back. */
struct ccc_slot *ccc_slot(struct sock *sk)
{
	struct ccc_slot *slot = ccc_flow(sk)->slot;

	if (!slot || likely(ccc_slot_live(slot)))
		return slot;
	ccc_leave(sk, slot);
	return NULL;
}

/* The same for a sender, who takes another slot as soon as there may be one. */
struct ccc_slot *ccc_slot_or_enter(struct sock *sk)
{
	const struct ccc_flow *flow = ccc_flow(sk);
	struct ccc_slot *slot = ccc_slot(sk);

	if (slot || !flow->sender || flow->tried == ccc_room_now())
		return slot;
	return ccc_enter(sk);
}
