/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver half of the module: the device, the slots of its tables and what
 * goes over its queues.  Of TCP it knows only the socket that holds a slot.
 * Each structure is written by the file that is named above it.
 */
#ifndef CCC_DEVICE_H
#define CCC_DEVICE_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/rbtree.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/u64_stats_sync.h>
#include <linux/virtio.h>
#include <linux/workqueue.h>
#include <net/tcp.h>

#include "ccc_compat.h"
#include "common/grant.h"

/* Grant lines offered to the device: groups that one guest's flows can be in. */
#define CCC_GRANT_LINES		16
/* For struct ccc_flow, of which the driver knows no more than this. */
#define CCC_SLOT_PRIV_SIZE	448

struct ccc_device;
struct ccc_extent;

/*
 * slot.c: one slot of the tables.  While a flow holds it, @priv is the flow's
 * and under its socket's lock.
 */
struct ccc_slot {
	struct ccc_device *dev;
	struct ccc_extent *extent;
	struct virtio_ccc_report *report;
	const struct virtio_ccc_slot_grant *grant;
	u32 index;
	u32 rounding_offset;
	u32 generation;
	u32 offer_seq;		/* of the extent, when the flow took the slot */
	struct sock *sk;	/* who holds it; NULL under the slots' lock */
	u64 priv[CCC_SLOT_PRIV_SIZE / sizeof(u64)];
};

/* extent.c: a part of the tables, offered in one descriptor chain. */
struct ccc_extent {
	struct virtio_ccc_extent *header;
	struct virtio_ccc_report *report;
	struct virtio_ccc_extent_status *status;
	struct virtio_ccc_grant_line *line;
	struct virtio_ccc_slot_grant *grant;
	size_t report_bytes;
	size_t grant_bytes;
	u32 first;
	u32 slots;
	unsigned long *in_use;

	/* slot.c */
	struct {
		u32 count;
		bool accepted;	/* by the device; false: leave its slots */
		/*
		 * How often it was offered: flows of an earlier offer have to
		 * leave its slots too.
		 */
		u32 offer_seq;
	} use;

	/* control.c */
	struct {
		bool held;	/* the device has the chain */
		bool refused;
		bool release_asked;
		bool release_answered;
	} offer;

	struct ccc_slot slot[];
};

/* slot.c: which slots are free; the lock is for the extents' use too. */
struct ccc_slots {
	spinlock_t lock;
	struct ccc_extent *extent[VIRTIO_CCC_EXTENTS_MAX];
	u32 extents;
	u32 free;
	bool starved;		/* a flow looked for a slot in vain */
};

/*
 * doorbell.c: messages to the device, under the lock.  debugfs reads statistics
 * without one.
 */
struct ccc_doorbell {
	spinlock_t lock;
	struct virtio_ccc_doorbell *message;
	struct scatterlist *place;	/* of each message */
	u16 *free;
	u32 messages;
	u32 free_count;
	u64 progress_us;	/* when the device last used a message */
	bool up;		/* the device's queues may be used */
	bool lost;		/* a message found no room */
	bool stale;		/* the device does not answer */
	struct {
		u64_stats_t sent;
		u64_stats_t kicks;
		u64_stats_t full;
		u64_stats_t rescans;
		u64_stats_t stale;
	} stats;
};

/* grant.c: since when, by this machine's clock, a line has been in its epoch. */
struct ccc_epoch {
	bool seen;
	u32 instance;
	u32 number;
	u64 since_us;
};

struct ccc_epochs {
	spinlock_t lock;
	struct ccc_epoch line[CCC_GRANT_LINES];
};

/* grant.c: the latest grant that was read in one piece, and the flow's part. */
struct ccc_grant {
	u64 level;
	u64 ssthresh_level;
	u64 cap_bytes;
	u64 units;		/* of the levels, the flow's */
	u64 cwnd_bytes;		/* its part of the level, not rounded */
	u32 cwnd;		/* its part of the levels, in packets */
	u32 ssthresh;
	u32 flags;
	u32 epoch;
	u32 rounding_offset;
	u32 report_interval_us;
	u32 seq;		/* of the line that was read */
	u32 mss;		/* with which it was divided; */
	u32 part;		/* cwnd, as it came of that */
	u64 begin;		/* of the bytes that are granted as that */
	u16 line;
	bool coupled;		/* it is in force */
	bool redivided;		/* since the one before, other than by an event */
};

/* ack_clock.c: of the flows behind one grant line. */
struct ccc_ack_clock {
	u64 now;		/* bytes acknowledged for a unit, of 2^-32; wraps */
	u64 units;		/* of all active flows */
	u64 driving;		/* of those that use their windows */
	u32 waiters;
	struct rb_root_cached waiting;	/* flows, the next to be released first */
};

