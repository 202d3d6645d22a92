/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time of the ACK clock: bytes acknowledged for each unit, of 2^-32.
 */
#ifndef CCC_COMMON_ACK_CLOCK_H
#define CCC_COMMON_ACK_CLOCK_H

#include "common/platform.h"

/* It runs if one part in this many of the units uses its window. */
#define CCC_ACK_CLOCK_DRIVERS	4u

/*
 * What @bytes are on the clock of flows with @units in all.  Rounded up:
 * when the time of a packet is over, ccc_ack_clock_packets() must find it.
 */
static inline u64 ccc_ack_clock_time(u64 bytes, u64 units)
{
	u64 dividend = min_t(u64, bytes, U32_MAX) << 32;

	units = max_t(u64, units, 1);
	return div64_u64(dividend + units - 1, units);
}

/* The whole packets that @time of the clock releases to a flow of @units. */
static inline u32 ccc_ack_clock_packets(u64 time, u64 units, u32 mss)
{
	return min_t(u64, div_u64(mul_u64_u64_shr(time, units, 32),
				  max_t(u32, mss, 1)), U32_MAX);
}

/* Whether @a is later than @b on the clock, which wraps. */
static inline bool ccc_ack_clock_after(u64 a, u64 b)
{
	return (s64)(a - b) > 0;
}

#endif /* CCC_COMMON_ACK_CLOCK_H */
