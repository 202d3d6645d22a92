/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a flow reports, and when.
 */
#ifndef CCC_COMMON_REPORT_H
#define CCC_COMMON_REPORT_H

#include "common/platform.h"

/* No ACK acknowledges more packets than fit into TCP's largest window, 2^30. */
#define CCC_DELIVERED_MAX	(1u << 25)
/*
 * Round trips in the average that shares by rate count, and those after a jump
 * of the level that do not count.
 */
#define CCC_RTT_ROUNDS	32u
#define CCC_RTT_SETTLES	2u
/*
 * What a packet's stay in the window is told from: an average over so many
 * round trips at the least, or trains of packets decide, and no pause of so
 * many.
 */
#define CCC_RTT_HELD_ROUNDS	8u
#define CCC_RTT_PAUSE		4u

/*
 * SO_PRIORITY to the priority of a report: 0 is the default, as 1.  IP_TOS sets
 * it too, to @of_tos: that says how a packet is to be queued and nothing of a
 * flow's share, so such a priority is the default.
 */
static inline u16 ccc_priority(u32 sk_priority, u32 of_tos)
{
	if (sk_priority == of_tos)
		sk_priority = 0;
	sk_priority = clamp_t(u32, sk_priority, 1, VIRTIO_CCC_PRIORITY_MAX /
						   VIRTIO_CCC_PRIORITY_ONE);
	return sk_priority * VIRTIO_CCC_PRIORITY_ONE;
}

/*
 * The packets delivered since TCP's counter was @before.  It counts one way,
 * modulo 2^32, but tcp_disconnect() clears it before the algorithm is told
 * that the connection is over.  More than a window at once is such a step.
 */
static inline u32 ccc_delivered_packets(u32 now, u32 before)
{
	u32 packets = now - before;

	return now && packets <= CCC_DELIVERED_MAX ? packets : 0;
}

/* Packets in the bytes of the wire, which saturate below "unset". */
static inline u32 ccc_bytes(u32 packets, u32 mss)
{
	return min_t(u64, (u64)packets * mss, VIRTIO_CCC_SSTHRESH_UNSET - 1);
}

/* A round-trip sample in the wire's units, saturating. */
static inline u16 ccc_rtt_sample(u32 rtt_us)
{
	return min_t(u32, (rtt_us - 1) / VIRTIO_CCC_RTT_UNIT_US + 1, U16_MAX);
}

/* How much of a round trip it is, in 256ths, in which @delivered bytes are. */
static inline u32 ccc_rtt_part(u64 delivered, u32 cwnd)
{
	return div_u64(min_t(u64, delivered, cwnd) << 8, max_t(u32, cwnd, 1));
}

/*
 * TCP's own average follows the queue within a round trip.  Shares by rate
 * that did so too would chase each other, so they count an average over
 * CCC_RTT_ROUNDS round trips, of one of which this is a @part, in 256ths; over
 * fewer, if @rounds, in 256ths, is less.  While the
 * windows move, so do the queue and the RTT: what they settle to counts.
 * @rest is what it is more than the result, in 256ths of a microsecond: else
 * many small steps one way would be none.
 */
static inline u32 ccc_rtt_average(u32 average_us, u32 rtt_us, u32 part,
				  u32 rounds, u8 *rest)
{
	s64 difference = (s64)rtt_us - average_us;
	u32 seen = rounds >> 8;
	s64 moved;
	u32 over;

	if (!average_us)
		return rtt_us;
	if (seen < CCC_RTT_SETTLES)
		return average_us;
	over = clamp_t(u32, seen - CCC_RTT_SETTLES, 1, CCC_RTT_ROUNDS);
	moved = div_s64(difference * part, over) + *rest;
	*rest = moved & U8_MAX;
	return average_us + (s32)(moved >> 8);
}

/* Round trips that an average has seen, in 256ths, with this part of one too. */
static inline u32 ccc_rtt_rounds(u32 rounds, u32 part)
{
	return min_t(u32, rounds + part,
		     (CCC_RTT_SETTLES + CCC_RTT_ROUNDS) << 8);
}

/*
 * How long a packet has held its place in the window, the mean of those that
 * were delivered since @elapsed_us ago (Little's law).  That, over which the
 * window is the rate, is less than TCP's RTT where ACKs are delayed: TCP
 * measures the first packet of each ACK, which has waited the longest.  After
 * a pause, and in a short average of @rounds, TCP's has to do.
 */
static inline u32 ccc_rtt_held(u32 srtt_us, u64 elapsed_us, u64 delivered,
			       u32 cwnd, u32 rounds)
{
	if (!delivered || elapsed_us >= (u64)srtt_us * CCC_RTT_PAUSE ||
	    rounds >> 8 < CCC_RTT_SETTLES + CCC_RTT_HELD_ROUNDS)
		return srtt_us;
	return min_t(u64, div64_u64(elapsed_us * cwnd, delivered), 1u << 30);
}

/*
 * A doorbell is due when a certain part of a window is unreported, so that
 * the number of messages in an RTT does not depend on the window.
 */
static inline bool ccc_report_due(u64 delivered, u32 growth, u32 cwnd, u32 mss,
				  u32 shift)
{
	u32 threshold = max_t(u32, ccc_bytes(cwnd, mss) >>
				   min_t(u32, shift, 31), 1);

	return delivered >= threshold || growth >= threshold;
}

/*
 * The device bounds the messages of all flows together by the time between two
 * of each.  Progress can wait for that, since counters add up; events cannot.
 */
static inline bool ccc_report_too_soon(u64 elapsed_us, u32 interval_us)
{
	return elapsed_us < min_t(u32, interval_us,
				  VIRTIO_CCC_REPORT_INTERVAL_MAX_US);
}

#endif /* CCC_COMMON_REPORT_H */
