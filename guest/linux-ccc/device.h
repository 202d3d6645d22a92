/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Congestion control coupling: what the parts of the module share.
 */
#ifndef CCC_H
#define CCC_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/virtio.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "ccc_compat.h"
#include "ccc_share.h"
#include "virtio_ccc.h"

#define CCC_MAX_CHUNKS	64
#define CCC_MAX_EVENTS	8
/* Lines lent to the device: groups that the flows of one guest can be in. */
#define CCC_LINES	16

struct ccc_clock;
struct ccc_dev;

/* The last grant that was read in one piece. */
struct ccc_grant_view {
	u64 level;
	u64 ssthresh_level;
	u64 cap;
	u32 flags;
	u32 epoch;
	u32 phase;
	u16 line;
};

/* What the doorbell last announced. */
struct ccc_rung {
	u64 delivered;
	u32 grown;
	u16 events;
	u16 timeouts;
	u16 undos;
	u16 priority;
	u8 state;
	u8 active;
};

/* The inner algorithm's own window, in packets; see shadow.c. */
struct ccc_twin {
	u32 cwnd;		/* 0: there is no twin */
	u32 cwnd_cnt;
	u32 ssthresh;
	u32 prior_cwnd;
	u32 rest;		/* of the acknowledged packets, when scaled */
	bool reducing;		/* between ssthresh() and set_state() */
};

/*
 * One slot of the tables.  While a flow holds it, all but the first block is
 * the flow's and under its socket's lock; debugfs and inet_diag look at it
 * without, and may see numbers of two moments.
 */
struct ccc_slot {
	struct ccc_dev *dev;
	struct ccc_chunk *chunk;
	struct virtio_ccc_report *report;
	const struct virtio_ccc_slot_grant *grant;
	u32 index;
	u32 generation;
	u32 turn;		/* of the chunk, when the flow took the slot */
	u32 offset;		/* where rounding begins */

	struct ccc_grant_view view;
	bool coupled;		/* the view is in force */
	bool ece;		/* the ACK being processed carries ECE */
	u64 tail_sent_us;	/* of a segment that was sent again as a probe */
	bool undoable;		/* the latest event has not been undone */
	bool limited;		/* the window was the limit at the last ACK */
	bool reduced;		/* by ssthresh(), for set_state() to report */
	bool local;		/* and not for the network, so far */
	u32 reduced_epoch;	/* the event's, if it is one */
	bool charged;		/* the twin's window is reduced for our own event */
	u32 followed;		/* epoch to which the twin has been brought */
	u32 share;		/* packets, as last read */
	u8 climb;		/* packets an ACK releases towards it */
	bool joining;		/* has not had its share yet */
	struct ccc_twin twin;

	/*
	 * The flow's part in the ACK clock, see ack_clock.c.  Others' ACKs
	 * take it from @waiting and put it on @released, under the clock's lock.
	 */
	struct ccc_clock *clock;	/* NULL: none */
	u64 units;
	bool drives;
	bool waits;
	u64 released_at;	/* the clock's time, up to which it was released */
	struct rb_node waiting;
	u64 release_at;		/* of its next packet */
	struct list_head released;

	struct sock *sk;	/* who holds the slot; NULL under slot_lock */
	u32 updated;		/* tcp_jiffies32 of the latest report */

	u32 seq;
	u64 acked;
	u64 delivered;
	u32 grown;
	u16 events;
	u16 timeouts;
	u16 undos;
	u16 beta;
	u32 event_epoch;
	u32 tcp_delivered;	/* tp->delivered that `delivered` includes */
	u16 rtt;		/* least since the last message, on the wire */
	u32 slow_us;		/* srtt, averaged over many round trips */
	u32 slow_rounds;	/* that many, in 256ths */
	u32 srtt_us;		/* as reported: shares by rate count it */
	u16 priority;		/* as reported */
	u8 state;
	bool active;
	struct ccc_rung rung;
};

/* A part of the tables, lent in one descriptor chain. */
struct ccc_chunk {
	struct virtio_ccc_extent *lend;
	struct virtio_ccc_report *report;
	struct virtio_ccc_extent_status *head;
	size_t report_size;
	size_t grant_size;
	u32 slots;
	u32 used;
	bool lent;		/* the device has the chain */
	bool refused;		/* the device has said that it will not keep it */
	bool asked;		/* the device wants it back */
	bool answered;		/* and has been told that it may have it */
	bool live;		/* the device has adopted it; false: leave its slots */
	u32 turn;		/* counts how often it was lent: flows of an earlier
				 * turn have to leave its slots too
				 */
	unsigned long *map;	/* slots in use */
	struct ccc_slot slot[];
};

/* Since when, by this machine's clock, a line has been in its epoch. */
struct ccc_watch {
	bool seen;
	u32 instance;
	u32 epoch;
	u64 since_us;
};

/* Of the flows behind one line; see ack_clock.c. */
struct ccc_clock {
	u64 now;		/* bytes acknowledged for a unit, of 2^-32; wraps */
	u64 units;		/* of all active flows */
	u64 driving;		/* of those that use their windows */
	u32 waiters;
	struct rb_root_cached waiting;	/* flows, the next to be released first */
};

/* Each has one writer at a time; debugfs reads them without a lock. */
struct ccc_stats {
	/* under the bell's lock */
	u64 doorbells;
	u64 kicks;
	u64 full;
	u64 rescans;
	u64 stale;
	/* of the device's work */
	u64 resyncs;
	u64 policies;
	u64 releases;
	u64 bad_events;
};

