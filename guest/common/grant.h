/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a grant is worth to one flow.
 *
 * Every input that comes from the device is unbounded here: whatever a grant
 * says, the results are in range and nothing divides by zero.
 */
#ifndef CCC_COMMON_GRANT_H
#define CCC_COMMON_GRANT_H

#include "common/platform.h"

/*
 * No window that a device grants is larger, in packets: with segments of 512
 * bytes, as large as TCP's sequence space allows.  So no sum or product of
 * windows here, in TCP or in an inner algorithm (DCTCP multiplies them by
 * 1024 in 32 bits) runs over.
 */
#define CCC_CWND_MAX	(1u << 21)

/*
 * After what time without an answer a flow goes on alone, at the least, so that
 * a device that is busy loses nobody, and at the most, so that one that has
 * died holds nobody's window for long.
 */
#define CCC_STALE_MIN_US	10000u
#define CCC_STALE_MAX_US	10000000u

/* A device that says 0 wants to be waited for: that has an end too. */
static inline u32 ccc_stale_us(u32 wire)
{
	return clamp_t(u32, wire ? wire : U32_MAX, CCC_STALE_MIN_US,
		       CCC_STALE_MAX_US);
}

/*
 * Where the rounding of a slot's window begins, of 2^32: the slot's number
 * with its bits reversed (the van der Corput sequence).  Any run of slots has
 * its offsets spread evenly, so as many windows are rounded up as are rounded
 * down and the sum over the flows stays the VM's window.
 */
static inline u32 ccc_rounding_offset(u32 slot)
{
	slot = (slot >> 16) | (slot << 16);
	slot = ((slot & 0xff00ff00u) >> 8) | ((slot & 0x00ff00ffu) << 8);
	slot = ((slot & 0xf0f0f0f0u) >> 4) | ((slot & 0x0f0f0f0fu) << 4);
	slot = ((slot & 0xccccccccu) >> 2) | ((slot & 0x33333333u) << 2);
	return ((slot & 0xaaaaaaaau) >> 1) | ((slot & 0x55555555u) << 1);
}

/* What the level of a grant line is multiplied with for one flow. */
static inline u64 ccc_grant_units(u16 priority, u32 srtt_us, bool rate)
{
	if (!rate)
		return priority;
	if (!srtt_us)
		srtt_us = VIRTIO_CCC_UNIT_RTT_UNKNOWN_US;
	return (u64)priority * min_t(u32, srtt_us, VIRTIO_CCC_UNIT_RTT_MAX_US);
}

/*
 * Whether the level times the units has no more than 64 bits, which is so of any
 * window that is not very large: then no product of 128 is needed.
 */
static inline bool ccc_grant_is_short(u64 level, u64 units)
{
	if (units >> 16 == 0)
		return level >> 48 == 0;
	if (units >> 24 == 0)
		return level >> 40 == 0;
	return units >> 32 == 0 && level >> 32 == 0;
}

/* Window in packets that @level grants to @units, rounded from @offset. */
static inline u32 ccc_grant_packets(u64 level, u64 units, u32 mss, u32 offset)
{
	u64 bytes_q16, packets_q16;

	if (ccc_grant_is_short(level, units))
		bytes_q16 = (level * units) >> (VIRTIO_CCC_LEVEL_SHIFT - 16);
	else if (mul_u64_u64_shr(level, units, 64) >>
		 (VIRTIO_CCC_LEVEL_SHIFT - 16))
		return CCC_CWND_MAX;
	else
		bytes_q16 = mul_u64_u64_shr(level, units,
					    VIRTIO_CCC_LEVEL_SHIFT - 16);
	packets_q16 = div_u64(bytes_q16, max_t(u32, mss, 1));
	if (packets_q16 >> 48)
		return CCC_CWND_MAX;
	return min_t(u64, (packets_q16 + (offset >> 16)) >> 16, CCC_CWND_MAX);
}

/*
 * Where the bytes, in 2^16ths, begin that are granted as @packets; they end a segment
 * further.  Modulo 2^64: rounded up, nothing is a packet already.
 */
static inline u64 ccc_grant_begin(u32 packets, u32 mss, u32 offset)
{
	return (((u64)packets << 16) - (offset >> 16)) * mss;
}

/*
 * Whether @level grants the packets whose bytes begin at @begin, which takes no
 * division.  No says nothing where the product has more than 64 bits.
 */
static inline bool ccc_grant_stays(u64 level, u64 units, u32 mss, u64 begin)
{
	return ccc_grant_is_short(level, units) &&
	       ((level * units) >> (VIRTIO_CCC_LEVEL_SHIFT - 16)) - begin <
		       (u64)mss << 16;
}

/*
 * Where that has been said of one level: the first of those of which it is so, but
 * for one at each end, and how many there are.
 */
static inline u64 ccc_grant_first_level(u64 units, u64 begin)
{
	return div64_u64(begin << 16, units) + 1;
}

static inline u64 ccc_grant_levels(u64 units, u32 mss)
{
	u64 levels = div64_u64((u64)mss << VIRTIO_CCC_LEVEL_SHIFT, units);

	return levels ? levels - 1 : 0;
}

/* The same in bytes, with what packets round off; it saturates. */
static inline u64 ccc_grant_bytes(u64 level, u64 units)
{
	if (ccc_grant_is_short(level, units))
		return (level * units) >> VIRTIO_CCC_LEVEL_SHIFT;
	if (mul_u64_u64_shr(level, units, 64) >> VIRTIO_CCC_LEVEL_SHIFT)
		return U64_MAX;
	return mul_u64_u64_shr(level, units, VIRTIO_CCC_LEVEL_SHIFT);
}

/* The same with the slot's own limit. */
static inline u32 ccc_grant_capped(u32 packets, u64 cap_bytes, u32 mss)
{
	if (cap_bytes == VIRTIO_CCC_CAP_NONE)
		return packets;
	return min_t(u64, packets, div_u64(cap_bytes, max_t(u32, mss, 1)));
}

/*
 * Whether somebody has divided the aggregate anew: growth comes in small steps,
 * and reductions with an epoch.  With another window a flow has another RTT.
 */
static inline bool ccc_level_jumps(u64 before, u64 now)
{
	return now > before + before / 8 || now < before - before / 8;
}

/*
 * The epoch under which a lost segment was sent, as far as the device needs
 * it: the present one, which began at @since_us, or an older one.
 */
static inline u32 ccc_epoch_of_segment(u32 epoch, u64 since_us, u64 sent_us)
{
	return sent_us >= since_us ? epoch : epoch - 1;
}

/* Of a slot's next use; 0 is none. */
static inline u32 ccc_next_generation(u32 generation)
{
	return generation == U32_MAX ? 1 : generation + 1;
}

#endif /* CCC_COMMON_GRANT_H */
