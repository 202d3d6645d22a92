/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a congestion window goes to what is granted.
 */
#ifndef CCC_COMMON_CWND_H
#define CCC_COMMON_CWND_H

#include "common/grant.h"
#include "common/report.h"

/*
 * No less, whatever is granted: the receiver may hold back the ACK of a single
 * segment (RFC 5681, 4.2).
 */
#define CCC_CWND_MIN	2u
/*
 * Where a round trip is shorter, half a window is too short a time to wait for.
 * No grant, however small, makes a flow wait for more round trips, or for so
 * long that the device, which hears nothing meanwhile, takes it for idle: after
 * a second.
 */
#define CCC_SPREAD_RTT_MIN_US	10000u
#define CCC_SPREAD_RTTS_MAX	15u
#define CCC_SPREAD_US_MAX	750000u
/* A flow is not to send more than this many packets for one ACK. */
#define CCC_RAMP_MAX	8u
/* What a flow that joins begins with if the ACK clock runs. */
#define CCC_JOIN_PACKETS	2u
/*
 * The most that it takes at once, whatever is granted: more would fill a guest's
 * own queues, for which TCP reduces as long as they stay full.
 */
#define CCC_JOIN_MAX		4096u
/* A window that is not in flight after so many round trips has another limit. */
#define CCC_PACED_RTTS		2u

/*
 * What an application writes at a time may leave at once up to here, as in a new
 * connection (RFC 6928).
 */
#define CCC_BURST_PACKETS	10u

/*
 * Whether what a flow sends is to be paced: where an application leaves room in
 * the window, its next write would leave as one burst.  What that loses reduces
 * all flows, again and again.  Slow start is paced by what its ACKs release.
 */
static inline bool ccc_is_smooth(u32 cwnd, bool cwnd_limited, bool slow_start)
{
	return cwnd > CCC_BURST_PACKETS && !cwnd_limited && !slow_start;
}

/*
 * Whether what is not sent yet would fill the window.  Of a flow that is paced so TCP
 * takes the window for the limit only once all of that has left, a round trip later.
 */
static inline bool ccc_fills(u32 cwnd, u32 in_flight, u32 unsent_bytes, u32 mss)
{
	u32 room = cwnd > in_flight ? cwnd - in_flight : 0;

	return unsent_bytes >= (u64)max_t(u32, room, 1) * mss;
}

/*
 * Whether a flow whose window becomes the limit, which it was not, is to be paced to
 * what is granted, as one that joins: if that, and what it has to send, is more than
 * may leave at once.  What ACKs release of several packets each is a burst too.
 */
static inline bool ccc_wakes(u32 in_flight, u32 granted, u32 unsent_bytes, u32 mss)
{
	return granted > in_flight && granted - in_flight > CCC_BURST_PACKETS &&
	       unsent_bytes > (u64)CCC_BURST_PACKETS * mss;
}

/*
 * Whether a flow is to be paced to what is granted, as one that joins: if a round trip
 * of ACKs of the @used packets that are in flight, or were, would not release that.
 * Nearer flows may have found out what the path holds before the first ACK of a far one,
 * and each ACK of that one would release a burst.
 */
static inline bool ccc_leaps(u32 used, u32 granted)
{
	return granted / CCC_RAMP_MAX > used;
}

/* A window that TCP will take, whatever was asked for and up to its limit. */
static inline u32 ccc_cwnd_clamp(u32 cwnd, u32 limit)
{
	return clamp_t(u32, cwnd, 1, clamp_t(u32, limit, 1, CCC_CWND_MAX));
}

/*
 * Packets that an acknowledged one may release on the way from @cwnd to
 * @granted, in 256ths, so that one window of ACKs covers it.
 */
static inline u16 ccc_ramp(u32 cwnd, u32 granted)
{
	return clamp_t(u64, ((u64)granted << 8) / max_t(u32, cwnd, 1), 1 << 8,
		       CCC_RAMP_MAX << 8);
}

/*
 * The same for a flow on its way already, with @ramp: as begun, unless it gave up
 * packets when it began (it may be to take some by now) or never began.  At one
 * packet for each acknowledged one, the window would stay where it is.
 */
static inline u16 ccc_ramp_on(u32 cwnd, u32 granted, u16 ramp)
{
	if (granted <= cwnd)
		return 0;
	return ramp > 1 << 8 ? ramp : max_t(u16, ccc_ramp(cwnd, granted), 2 << 8);
}

