// SPDX-License-Identifier: GPL-2.0
/*
 * The arithmetic of coupling.
 *
 * Every input that comes from the device is unbounded here: whatever a grant
 * says, the results are in range and nothing divides by zero.
 */
#include <linux/bitops.h>
#include <linux/limits.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/time64.h>

#include "ccc_share.h"
#include "virtio_ccc.h"

/*
 * Where the rounding of a slot's window begins, of 2^32: the slot's number
 * with its bits reversed (the van der Corput sequence).  Any run of slots has
 * its offsets spread evenly, so as many windows are rounded up as are rounded
 * down and the sum over the flows stays the VM's window.
 */
u32 ccc_slot_offset(u32 index)
{
	index = (index >> 16) | (index << 16);
	index = ((index & 0xff00ff00u) >> 8) | ((index & 0x00ff00ffu) << 8);
	index = ((index & 0xf0f0f0f0u) >> 4) | ((index & 0x0f0f0f0fu) << 4);
	index = ((index & 0xccccccccu) >> 2) | ((index & 0x33333333u) << 2);
	return ((index & 0xaaaaaaaau) >> 1) | ((index & 0x55555555u) << 1);
}

/* What the level of a line is multiplied with for one flow. */
u64 ccc_units(u16 priority, u32 srtt_us, bool rate)
{
	if (!rate)
		return priority;
	if (!srtt_us)
		srtt_us = VIRTIO_CCC_UNIT_RTT_UNKNOWN_US;
	return (u64)priority * min_t(u32, srtt_us, VIRTIO_CCC_UNIT_RTT_MAX_US);
}

/* Window in packets that @level grants to @units, rounded from @offset. */
u32 ccc_share_packets(u64 level, u64 units, u32 mss, u32 offset)
{
	u64 bytes_q16, packets_q16;

	if (mul_u64_u64_shr(level, units, 64) >> (VIRTIO_CCC_LEVEL_SHIFT - 16))
		return CCC_WINDOW_MAX;
	bytes_q16 = mul_u64_u64_shr(level, units, VIRTIO_CCC_LEVEL_SHIFT - 16);
	packets_q16 = div_u64(bytes_q16, max(mss, 1u));
	if (packets_q16 >> 48)
		return CCC_WINDOW_MAX;
	return min_t(u64, (packets_q16 + (offset >> 16)) >> 16, CCC_WINDOW_MAX);
}

/* A slot's own limit, in bytes, put on its share. */
u32 ccc_cap_packets(u32 share, u64 cap, u32 mss)
{
	if (cap == VIRTIO_CCC_CAP_NONE)
		return share;
	return min_t(u64, share, div_u64(cap, max(mss, 1u)));
}

/* A window that TCP will take, whatever was asked for and up to its limit. */
u32 ccc_window(u32 cwnd, u32 limit)
{
	return clamp(cwnd, 1u, clamp(limit, 1u, CCC_WINDOW_MAX));
}

/*
 * Packets that an acknowledged one may release on the way from @cwnd to @share,
 * so that one window of ACKs covers it: two, as in slow start, where the share
 * is no more than twice the window.
 */
u8 ccc_climb(u32 cwnd, u32 share)
{
	return clamp(share / max(cwnd, 1u), 1u, CCC_CLIMB_MAX - 1u) + 1;
}

/*
 * What @bytes are on the ACK clock of flows with @units in all.  Rounded up:
 * when the time of a packet is over, ccc_clock_packets() must find it.
 */
u64 ccc_clock_time(u64 bytes, u64 units)
{
	return DIV64_U64_ROUND_UP(min_t(u64, bytes, U32_MAX) << 32,
				  max_t(u64, units, 1));
}

/* The whole packets that @time of that clock releases to a flow of @units. */
u32 ccc_clock_packets(u64 time, u64 units, u32 mss)
{
	return min_t(u64, div_u64(mul_u64_u64_shr(time, units, 32),
				  max(mss, 1u)), U32_MAX);
}

/*
 * The window with which a flow joins others, who need a round trip to make room
 * for its share.  If their ACKs release it, no more than it takes to begin; if
 * not, half its share, which will find the room that they have made by then.
 */
u32 ccc_join_window(u32 cwnd, u32 share, bool clocked)
{
	return min(cwnd, clocked ? CCC_JOIN_PACKETS :
				   max(share / 2, CCC_JOIN_PACKETS));
}

/* The rate, in bytes a second, that spreads a window over a round trip. */
u64 ccc_pacing_rate(u32 packets, u32 mss, u32 rtt_us)
{
	return div_u64((u64)ccc_bytes(packets, mss) * USEC_PER_SEC,
		       max(rtt_us, 1u));
}

/*
 * A smaller share is in force at once.  A larger one is approached by what
 * the flow's own ACKs release, @climb for one: a window opened in one step
 * would leave as one burst.
 */
u32 ccc_apply_share(u32 cwnd, u32 share, u32 in_flight, u32 acked, u8 climb)
{
	u64 limit = (u64)in_flight + (u64)acked * climb;

	share = clamp(share, 1u, CCC_WINDOW_MAX);
	if (share <= cwnd)
		return share;
	return max_t(u64, cwnd, min_t(u64, share, limit));
}

/*
 * Packets that would have been acknowledged had the window been @twin and not
 * @cwnd; what is lost in the division counts next time.
 */
