/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire layout of the virtio congestion control coupling device (virtio-ccc).
 *
 * One header for every guest; host/ccc-proto mirrors it for the host.  The
 * device is described in docs/virtio-ccc.md, with the same names.  All fields
 * are little endian; windows and counters are in bytes; times are in
 * microseconds.
 *
 * The includer supplies the fixed-width types: in the Linux kernel __le16 and
 * friends from <linux/types.h>, elsewhere VIRTIO_CCC_NO_TYPES asks for plain
 * stdint ones (FreeBSD, tests).
 */
#ifndef VIRTIO_CCC_H
#define VIRTIO_CCC_H

#ifdef VIRTIO_CCC_NO_TYPES
#ifdef _KERNEL		/* FreeBSD's */
#include <sys/types.h>
#else
#include <stdint.h>
#endif
typedef uint8_t  ccc_u8;
typedef uint16_t ccc_le16;
typedef uint32_t ccc_le32;
typedef uint64_t ccc_le64;
#else
#include <linux/types.h>
typedef __u8   ccc_u8;
typedef __le16 ccc_le16;
typedef __le32 ccc_le32;
typedef __le64 ccc_le64;
#endif

/* Experimental: the table of the VIRTIO specification ends below, PCI at 63. */
#define VIRTIO_ID_CCC			63

/* Feature bits */
#define VIRTIO_CCC_F_RATE_SHARE		0	/* shares by rate: level counts srtt */
#define VIRTIO_CCC_F_SLOT_CAP		1	/* the cap of a slot grant is in use */

/* Virtqueues */
#define VIRTIO_CCC_VQ_TABLE		0
#define VIRTIO_CCC_VQ_DOORBELL		1
#define VIRTIO_CCC_VQ_EVENT		2
#define VIRTIO_CCC_VQ_COUNT		3

/* Device configuration space, read-only for the driver. */
struct virtio_ccc_config {
	ccc_le32 revision;		/* VIRTIO_CCC_REVISION of the device */
	ccc_le32 max_slots;		/* slots of all extents together */
	ccc_le32 max_grant_lines;	/* grant lines the device can use */
	ccc_le32 stale_us;		/* age at which an unanswered driver goes on alone */
};
#define VIRTIO_CCC_REVISION		1

/* ------------------------------------------------------------------------
 * tableq: one chain offers one extent of the tables, and stays with the
 * device.
 *   readable: struct virtio_ccc_extent, slots * struct virtio_ccc_report
 *   writable: struct virtio_ccc_extent_status,
 *             grant_lines * struct virtio_ccc_grant_line,
 *             slots * struct virtio_ccc_slot_grant
 * Descriptor boundaries carry no meaning, except that no structure may be
 * split between two descriptors.
 */
struct virtio_ccc_extent {
	ccc_le32 first_slot;		/* index of the extent's first slot */
	ccc_le32 slots;			/* slots in this extent */
	ccc_le32 grant_lines;		/* 0 in every extent but the first */
	ccc_le32 reserved;
};

/* ---- What the guest writes ------------------------------------------- */

/* Congestion state of a flow (virtio_ccc_report.state) */
#define VIRTIO_CCC_STATE_FREE		0	/* slot not in use */
#define VIRTIO_CCC_STATE_SS		1	/* slow start */
#define VIRTIO_CCC_STATE_CA		2	/* congestion avoidance */
#define VIRTIO_CCC_STATE_FR		3	/* fast recovery, or reducing after ECN */
#define VIRTIO_CCC_STATE_LOSS		4	/* after a retransmission timeout */

/* virtio_ccc_report.flags */
#define VIRTIO_CCC_R_ACTIVE		(1 << 0) /* has data outstanding or to send */
#define VIRTIO_CCC_R_CWND_LIMITED	(1 << 1) /* limited by cwnd, else by the application */
#define VIRTIO_CCC_R_OPENING		(1 << 2) /* begins, and inflight_bytes is all that it has to send */