/*
 * What counts as in flight on the way up, with @acked packets acknowledged: a
 * flow that its window limits may wait for room for a whole burst, which TSO
 * sends at a time.  Taken off what each ACK releases, that room could be all of
 * it, and the window would stay where it is.
 */
static inline u32 ccc_ramp_in_flight(u32 cwnd, u32 in_flight, u32 acked,
				     bool limited)
{
	if (!limited)
		return in_flight;
	return max_t(u32, in_flight, cwnd - min_t(u32, acked, cwnd));
}

/*
 * A larger window is approached by what the flow's own ACKs release, @ramp for
 * one: a window opened in one step would leave as one burst.  @rest is what has
 * been released of a packet.
 */
static inline u32 ccc_ramp_cwnd(u32 cwnd, u32 granted, u32 in_flight,
				u32 acked, u16 ramp, u8 *rest)
{
	u64 credit = (u64)acked * ramp + *rest;
	u64 limit = in_flight + (credit >> 8);

	*rest = credit & U8_MAX;
	granted = clamp_t(u32, granted, CCC_CWND_MIN, CCC_CWND_MAX);
	if (granted <= cwnd)
		return granted;
	return max_t(u64, cwnd, min_t(u64, granted, limit));
}

/*
 * Of each acknowledged packet, the part that a flow does not send again on the
 * way from @cwnd down to @granted, in 256ths: so a window of ACKs covers it.
 */
static inline u8 ccc_shed(u32 cwnd, u32 granted)
{
	if (granted >= cwnd)
		return 0;
	return clamp_t(u64, (((u64)cwnd - granted) << 8) / cwnd, 1, U8_MAX);
}

/*
 * A window that others have a part of from now on is given up at the pace of
 * the flow's ACKs, @shed of each: at once, it would send nothing for the first
 * part of a round trip and as much as before for the rest.  @rest is what has
 * been given up of a packet.
 */
static inline u32 ccc_shed_cwnd(u32 cwnd, u32 granted, u32 acked, u8 shed,
				u8 *rest)
{
	u64 credit = (u64)acked * shed + *rest;

	*rest = credit & U8_MAX;
	granted = clamp_t(u32, granted, CCC_CWND_MIN, CCC_CWND_MAX);
	return max_t(s64, (s64)cwnd - (s64)(credit >> 8), granted);
}

/*
 * A flow that is granted less than CCC_CWND_MIN segments has these for a round
 * trip, and then none for so long that it has what is granted in the mean.
 */
static inline u32 ccc_spread_us(u64 granted_bytes, u32 mss, u32 rtt_us)
{
	u64 least = ccc_bytes(CCC_CWND_MIN, mss);
	u64 most_us = min_t(u64, (u64)rtt_us * CCC_SPREAD_RTTS_MAX,
			    CCC_SPREAD_US_MAX);
	u64 gap_us;

	if (granted_bytes >= least || rtt_us < CCC_SPREAD_RTT_MIN_US)
		return 0;
	gap_us = div64_u64(rtt_us * (least - granted_bytes),
			   max_t(u64, granted_bytes, 1));
	return min_t(u64, gap_us, most_us);
}

/*
 * That pause, if it is longer than a round trip, up to a half longer or shorter each
 * time, by what the flow with this @offset has delivered.  With pauses of one
 * length, flows that have once sent at the same time would do so for ever: a full
 * queue, and then an idle path.
 */
static inline u32 ccc_spread_apart_us(u32 gap_us, u32 rtt_us, u32 offset,
				      u32 delivered)
{
	/* Of multiples of the golden ratio no two are alike for long. */
	u32 part = (offset + delivered * 0x9e3779b1u) >> 24;

	if (gap_us < rtt_us)
		return gap_us;
	return min_t(u64, (u64)gap_us * (128 + part) >> 8, CCC_SPREAD_US_MAX);
}

/* The rate, in bytes a second, that spreads a window over a round trip. */
static inline u64 ccc_pacing_rate(u32 packets, u32 mss, u32 rtt_us)
{
	return div_u64((u64)ccc_bytes(packets, mss) * USEC_PER_SEC,
		       max_t(u32, rtt_us, 1));
}

#endif /* CCC_COMMON_CWND_H */
