// SPDX-License-Identifier: GPL-2.0
/*
 * When slots are short, connections that send nothing give theirs back.
 *
 * A slot is the flow's until it closes or has an ACK; a server with many idle
 * connections would otherwise hold all of them, and all who send would be
 * alone.  A flow that had to give its slot back takes another with its next
 * data.
 */
#include <linux/sched.h>

#include "flow.h"

#define IDLE_MS	1000

static bool is_idle(const struct ccc_slot *slot)
{
	const struct ccc_report *report = &ccc_flow_of(slot)->report;
	u32 since = tcp_jiffies32 - READ_ONCE(report->updated);

	return !READ_ONCE(report->active) && since > msecs_to_jiffies(IDLE_MS);
}

/* Whether the slot's flow was idle, and has given it back. */
static bool give_back(struct ccc_slot *slot)
{
	struct sock *sk = ccc_slot_hold_socket(slot);
	bool idle = false;

	if (!sk)
		return false;
	local_bh_disable();
	bh_lock_sock(sk);
	if (!sock_owned_by_user(sk) && READ_ONCE(slot->sk) == sk)
		idle = is_idle(slot);
	if (idle)
		ccc_flow_detach(sk);
	bh_unlock_sock(sk);
	local_bh_enable();
	sock_put(sk);
	return idle;
}

/* Have up to @most slots given back; the number of those that were. */
u32 ccc_idle_reclaim(struct ccc_device *dev, u32 most)
{
	struct ccc_slot *slot;
	u32 given = 0;
	loff_t pos;

	for (pos = 0; given < most && (slot = ccc_slot_in_use(dev, &pos)); pos++) {
		if (is_idle(slot))
			given += give_back(slot);
		cond_resched();
	}
	return given;
}