#define VIRTIO_CCC_SSTHRESH_UNSET	0xffffffffu
#define VIRTIO_CCC_RTT_UNIT_US		32

/* Priority is fixed point with 8 fraction bits, from 1/256 to 10. */
#define VIRTIO_CCC_PRIORITY_ONE		256
#define VIRTIO_CCC_PRIORITY_MAX		2560

/*
 * One flow.  The first 64 bytes (hot half) change while the flow runs and are
 * written under the sequence count: odd while the driver writes.  Counters are
 * cumulative since registration and wrap; the device takes differences between
 * what it read, so messages may be merged, lost or repeated.
 */
struct virtio_ccc_report {
	ccc_le32 seq;
	ccc_u8   state;
	ccc_u8   flags;
	ccc_le16 priority;
	ccc_le64 acked_limited_bytes;	/* acknowledged while cwnd-limited */
	ccc_le64 delivered_bytes;	/* acknowledged, selectively too: never below the former */
	ccc_le32 cwnd_growth_bytes;	/* by the flow's own controller; may fall */
	ccc_le16 congestion_events;	/* loss recovery, ECN, timeout episode */
	ccc_le16 timeouts;		/* timeout episodes; in recovery they are no new event */
	ccc_le16 spurious_events;	/* latest event found spurious */
	ccc_le16 beta;			/* window factor at the latest event, of 65536 */
	ccc_le32 congestion_epoch;	/* epoch under which the lost segment was sent */
	ccc_le32 cwnd_bytes;
	ccc_le32 ssthresh_bytes;	/* VIRTIO_CCC_SSTHRESH_UNSET before the first event */
	ccc_le32 srtt_us;
	ccc_le32 min_rtt_us;		/* 0 before the first sample, as srtt_us */
	ccc_le32 inflight_bytes;
	ccc_le16 mss_bytes;		/* payload bytes of a full segment */
	ccc_le16 rtt_sample;		/* least since the last message, of VIRTIO_CCC_RTT_UNIT_US; 0: none */
	/* cold half: written before the flow is registered, then constant */
	ccc_le32 generation;		/* never 0; changes with each use of the slot */
	ccc_u8   family;		/* 4 or 6 */
	ccc_u8   reserved1;
	ccc_le16 sport;
	ccc_le16 dport;
	ccc_le16 reserved2;
	ccc_le32 reserved3;
	ccc_u8   saddr[16];		/* IPv4: first 4 bytes, rest 0; network order */
	ccc_u8   daddr[16];
	ccc_u8   algorithm[16];		/* name of the inner algorithm, zero padded */
};

/* doorbellq: "look at slot n" */
#define VIRTIO_CCC_OP_REGISTER		1
#define VIRTIO_CCC_OP_UPDATE		2
#define VIRTIO_CCC_OP_LEAVE		3
#define VIRTIO_CCC_OP_RESCAN		4	/* messages were lost: look at every slot */
#define VIRTIO_CCC_OP_RELEASE		5	/* use the chain of the extent that begins at slot */

struct virtio_ccc_doorbell {
	ccc_le16 op;
	ccc_le16 reserved0;
	ccc_le32 slot;
	ccc_le32 generation;
	ccc_le32 reserved1;
};

/* ---- What the host writes -------------------------------------------- */

#define VIRTIO_CCC_EXTENTS_MAX		64	/* offered at a time */

#define VIRTIO_CCC_EXTENT_PENDING	0	/* not accepted yet; the driver writes this */
#define VIRTIO_CCC_EXTENT_ACCEPTED	1	/* grant lines and slot grants are live */
#define VIRTIO_CCC_EXTENT_REFUSED	2	/* refused: malformed, or over max_slots */

struct virtio_ccc_extent_status {
	ccc_le32 status;		/* VIRTIO_CCC_EXTENT_* */
	ccc_le32 instance;		/* changes when the device has begun anew */
	ccc_u8   reserved[56];
};

