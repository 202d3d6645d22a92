// SPDX-License-Identifier: GPL-2.0
/*
 * The ACK clock: whoever may open his window is released by the others' ACKs.
 *
 * A flow that joins is granted its share at once, and the others have that much
 * less.  But it has no ACKs of its own yet, and its share sent in one burst
 * would meet the others' packets, which are still in the queue.  So, for every
 * byte acknowledged to any flow of this guest behind the same bottleneck, each
 * waiting flow may open its window by its part of a byte: in a round trip, in
 * which the guest's whole window is acknowledged, by its whole share.  In slow
 * start, where any flow's ACK opens the window of all, the same lets each take
 * part without waiting for ACKs of its own.
 *
 * The time of this clock is bytes acknowledged for each unit of priority, so
 * one step of it serves any number of waiting flows, each with its own weight;
 * they are kept in the order in which they can send their next packet.  While
 * nobody waits, the clock stands and costs nothing.
 *
 * A released flow cannot send from within another's ACK, whose socket is
 * locked: a tasklet hands it over to TCP's own deferred transmission.
 *
 * After the ACK clock of S. Islam, M. Welzl: "Start Me Up: Determining and
 * Sharing TCP's Initial Congestion Window", ANRW 2016, which serves one joiner
 * and counts packets.
 */
#include <linux/interrupt.h>

#include "flow.h"

/* Protects every clock, and the list of the released. */
static DEFINE_SPINLOCK(ccc_clock_lock);
static LIST_HEAD(ccc_clock_released);

/* Flows that are released, and sockets that are sent from, at one time. */
#define CCC_CLOCK_BUDGET	64

/* Where a clock begins: soon before it wraps, so that every run sees it wrap. */
#define CCC_CLOCK_START		(-(1ull << 34))

static bool ccc_clock_earlier(struct rb_node *a, const struct rb_node *b)
{
	return ccc_clock_after(rb_entry(b, struct ccc_slot, waiting)->release_at,
			       rb_entry(a, struct ccc_slot, waiting)->release_at);
}

static void ccc_clock_arm(struct ccc_slot *slot, u32 mss)
{
	slot->release_at = slot->released_at +
			   ccc_clock_time(mss, slot->units);
	rb_add_cached(&slot->waiting, &slot->clock->waiting, ccc_clock_earlier);
}

static void ccc_clock_unlink(struct ccc_slot *slot)
{
	rb_erase_cached(&slot->waiting, &slot->clock->waiting);
	RB_CLEAR_NODE(&slot->waiting);
}

static void ccc_clock_disarm(struct ccc_slot *slot)
{
	if (!RB_EMPTY_NODE(&slot->waiting))
		ccc_clock_unlink(slot);
	list_del_init(&slot->released);
}

static void ccc_clock_quit(struct ccc_slot *slot)
{
	if (!slot->waits)
		return;
	ccc_clock_disarm(slot);
	slot->waits = false;
	WRITE_ONCE(slot->clock->waiters, slot->clock->waiters - 1);
}

/*
 * Of the guest's window behind this line, the flow has @units.  With none, it
 * takes no part.  A flow that uses its window drives the clock: in a round trip
 * its part of the guest's window will have been acknowledged.
 */
void ccc_clock_count(struct ccc_slot *slot, u64 units, bool drives)
{
	struct ccc_clock *clock = NULL;

	if (units)
		clock = &slot->dev->clock[slot->view.line];
	if (clock == slot->clock && units == slot->units &&
	    drives == slot->drives)
		return;
	spin_lock_bh(&ccc_clock_lock);
	if (clock != slot->clock || units != slot->units)
		ccc_clock_quit(slot);
	if (slot->clock) {
		slot->clock->units -= slot->units;
		slot->clock->driving -= slot->drives ? slot->units : 0;
	}
	if (clock) {
		clock->units += units;
		clock->driving += drives ? units : 0;
	}
	slot->clock = clock;
	slot->units = units;
	slot->drives = drives;
	spin_unlock_bh(&ccc_clock_lock);
}

/* Whether the ACKs of others will release this flow's share within an RTT. */
bool ccc_clock_runs(const struct ccc_slot *slot)
{
	const struct ccc_clock *clock = slot->clock;

	return clock && READ_ONCE(clock->driving) >=
			READ_ONCE(clock->units) / CCC_CLOCK_DRIVERS;
}

/*
 * The flow has more to send than its window allows.  Of what it is released,
 * @debt packets have been sent already.
 */
