/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of one tenant: the one element of an array that the loader and the
 * daemon map.  Its first part is what the daemon uses, laid out as an extent of
 * the device's tables (docs/virtio-ccc.md); the rest is the program's.
 */
#ifndef CCC_BPF_TABLE_H
#define CCC_BPF_TABLE_H

#include "common/cwnd.h"
#include "common/shadow.h"

/* A power of two, and a multiple of 64. */
#define CCC_SLOTS		1024u
#define CCC_LINES		16u
#define CCC_TENANTS		1024u
#define CCC_PAGE		4096
#define CCC_NAME		72

/* Of which the device is told at every change; compared as two words, without holes. */
struct ccc_signals {
	u16 congestion_events;
	u16 timeouts;
	u16 spurious_events;
	u16 priority;
	u8 state;
	u8 active;
	u8 reserved[6];
} __attribute__((aligned(8)));

/* report.h */
struct ccc_report {
	u64 acked_limited_bytes;
	u64 delivered_bytes;
	u64 averaged_us;	/* when a full window was averaged, or 0 */
	u64 notified_us;
	u64 notified_delivered_bytes;
	u32 notified_growth_bytes;
	u32 cwnd_growth_bytes;
	u32 tcp_delivered;	/* tp->delivered that delivered_bytes includes */
	u32 srtt_us;		/* over many round trips: shares by rate count it */
	u32 rtt_rounds;		/* that many, in 256ths */
	u32 tcp_due;		/* quiet.h: tp->delivered when a message is due */
	u32 rtt_us;		/* the least since the last message; 0: none */
	u32 sk_priority;	/* quiet.h: of the socket, of which now.priority is */
	u32 opening;		/* packets it had to send; 0: its ACKs tell */
	u8 srtt_rest;		/* of a microsecond that srtt_us is more */
	u8 cwnd_limited;	/* the window was the limit at the last ACK */
	u8 at_once;		/* the device is to be told, whatever is due */
	struct ccc_signals now;
	struct ccc_signals notified;
};

/* cwnd.h */
struct ccc_cwnd {
	u64 paced_until_us;	/* at the latest */
	u64 spread_rate;	/* bytes a second of less than two segments; 0: no */
	u16 ramp;		/* 256ths of a packet an ACK releases towards it */
	u8 shed;		/* 256ths of a packet an ACK takes towards it */
	u8 rest;		/* of a packet, so released or taken */
	u8 paced;		/* by a rate of ours, until it has had its window */
	u8 smooth;		/* at TCP's own rate, what is written at a time */
};

/* recovery.h */
struct ccc_recovery {
	u32 reduced_epoch;	/* the event's, if it is one */
	u32 congestion_epoch;	/* the latest event's */
	u32 tail_seq;		/* of a segment that was sent again as a probe */
	u8 tail;		/* there is one */
	u8 ece;			/* the ACK being processed carries ECE */
	u8 reduced;		/* by ssthresh(), for set_state() to report */
	u8 local;		/* and not for the network, so far */
	u8 undoable;		/* the latest event has not been undone */
};

/* shadow.h: the inner algorithm's own window, in packets. */
struct ccc_shadow {
	u64 charged_us;		/* when it was reduced for the flow's own event, */
	u32 cwnd;		/* 0: there is none */
	u32 cwnd_cnt;
	u32 ssthresh;
	u32 prior_cwnd;
	u32 rest;		/* of the acknowledged packets, when scaled */
	u32 epoch;		/* to which it has been brought */
	u32 quiet_acked;	/* packets of quiet ACKs it is yet to have, */
	u32 owed;		/* and, scaled, those before an ACK that is not limited */
	u16 beta;		/* the algorithm's latest reduction, of 65536 */
	u8 reducing;		/* between ssthresh() and set_state() */
	u8 charged;		/* which the device has not answered */
};

/* grant.h: the latest grant that was read in one piece, and the flow's part. */
struct ccc_grant {
	u64 level;
	u64 ssthresh_level;
	u64 units;		/* of the levels, the flow's */
	u64 cwnd_bytes;		/* its part of the level, when that was last divided */
	u64 begin;		/* of the bytes that are granted as these packets */
	u64 same_level;		/* quiet.h: the first level that grants them, */
	u64 same_levels;	/* how many do, */
	u64 accepted;		/* the first words of the device's for the slot */
	u64 status;		/* and of its status */
	u32 cwnd;		/* its part of the levels, in packets, less its own event */
	u32 granted;		/* the same without */
	u32 ssthresh;
	u32 seq;		/* of the line, and what else it was divided by */
	u32 line;
	u32 mss;
	u32 flags;
	u32 epoch;
	u32 instance;		/* of the device that gave it */
	u32 epoch_begin;	/* the first sequence number sent in this epoch */
	u32 rounding_offset;
	u32 report_interval_us;
	u8 seen;		/* an epoch of this instance has been */
	u8 epoch_known;		/* since when: not of the first */
	u8 coupled;		/* it is in force */
	u8 redivided;		/* since the one before, other than by an event */
};

/* grant.h: what is read of a grant line. */
struct ccc_line {
	u64 level;
	u64 ssthresh_level;
	u32 seq;
	u32 epoch;
	u32 flags;
	u32 rounding_offset;
	u32 report_interval_us;
};

/* Written under the lock of the slot's socket. */
struct ccc_flow {
	u32 generation;		/* of the slot's uses */
	u32 slot;
	u8 cubic;		/* the inner algorithm, else Reno */
	struct ccc_grant grant;
	struct ccc_report report;
	struct ccc_cwnd cwnd;
	struct ccc_recovery recovery;
	struct ccc_shadow shadow;
};

/*
 * What is used of a socket.  Functions that take this instead of the socket are
 * verified once, and not on each way that leads to them.
 */
struct ccc_tcp {
	u64 now_us;
	u32 cwnd;
	u32 ssthresh;
	u32 mss;
	u32 srtt_us;
	u32 rtt_us;		/* the latest sample */
	u32 min_rtt_us;
	u32 in_flight;
	u32 delivered;
	u32 snd_una;
	u32 snd_nxt;
	u16 priority;		/* as of a report */
	u8 state;		/* as of a report */
	u8 active;
};

/* What the loader and the program tell each other; src/table.rs has it too. */
struct ccc_control {
	u64 id;			/* of this table, never 0 */
	u32 tenant;		/* its number */
	u32 reserved;
	u64 lease_us;		/* grants hold until then, on CLOCK_MONOTONIC */
	u64 lost;		/* messages that found no room */
	char name[CCC_NAME];	/* the tenant's, for a loader that comes back */
	u64 in_use[CCC_SLOTS / 64];
	u64 idle[CCC_SLOTS / 64];	/* slots of flows that have parked, slot.h */
	u32 hand;		/* where it is looked for one of these */
};

struct ccc_table {
	struct virtio_ccc_report report[CCC_SLOTS];
	struct virtio_ccc_extent_status status;
	struct virtio_ccc_grant_line line[CCC_LINES];
	struct virtio_ccc_slot_grant grant[CCC_SLOTS];
	struct ccc_control control __attribute__((aligned(CCC_PAGE)));
	struct ccc_flow flow[CCC_SLOTS];
};

/* A message from the program to the loader: one for the device of a tenant. */
struct ccc_message {
	u32 tenant;
	u32 reserved;
	struct virtio_ccc_doorbell doorbell;
};

/* For the loader, so that the layout is said once. */
struct ccc_layout {
	u32 slots;
	u32 lines;
	u32 tenants;
	u32 grants_offset;
	u32 control_offset;
	u32 table_bytes;
};

#endif /* CCC_BPF_TABLE_H */