/* virtio_ccc_grant_line.flags */
#define VIRTIO_CCC_L_COUPLED		(1 << 0) /* the line is in force */
#define VIRTIO_CCC_L_SLOW_START		(1 << 1) /* the aggregate is in slow start */
#define VIRTIO_CCC_L_RATE		(1 << 2) /* units count srtt: shares by rate */

#define VIRTIO_CCC_LEVEL_UNSET		0xffffffffffffffffull

/*
 * Grant of one group to this VM.  A flow's window is
 *	(level * units) >> VIRTIO_CCC_LEVEL_SHIFT bytes,
 * units being the reported priority (8 fraction bits), times the reported
 * srtt_us if VIRTIO_CCC_L_RATE is set; there 0 counts as the first value below,
 * and more than the second as the second.  Read under the sequence count.
 */
#define VIRTIO_CCC_UNIT_RTT_UNKNOWN_US	100000
#define VIRTIO_CCC_UNIT_RTT_MAX_US	0x100000
#define VIRTIO_CCC_LEVEL_SHIFT		32
struct virtio_ccc_grant_line {
	ccc_le32 seq;			/* odd while the device writes */
	ccc_le32 epoch;			/* changes with every reduction */
	ccc_le32 flags;
	ccc_le32 rounding_offset;	/* of 2^32: where this VM's rounding begins */
	ccc_le64 level;
	ccc_le64 ssthresh_level;	/* VIRTIO_CCC_LEVEL_UNSET before the first event */
	ccc_le32 group;			/* the host's number for the group */
	ccc_le32 report_interval_us;	/* a flow's messages of mere progress are no closer */
	ccc_le64 aggregate_level;	/* of one flow of priority 1 in the place of all; 0: not said */
	ccc_u8   reserved[16];
};
#define VIRTIO_CCC_REPORT_INTERVAL_MAX_US	250000	/* more counts as that */

/* virtio_ccc_slot_grant.flags */
#define VIRTIO_CCC_G_ACCEPTED		(1 << 0) /* flow is coupled through `line` */

struct virtio_ccc_slot_grant {
	ccc_le32 generation;		/* of the report this answers; written last */
	ccc_le16 line;
	ccc_le16 flags;
	ccc_le64 cap_bytes;		/* VIRTIO_CCC_CAP_NONE for none */
};
#define VIRTIO_CCC_CAP_NONE		0xffffffffffffffffull

/* eventq: buffers the driver offers, filled rarely */
#define VIRTIO_CCC_EV_RESYNC		1	/* report every slot anew */
#define VIRTIO_CCC_EV_POLICY		2	/* a group's policy or sharing changed */
#define VIRTIO_CCC_EV_RELEASE		3	/* release the extent at `value` */

struct virtio_ccc_event {
	ccc_le16 type;
	ccc_le16 reserved;
	ccc_le32 value;
};

#define VIRTIO_CCC_ASSERT(name, cond) _Static_assert(cond, name)
VIRTIO_CCC_ASSERT("config",   sizeof(struct virtio_ccc_config) == 16);
VIRTIO_CCC_ASSERT("extent",   sizeof(struct virtio_ccc_extent) == 16);
VIRTIO_CCC_ASSERT("report",   sizeof(struct virtio_ccc_report) == 128);
VIRTIO_CCC_ASSERT("cold",     __builtin_offsetof(struct virtio_ccc_report, generation) == 64);
VIRTIO_CCC_ASSERT("doorbell", sizeof(struct virtio_ccc_doorbell) == 16);
VIRTIO_CCC_ASSERT("status",   sizeof(struct virtio_ccc_extent_status) == 64);
VIRTIO_CCC_ASSERT("line",     sizeof(struct virtio_ccc_grant_line) == 64);
VIRTIO_CCC_ASSERT("grant",    sizeof(struct virtio_ccc_slot_grant) == 16);
VIRTIO_CCC_ASSERT("event",    sizeof(struct virtio_ccc_event) == 8);

#endif /* VIRTIO_CCC_H */