void ccc_clock_wait(const struct sock *sk, struct ccc_slot *slot, u32 debt)
{
	struct ccc_clock *clock = slot->clock;
	u32 mss = tcp_sk(sk)->mss_cache;

	if (!clock || slot->waits)
		return;
	spin_lock_bh(&ccc_clock_lock);
	/* Its own ACKs are its own affair. */
	if (clock->units > slot->units) {
		if (!clock->waiters)
			clock->now = CCC_CLOCK_START;
		WRITE_ONCE(clock->waiters, clock->waiters + 1);
		slot->waits = true;
		slot->released_at = clock->now +
				    ccc_clock_time((u64)debt * mss,
						   slot->units);
		ccc_clock_arm(slot, mss);
	}
	spin_unlock_bh(&ccc_clock_lock);
}

void ccc_clock_stop(struct ccc_slot *slot)
{
	if (!slot->waits)
		return;
	spin_lock_bh(&ccc_clock_lock);
	ccc_clock_quit(slot);
	spin_unlock_bh(&ccc_clock_lock);
}

/*
 * The packets that have been released since it was asked last.  What is above
 * CCC_CLIMB_MAX is forfeited: the flow could not have used it in time.
 */
u32 ccc_clock_take(struct ccc_slot *slot, u32 mss)
{
	u32 packets = 0;

	spin_lock_bh(&ccc_clock_lock);
	if (slot->waits &&
	    ccc_clock_after(slot->clock->now, slot->released_at))
		packets = ccc_clock_packets(slot->clock->now - slot->released_at,
					    slot->units, mss);
	if (packets) {
		ccc_clock_disarm(slot);
		slot->released_at += ccc_clock_time((u64)packets * mss,
						    slot->units);
		ccc_clock_arm(slot, mss);
	}
	spin_unlock_bh(&ccc_clock_lock);
	return min(packets, CCC_CLIMB_MAX);
}

static struct sock *ccc_clock_next_released(void)
{
	struct ccc_slot *slot;
	struct sock *sk = NULL;

	spin_lock_bh(&ccc_clock_lock);
	slot = list_first_entry_or_null(&ccc_clock_released, struct ccc_slot,
					released);
	if (slot) {
		list_del_init(&slot->released);
		/* Its flow has not left, so the socket is still there. */
		sk = slot->sk;
		sock_hold(sk);
	}
	spin_unlock_bh(&ccc_clock_lock);
	return sk;
}

/* TCP asks ccc_min_tso_segs() before it sends, which takes the packets. */
static void ccc_clock_send(struct sock *sk)
{
	bh_lock_sock(sk);
	if (!test_and_set_bit(TCP_TSQ_DEFERRED, &sk->sk_tsq_flags))
		sock_hold(sk);
	/* Else whoever owns the socket will, when he releases it. */
	if (!sock_owned_by_user(sk))
		sk->sk_prot->release_cb(sk);
	bh_unlock_sock(sk);
}

static void ccc_clock_run(struct tasklet_struct *tasklet)
{
	unsigned int budget = CCC_CLOCK_BUDGET;
	struct sock *sk;

	while (budget-- && (sk = ccc_clock_next_released())) {
		ccc_clock_send(sk);
		sock_put(sk);
	}
	if (!list_empty_careful(&ccc_clock_released))
		tasklet_schedule(tasklet);
}

static DECLARE_TASKLET(ccc_clock_tasklet, ccc_clock_run);

static struct ccc_slot *ccc_clock_first(const struct ccc_clock *clock)
{
	struct rb_node *node = rb_first_cached(&clock->waiting);

	return node ? rb_entry(node, struct ccc_slot, waiting) : NULL;
}

/*
 * So many bytes of the flow have been acknowledged.  Whoever is not released
 * for want of budget is by the next ACK.
 */
void ccc_clock_tick(struct ccc_slot *slot, u64 bytes)
{
	struct ccc_clock *clock = slot->clock;
	unsigned int budget = CCC_CLOCK_BUDGET;
	struct ccc_slot *next;
	bool any = false;

	if (!clock || !READ_ONCE(clock->waiters))
		return;
	spin_lock_bh(&ccc_clock_lock);
	clock->now += ccc_clock_time(bytes, clock->units);
	while (budget-- && (next = ccc_clock_first(clock)) &&
	       !ccc_clock_after(next->release_at, clock->now)) {
		ccc_clock_unlink(next);
		list_add_tail(&next->released, &ccc_clock_released);
		any = true;
	}
	spin_unlock_bh(&ccc_clock_lock);
	if (any)
		tasklet_schedule(&ccc_clock_tasklet);
}

void ccc_clock_slot_init(struct ccc_slot *slot)
{
	RB_CLEAR_NODE(&slot->waiting);
	INIT_LIST_HEAD(&slot->released);
}

/* No flow is left when the module goes. */
void ccc_clock_exit(void)
{
	tasklet_kill(&ccc_clock_tasklet);
}
