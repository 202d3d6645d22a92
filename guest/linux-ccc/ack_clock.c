// SPDX-License-Identifier: GPL-2.0
/*
 * The ACK clock: a flow that may open its window is released by the others'
 * ACKs.
 *
 * A flow that joins is granted its part of the window at once, and the others
 * have that much less.  But it has no ACKs of its own yet, and its part sent in
 * one burst would meet the others' packets, which are still in the queue.  So,
 * for every byte acknowledged to any flow of this guest behind the same
 * bottleneck, each waiting flow may open its window by its part of a byte: in a
 * round trip, in which the guest's whole window is acknowledged, by all that it
 * is granted.  In slow start, where any flow's ACK opens the window of all, the
 * same lets each take part without waiting for ACKs of its own.
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
static DEFINE_SPINLOCK(clock_lock);
static LIST_HEAD(released_flows);

/* Flows that are released, and sockets that are sent from, at one time. */
#define RELEASE_BUDGET	64

/* Where a clock begins: soon before it wraps, so that every run sees it wrap. */
#define CLOCK_START	(-(1ull << 34))

static bool is_earlier(struct rb_node *a, const struct rb_node *b)
{
	return ccc_ack_clock_after(rb_entry(b, struct ccc_release, waiting)->release_at,
				   rb_entry(a, struct ccc_release, waiting)->release_at);
}

static void arm(struct ccc_release *release, u32 mss)
{
	release->release_at = release->released_at +
			      ccc_ack_clock_time(mss, release->units);
	rb_add_cached(&release->waiting, &release->clock->waiting, is_earlier);
}

static void unlink_waiting(struct ccc_release *release)
{
	rb_erase_cached(&release->waiting, &release->clock->waiting);
	RB_CLEAR_NODE(&release->waiting);
}

static void disarm(struct ccc_release *release)
{
	if (!RB_EMPTY_NODE(&release->waiting))
		unlink_waiting(release);
	list_del_init(&release->released);
}

static void quit(struct ccc_release *release)
{
	if (!release->waits)
		return;
	disarm(release);
	release->waits = false;
	WRITE_ONCE(release->clock->waiters, release->clock->waiters - 1);
}

/* ccc_ack_clock_runs() looks without the lock. */
static void count(struct ccc_ack_clock *clock, u64 units, u64 driving)
{
	WRITE_ONCE(clock->units, clock->units + units);
	WRITE_ONCE(clock->driving, clock->driving + driving);
}

/*
 * Of the guest's window behind its line, the flow has @units.  With none, it
 * takes no part.  A flow that uses its window drives the clock: in a round trip
 * its part of the guest's window will have been acknowledged.
 */
void ccc_ack_clock_count(struct ccc_flow *flow, u64 units, bool drives)
{
	struct ccc_release *release = &flow->release;
	struct ccc_ack_clock *clock = NULL;

	if (units)
		clock = &flow->slot->dev->ack_clock[flow->grant.line];
	if (clock == release->clock && units == release->units &&
	    drives == release->drives)
		return;
	spin_lock_bh(&clock_lock);
	if (clock != release->clock || units != release->units)
		quit(release);
	if (release->clock)
		count(release->clock, -release->units,
		      release->drives ? -release->units : 0);
	if (clock)
		count(clock, units, drives ? units : 0);
	release->clock = clock;
	release->units = units;
	release->drives = drives;
	spin_unlock_bh(&clock_lock);
}

/* Whether others' ACKs will release what is granted to the flow within an RTT. */
bool ccc_ack_clock_runs(const struct ccc_flow *flow)
{
	const struct ccc_release *release = &flow->release;
	const struct ccc_ack_clock *clock = release->clock;
	u64 driving;

	if (!clock)
		return false;
	driving = READ_ONCE(clock->driving);
	return driving > (release->drives ? release->units : 0) &&
	       driving >= READ_ONCE(clock->units) / CCC_ACK_CLOCK_DRIVERS;
}

/*
 * The flow has more to send than its window allows.  Of what it is released,
 * @debt packets have been sent already.
 */
