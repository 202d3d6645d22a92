/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a flow that begins, or comes back, says that it wants, before its ACKs tell.
 *
 * One that wants all it can have for its first round trip, and has little to send,
 * keeps a part of the rate that nobody uses: where clients are far and answers short,
 * most of it.  So it says what it has to send if its window will not be the limit.
 */
#ifndef CCC_COMMON_OPENING_H
#define CCC_COMMON_OPENING_H

#include "common/cwnd.h"

/* Of a flow that does not know yet what it is granted. */
#define CCC_OPENING_MAX		64u
/*
 * It sends what it has within this part of a round trip: others give way to twice that
 * in a round trip, and a burst of all would overflow a short queue.
 */
#define CCC_OPENING_SPEED	4u

/* What it has to send, in packets; 0 if its window is to be the limit. */
static inline u32 ccc_opening(u32 written_bytes, u32 mss, u32 most)
{
	u32 packets;

	mss = max_t(u32, mss, 1);
	packets = written_bytes / mss + (written_bytes % mss != 0);
	return packets <= most ? packets : 0;
}

/* Whether it has written so much more that others have to know. */
static inline bool ccc_opening_grows(u32 opening, u32 written_bytes, u32 mss)
{
	return opening && written_bytes > (u64)(2 * opening - 1) * mss;
}

/* The window of which it is sent at the rate: at its own, if all may leave at once. */
static inline u32 ccc_opening_pace(u32 opening, u32 granted)
{
	if (opening <= CCC_BURST_PACKETS)
		return granted;
	return min_t(u64, granted, (u64)CCC_OPENING_SPEED * opening);
}

#endif /* CCC_COMMON_OPENING_H */
