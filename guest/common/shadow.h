/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the inner algorithm makes of a window of its own; see shadow.c.
 */
#ifndef CCC_COMMON_SHADOW_H
#define CCC_COMMON_SHADOW_H

#include "common/grant.h"

#define CCC_BETA_ONE	65536u
#define CCC_BETA_HALF	32768u

/* An event that is not answered for so long is none to the device. */
#define CCC_ANSWER_RTTS		4u
#define CCC_ANSWER_MIN_US	200000u

/*
 * Packets that would have been acknowledged had the window been @shadow and
 * not @cwnd; what is lost in the division counts next time.
 */
static inline u32 ccc_scale_acked(u32 acked, u32 shadow, u32 cwnd, u32 *rest)
{
	u64 scaled = (u64)acked * shadow + *rest;
	u64 packets;

	cwnd = max_t(u32, cwnd, 1);
	packets = div_u64(scaled, cwnd);
	*rest = scaled - packets * cwnd;
	return min_t(u64, packets, CCC_CWND_MAX);
}

/* A window after a reduction by @beta, of 65536. */
static inline u32 ccc_apply_beta(u32 cwnd, u16 beta)
{
	return ((u64)cwnd * beta) >> 16;
}

/*
 * The factor of a reduction to @ssthresh.  Small windows say more about
 * rounding than about the algorithm: there the last known factor stays.
 */
static inline u16 ccc_beta(u32 ssthresh, u32 cwnd, u16 last)
{
	if (cwnd < 8)
		return last;
	return min_t(u64, div_u64((u64)ssthresh * CCC_BETA_ONE, cwnd), U16_MAX);
}

#endif /* CCC_COMMON_SHADOW_H */