static inline void ccc_count(u64 *counter)
{
	WRITE_ONCE(*counter, *counter + 1);
}

/*
 * One device.  Every flow that holds a slot holds a reference, so tables
 * outlive the device itself and a flow can find out at its next ACK.
 */
struct ccc_dev {
	struct kref ref;
	struct rcu_head rcu;
	struct virtio_device *vdev;
	struct virtqueue *tableq;
	struct virtqueue *doorbellq;
	struct virtqueue *eventq;
	bool rate_share;
	bool slot_cap;
	u32 max_slots;
	u32 chunk_slots;
	u32 lines;
	u32 stale_us;

	/* Protects the chunks' use (map, used, live, turn), free, starved. */
	spinlock_t slot_lock;
	struct ccc_chunk *chunk[CCC_MAX_CHUNKS];
	u32 chunks;
	u32 free;
	bool starved;		/* a flow looked for a slot in vain */

	/* Protects doorbellq, the messages, up, lost, stale's inputs. */
	spinlock_t bell_lock;
	struct virtio_ccc_doorbell *bell;
	u16 *bell_free;
	u32 bells;
	u32 bell_nfree;
	u64 progress_us;	/* when the device last used a message */
	bool up;
	bool lost;		/* a message found no room */
	bool stale;		/* the device does not answer */
	struct ccc_stats stats;

	/* Protects watch. */
	spinlock_t watch_lock;
	struct ccc_watch watch[CCC_LINES];

	struct ccc_clock clock[CCC_LINES];

	/* tableq, eventq and lending belong to this work once probed. */
	struct delayed_work work;
	unsigned int poll_ms;
	unsigned int wait_ms;	/* before the next chunk is lent; 0: no need */
	unsigned long wait_since;	/* jiffies */
	struct virtio_ccc_event *event;
};

/* Fewer slots are free than a burst of new flows may need. */
static inline bool ccc_is_low(const struct ccc_dev *dev)
{
	return READ_ONCE(dev->free) < max(dev->chunk_slots / 4, 1u);
}

static inline u64 ccc_now_us(void)
{
	return tcp_clock_us();
}

/* ccc_tables.c: the tables' memory */
struct ccc_chunk *ccc_chunk_alloc(struct ccc_dev *dev, u32 first, u32 lines);
void ccc_dev_put(struct ccc_dev *dev);

static inline struct virtio_ccc_grant_line *ccc_lines(const struct ccc_dev *dev)
{
	return (struct virtio_ccc_grant_line *)(dev->chunk[0]->head + 1);
}

/* ccc_slot.c: which slots are free */

/*
 * Counts the occasions at which a flow without a slot may find one.  A flow
 * that has found none looks again when the count is not what it was.
 *
 * It is raised after the slots are there, with release, and read before they
 * are looked for, with acquire: who has seen the new count finds the slots,
 * and who has not looks again.
 */
extern atomic_t ccc_room;

static inline u16 ccc_room_now(void)
{
	return atomic_read_acquire(&ccc_room);
}

struct ccc_slot *ccc_slot_take(void);
void ccc_slot_drop(struct ccc_slot *slot);
void ccc_chunk_begin_turn(struct ccc_dev *dev, struct ccc_chunk *chunk);
void ccc_chunk_adopted(struct ccc_dev *dev, struct ccc_chunk *chunk);
void ccc_chunk_withdraw(struct ccc_dev *dev, struct ccc_chunk *chunk);

/* Whether the slot's chunk is still the device's, since the flow took it. */
static inline bool ccc_slot_live(const struct ccc_slot *slot)
{
	return READ_ONCE(slot->chunk->live) &&
	       READ_ONCE(slot->chunk->turn) == slot->turn;
}

/* ccc_doorbell.c: messages to the device */
bool ccc_bell_send(struct ccc_dev *dev, u16 op, u32 slot, u32 generation);
void ccc_ring(struct ccc_slot *slot, u16 op);

/* ccc_grant.c: what the device writes */
void ccc_grant_refresh(struct ccc_slot *slot);
u32 ccc_epoch_at(struct ccc_slot *slot, u64 sent_us);

/* ccc_clock.c: flows released by the ACKs of others */
void ccc_clock_slot_init(struct ccc_slot *slot);
void ccc_clock_count(struct ccc_slot *slot, u64 units, bool drives);
bool ccc_clock_runs(const struct ccc_slot *slot);
void ccc_clock_wait(const struct sock *sk, struct ccc_slot *slot, u32 debt);
void ccc_clock_stop(struct ccc_slot *slot);
u32 ccc_clock_take(struct ccc_slot *slot, u32 mss);
void ccc_clock_tick(struct ccc_slot *slot, u64 bytes);
void ccc_clock_exit(void);

/* ccc_lend.c: lending, and what the device has to say about it */
extern struct workqueue_struct *ccc_wq;

struct ccc_chunk *ccc_chunk_spare(struct ccc_dev *dev);
void ccc_event_offer(struct ccc_dev *dev, struct virtio_ccc_event *event);
void ccc_queue_callback(struct virtqueue *vq);
void ccc_work(struct work_struct *work);

/* ccc_idle.c: slots of flows that do not send */
u32 ccc_idle_give_back(struct ccc_dev *dev, u32 most);

/* ccc_virtio.c: a device's life */
int ccc_virtio_register(void);
void ccc_virtio_unregister(void);
struct ccc_dev *ccc_dev_rcu(void);

void ccc_debugfs_create(void);
void ccc_debugfs_remove(void);

#endif /* CCC_H */
