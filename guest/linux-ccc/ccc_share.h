/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The arithmetic of coupling, without any kernel state: what a grant is worth
 * in packets, how fast a window may rise, when a report is due.
 */
#ifndef CCC_SHARE_H
#define CCC_SHARE_H

#include <linux/types.h>

#define CCC_BETA_ONE	65536u
#define CCC_BETA_HALF	32768u
/*
 * No window that a device grants is larger, in packets: with segments of 512
 * bytes, as large as TCP's sequence space allows.  So no sum or product of
 * windows here, in TCP or in an inner algorithm (DCTCP multiplies them by
 * 1024 in 32 bits) runs over.
 */
#define CCC_WINDOW_MAX	(1u << 21)
/*
 * After what time without an answer a flow goes on alone, at the least, so that
 * a device that is busy loses nobody, and at the most, so that one that has
 * died holds nobody's window for long.
 */
#define CCC_STALE_MIN_US	10000u
#define CCC_STALE_MAX_US	10000000u
/* No ACK acknowledges more packets than fit into TCP's largest window, 2^30. */
#define CCC_DELIVERED_MAX	(1u << 25)
/* A joiner is not to send more than this many packets for one ACK. */
#define CCC_CLIMB_MAX	8u
/* What a joiner begins with if the ACK clock runs: if at least one part in
 * CCC_CLOCK_DRIVERS of the units is of flows that use their windows.
 */
#define CCC_JOIN_PACKETS	2u
#define CCC_CLOCK_DRIVERS	4u
/* Round trips in the average that shares by rate count, and how far it may
 * go from what is reported, as a part of it.
 */
#define CCC_SLOW_RTTS	32u
#define CCC_STEADY_RTT	32

u32 ccc_slot_offset(u32 index);
u64 ccc_units(u16 priority, u32 srtt_us, bool rate);
u32 ccc_share_packets(u64 level, u64 units, u32 mss, u32 offset);
u32 ccc_cap_packets(u32 share, u64 cap, u32 mss);
u32 ccc_window(u32 cwnd, u32 limit);
u8 ccc_climb(u32 cwnd, u32 share);
u64 ccc_clock_time(u64 bytes, u64 units);
u32 ccc_clock_packets(u64 time, u64 units, u32 mss);
u32 ccc_join_window(u32 cwnd, u32 share, bool clocked);
u64 ccc_pacing_rate(u32 packets, u32 mss, u32 rtt_us);
u32 ccc_apply_share(u32 cwnd, u32 share, u32 in_flight, u32 acked, u8 climb);
u32 ccc_scale_acked(u32 acked, u32 twin, u32 cwnd, u32 *rest);
u32 ccc_apply_beta(u32 share, u16 beta);
u16 ccc_beta(u32 ssthresh, u32 cwnd, u16 last);
u16 ccc_priority(u32 sk_priority, u32 of_tos);
u32 ccc_event_epoch(u32 epoch, u64 since_us, u64 sent_us);
u32 ccc_next_generation(u32 generation);
u32 ccc_delivered(u32 now, u32 before);
u32 ccc_stale_us(u32 wire);
bool ccc_clock_after(u64 a, u64 b);
u32 ccc_bytes(u32 packets, u32 mss);
u16 ccc_wire_rtt(u32 rtt_us);
u32 ccc_slow_rtt(u32 slow_us, u32 rtt_us, u64 delivered, u32 cwnd, u32 rounds);
u32 ccc_slow_rounds(u32 rounds, u64 delivered, u32 cwnd);
bool ccc_level_jumps(u64 before, u64 now);
u32 ccc_steady_rtt(u32 reported_us, u32 slow_us);
bool ccc_report_due(u64 delivered, u32 grown, u32 cwnd, u32 mss, u32 shift);

#endif /* CCC_SHARE_H */