void ccc_ack_clock_wait(const struct sock *sk, struct ccc_flow *flow, u32 debt)
{
	struct ccc_release *release = &flow->release;
	struct ccc_ack_clock *clock = release->clock;
	u32 mss = tcp_sk(sk)->mss_cache;

	if (!clock || release->waits)
		return;
	spin_lock_bh(&clock_lock);
	/* Its own ACKs are its own affair. */
	if (clock->units > release->units) {
		if (!clock->waiters)
			clock->now = CLOCK_START;
		WRITE_ONCE(clock->waiters, clock->waiters + 1);
		release->waits = true;
		release->released_at =
			clock->now + ccc_ack_clock_time((u64)debt * mss,
							release->units);
		arm(release, mss);
	}
	spin_unlock_bh(&clock_lock);
}

void ccc_ack_clock_stop(struct ccc_flow *flow)
{
	if (!flow->release.waits)
		return;
	spin_lock_bh(&clock_lock);
	quit(&flow->release);
	spin_unlock_bh(&clock_lock);
}

/*
 * The packets that have been released since it was asked last.  What is above
 * CCC_RAMP_MAX is forfeited: the flow could not have used it in time.
 */
u32 ccc_ack_clock_take(struct ccc_flow *flow, u32 mss)
{
	struct ccc_release *release = &flow->release;
	u32 packets = 0;
	u64 now;

	spin_lock_bh(&clock_lock);
	now = release->waits ? release->clock->now : release->released_at;
	if (ccc_ack_clock_after(now, release->released_at))
		packets = ccc_ack_clock_packets(now - release->released_at,
						release->units, mss);
	if (packets) {
		disarm(release);
		release->released_at += ccc_ack_clock_time((u64)packets * mss,
							   release->units);
		arm(release, mss);
	}
	spin_unlock_bh(&clock_lock);
	return min(packets, CCC_RAMP_MAX);
}

static struct sock *next_released(void)
{
	struct ccc_release *release;
	struct sock *sk = NULL;

	spin_lock_bh(&clock_lock);
	release = list_first_entry_or_null(&released_flows, struct ccc_release,
					   released);
	if (release) {
		list_del_init(&release->released);
		/* Its flow has not left, so the socket is still there. */
		sk = container_of(release, struct ccc_flow, release)->slot->sk;
		sock_hold(sk);
	}
	spin_unlock_bh(&clock_lock);
	return sk;
}

/* TCP asks ccc_tcp_min_tso_segs() before it sends, which takes the packets. */
static void send_released(struct sock *sk)
{
	bh_lock_sock(sk);
	if (!test_and_set_bit(TCP_TSQ_DEFERRED, &sk->sk_tsq_flags))
		sock_hold(sk);
	/* Else the owner of the socket will, on releasing it. */
	if (!sock_owned_by_user(sk))
		sk->sk_prot->release_cb(sk);
	bh_unlock_sock(sk);
}

static void release_run(struct tasklet_struct *tasklet)
{
	unsigned int budget = RELEASE_BUDGET;
	struct sock *sk;

	while (budget-- && (sk = next_released())) {
		send_released(sk);
		sock_put(sk);
	}
	if (!list_empty_careful(&released_flows))
		tasklet_schedule(tasklet);
}

static DECLARE_TASKLET(release_tasklet, release_run);

static struct ccc_release *first_waiting(const struct ccc_ack_clock *clock)
{
	struct rb_node *node = rb_first_cached(&clock->waiting);

	return node ? rb_entry(node, struct ccc_release, waiting) : NULL;
}

/*
 * So many bytes of a flow have been acknowledged.  Whoever is not released
 * for want of budget is by the next ACK.
 */
void ccc_ack_clock_advance(struct ccc_ack_clock *clock, u64 bytes)
{
	unsigned int budget = RELEASE_BUDGET;
	struct ccc_release *next;
	bool any = false;

	spin_lock_bh(&clock_lock);
	clock->now += ccc_ack_clock_time(bytes, clock->units);
	while (budget-- && (next = first_waiting(clock)) &&
	       !ccc_ack_clock_after(next->release_at, clock->now)) {
		unlink_waiting(next);
		list_add_tail(&next->released, &released_flows);
		any = true;
	}
	spin_unlock_bh(&clock_lock);
	if (any)
		tasklet_schedule(&release_tasklet);
}

void ccc_ack_clock_init(struct ccc_flow *flow)
{
	RB_CLEAR_NODE(&flow->release.waiting);
	INIT_LIST_HEAD(&flow->release.released);
}

/* No flow is left when the module goes. */
void ccc_ack_clock_exit(void)
{
	tasklet_kill(&release_tasklet);
}