u32 ccc_scale_acked(u32 acked, u32 twin, u32 cwnd, u32 *rest)
{
	u64 scaled = (u64)acked * twin + *rest;

	cwnd = max(cwnd, 1u);
	scaled = div_u64_rem(scaled, cwnd, rest);
	return min_t(u64, scaled, CCC_WINDOW_MAX);
}

/* A share after a reduction by @beta, of 65536. */
u32 ccc_apply_beta(u32 share, u16 beta)
{
	return ((u64)share * beta) >> 16;
}

/*
 * The factor of a reduction to @ssthresh.  Small windows say more about
 * rounding than about the algorithm: there the last known factor stays.
 */
u16 ccc_beta(u32 ssthresh, u32 cwnd, u16 last)
{
	if (cwnd < 8)
		return last;
	return min_t(u64, div_u64((u64)ssthresh * CCC_BETA_ONE, cwnd), U16_MAX);
}

/*
 * SO_PRIORITY to the priority of a report: 0 is the default, as 1.  IP_TOS sets
 * it too, to @of_tos: that says how a packet is to be queued and nothing of a
 * flow's share, so such a priority is the default.
 */
u16 ccc_priority(u32 sk_priority, u32 of_tos)
{
	if (sk_priority == of_tos)
		sk_priority = 0;
	sk_priority = clamp(sk_priority, 1u,
			    (u32)VIRTIO_CCC_PRIORITY_MAX / VIRTIO_CCC_PRIORITY_ONE);
	return sk_priority * VIRTIO_CCC_PRIORITY_ONE;
}

/*
 * The epoch under which a lost segment was sent, as far as the device needs
 * it: the present one, which began at @since_us, or an older one.
 */
u32 ccc_event_epoch(u32 epoch, u64 since_us, u64 sent_us)
{
	return sent_us >= since_us ? epoch : epoch - 1;
}

/* Of a slot's next use; 0 is none. */
u32 ccc_next_generation(u32 generation)
{
	return generation == U32_MAX ? 1 : generation + 1;
}

/*
 * The packets delivered since TCP's counter was @before.  It counts one way,
 * modulo 2^32, but tcp_disconnect() clears it before the algorithm is told
 * that the connection is over.  More than a window at once is such a step.
 */
u32 ccc_delivered(u32 now, u32 before)
{
	u32 packets = now - before;

	return now && packets <= CCC_DELIVERED_MAX ? packets : 0;
}

/* A device that says 0 wants to be waited for: that has an end too. */
u32 ccc_stale_us(u32 wire)
{
	return clamp(wire ?: U32_MAX, CCC_STALE_MIN_US, CCC_STALE_MAX_US);
}

/* Whether @a is later than @b on the ACK clock, which wraps. */
bool ccc_clock_after(u64 a, u64 b)
{
	return (s64)(a - b) > 0;
}

/* Packets in the bytes of the wire, which saturate below "unset". */
u32 ccc_bytes(u32 packets, u32 mss)
{
	return min_t(u64, (u64)packets * mss, VIRTIO_CCC_SSTHRESH_UNSET - 1);
}

/* A round-trip sample in the wire's units, saturating. */
u16 ccc_wire_rtt(u32 rtt_us)
{
	return min_t(u32, (rtt_us - 1) / VIRTIO_CCC_RTT_UNIT_US + 1, U16_MAX);
}

/*
 * TCP's own average follows the queue within a round trip.  Shares by rate
 * that did so too would chase each other, so they count an average over
 * CCC_SLOW_RTTS round trips, in which @delivered bytes of a window of @cwnd
 * are a part of one; over fewer, if @rounds, in 256ths, is less.
 */
u32 ccc_slow_rtt(u32 slow_us, u32 rtt_us, u64 delivered, u32 cwnd, u32 rounds)
{
	s64 difference = (s64)rtt_us - slow_us;
	u32 part = min_t(u64, delivered, cwnd);
	u32 over = clamp(rounds >> 8, 1u, CCC_SLOW_RTTS);

	if (!slow_us || !cwnd)
		return rtt_us;
	return slow_us + (s32)div_s64(div_s64(difference * part, cwnd), over);
}

/* Round trips that an average has seen, in 256ths, with these bytes too. */
u32 ccc_slow_rounds(u32 rounds, u64 delivered, u32 cwnd)
{
	u32 part = div_u64(min_t(u64, delivered, cwnd) << 8, max(cwnd, 1u));

	return min(rounds + part, CCC_SLOW_RTTS << 8);
}

/*
 * Whether somebody has divided the aggregate anew: growth comes in small steps,
 * and reductions with an epoch.  With another window a flow has another RTT.
 */
bool ccc_level_jumps(u64 before, u64 now)
{
	return now > before + before / 8 || now < before - before / 8;
}

/* The average that is reported: steady while the flow's own moves little. */
u32 ccc_steady_rtt(u32 reported_us, u32 slow_us)
{
	u32 slack = reported_us / CCC_STEADY_RTT;

	if (slow_us > reported_us + slack || slow_us + slack < reported_us)
		return slow_us;
	return reported_us;
}

/*
 * A doorbell is due when a certain part of a window is unreported, so that
 * the number of messages in an RTT does not depend on the window.
 */
bool ccc_report_due(u64 delivered, u32 grown, u32 cwnd, u32 mss, u32 shift)
{
	u32 threshold = max(ccc_bytes(cwnd, mss) >> min(shift, 31u), 1u);

	return delivered >= threshold || grown >= threshold;
}