/* control.c: tableq, eventq and offers belong to this work once probed. */
struct ccc_control {
	struct delayed_work work;
	struct virtio_ccc_event *event;
	unsigned int poll_ms;
	unsigned int wait_ms;		/* before the next offer; 0: no need */
	unsigned long wait_since;	/* jiffies */
	struct {
		u64_stats_t resyncs;
		u64_stats_t policies;
		u64_stats_t releases;
		u64_stats_t bad_events;
	} stats;
};

/* virtio.c: what device and driver have agreed on. */
struct ccc_config {
	bool rate_share;
	bool slot_cap;
	u32 max_slots;
	u32 extent_slots;
	u32 grant_lines;
	u32 stale_us;
};

struct ccc_queues {
	struct virtqueue *table;
	struct virtqueue *doorbell;
	struct virtqueue *event;
};

/*
 * One device.  Every flow that holds a slot holds a reference, so tables
 * outlive the device itself and a flow can find out at its next ACK.
 */
struct ccc_device {
	struct kref ref;
	struct rcu_head rcu;
	struct virtio_device *vdev;
	struct ccc_config config;
	struct ccc_queues vq;
	struct ccc_slots slots;
	struct ccc_doorbell doorbell;
	struct ccc_epochs epochs;
	struct ccc_ack_clock ack_clock[CCC_GRANT_LINES];
	struct ccc_control control;
};

extern struct workqueue_struct *ccc_device_wq;

int ccc_device_init(void);
void ccc_device_exit(void);
struct ccc_device *ccc_device_alloc(struct virtio_device *vdev);
void ccc_device_put(struct ccc_device *dev);
int ccc_device_publish(struct ccc_device *dev);
void ccc_device_unpublish(void);
struct ccc_device *ccc_device_rcu(void);

static inline bool ccc_device_is_up(const struct ccc_device *dev)
{
	return READ_ONCE(dev->doorbell.up);
}

struct ccc_extent *ccc_extent_alloc(u32 first, u32 slots, u32 lines);
void ccc_extent_clear(struct ccc_extent *extent);
void ccc_extent_free(struct ccc_extent *extent);

/*
 * Counts the occasions at which a flow without a slot may find one.  A flow
 * that has found none looks again when the count is not what it was.
 *
 * It is raised after the slots are there, with release, and read before they
 * are looked for, with acquire: who has seen the new count finds the slots,
 * and who has not looks again.
 */
extern atomic_t ccc_slot_seq;

static inline u16 ccc_slot_seq_read(void)
{
	return atomic_read_acquire(&ccc_slot_seq);
}

struct ccc_slot *ccc_slot_take(struct sock *sk);
void ccc_slot_drop(struct ccc_slot *slot);
struct sock *ccc_slot_hold_socket(struct ccc_slot *slot);
struct ccc_slot *ccc_slot_in_use(const struct ccc_device *dev, loff_t *pos);
void ccc_slot_add_extent(struct ccc_device *dev, struct ccc_extent *extent);
void ccc_slot_begin_offer(struct ccc_device *dev, struct ccc_extent *extent);
void ccc_slot_accepted(struct ccc_device *dev, struct ccc_extent *extent);
void ccc_slot_withdraw(struct ccc_device *dev, struct ccc_extent *extent);

/* Fewer slots are free than a burst of new flows may need. */
static inline bool ccc_slot_is_scarce(const struct ccc_device *dev)
{
	return READ_ONCE(dev->slots.free) < max(dev->config.extent_slots / 4, 1u);
}

int ccc_doorbell_init(struct ccc_device *dev);
void ccc_doorbell_start(struct ccc_device *dev);
void ccc_doorbell_stop(struct ccc_device *dev);
bool ccc_doorbell_send(struct ccc_device *dev, u16 op, u32 slot,
		       u32 generation);

u32 ccc_grant_instance(const struct ccc_device *dev);
bool ccc_grant_is_accepted(const struct ccc_slot *slot, u16 *line);
u64 ccc_grant_cap(const struct ccc_slot *slot);
u32 ccc_grant_aggregate(const struct ccc_slot *slot,
			const struct ccc_grant *grant, u32 srtt_us);
void ccc_grant_refresh(const struct ccc_slot *slot, struct ccc_grant *grant,
		       u16 priority, u32 srtt_us, u32 mss);
u32 ccc_grant_epoch_at(struct ccc_device *dev, const struct ccc_grant *grant,
		       u64 sent_us);

/* When slots are short: has up to @most given back by who stands on the driver. */
extern u32 (*ccc_control_reclaim)(struct ccc_device *dev, u32 most);

int ccc_control_init(struct ccc_device *dev);
void ccc_control_start(struct ccc_device *dev);
void ccc_control_stop(struct ccc_device *dev);
void ccc_control_callback(struct virtqueue *vq);

int ccc_virtio_register(void);
void ccc_virtio_unregister(void);

void ccc_debugfs_create(void);
void ccc_debugfs_remove(void);

#endif /* CCC_DEVICE_H */
