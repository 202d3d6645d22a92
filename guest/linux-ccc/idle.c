// SPDX-License-Identifier: GPL-2.0
/*
 * When slots are short, connections that send nothing give theirs back.
 *
 * A slot is the flow's until it closes or has an ACK; a server with many idle
 * connections would otherwise hold all of them, and all who send would be
 * alone.  Whoever had to give his slot back takes another with his next data.
 */
#include <linux/sched.h>

#include "flow.h"

#define CCC_IDLE_MS	1000

static bool ccc_slot_is_idle(const struct ccc_slot *slot)
{
	u32 since = tcp_jiffies32 - READ_ONCE(slot->updated);

	return !READ_ONCE(slot->active) && since > msecs_to_jiffies(CCC_IDLE_MS);
}

/* The slot's socket with a reference, if it has one. */
static struct sock *ccc_slot_socket(struct ccc_slot *slot)
{
	struct sock *sk;

	spin_lock_bh(&slot->dev->slot_lock);
	/* It is there as long as it holds the slot, which ends under this lock. */
	sk = READ_ONCE(slot->sk);
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&slot->dev->slot_lock);
	return sk;
}

static bool ccc_give_back(struct ccc_slot *slot)
{
	struct sock *sk = ccc_slot_socket(slot);
	bool idle = false;

	if (!sk)
		return false;
	local_bh_disable();
	bh_lock_sock(sk);
	if (!sock_owned_by_user(sk) && READ_ONCE(slot->sk) == sk)
		idle = ccc_slot_is_idle(slot);
	if (idle)
		ccc_leave(sk, slot);
	bh_unlock_sock(sk);
	local_bh_enable();
	sock_put(sk);
	return idle;
}

/* Have up to @most slots given back; the number of those that were. */
u32 ccc_idle_give_back(struct ccc_dev *dev, u32 most)
{
	u32 i, n, given = 0;

	for (i = 0; i < dev->chunks; i++) {
		struct ccc_chunk *chunk = dev->chunk[i];

		for (n = 0; n < chunk->slots && given < most; n++) {
			if (test_bit(n, chunk->map) &&
			    ccc_slot_is_idle(&chunk->slot[n]))
				given += ccc_give_back(&chunk->slot[n]);
			cond_resched();
		}
	}
	return given;
}
