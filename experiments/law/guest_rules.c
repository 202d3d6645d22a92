// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The rules of guest/common under names that can be linked: the headers have
 * static functions only.  Declared in src/rules.rs.
 */
#include "common/ack_clock.h"
#include "common/cwnd.h"
#include "common/grant.h"
#include "common/opening.h"
#include "common/report.h"
#include "common/shadow.h"

u64 law_clock_time(u64 bytes, u64 units)
{
	return ccc_ack_clock_time(bytes, units);
}

u32 law_clock_packets(u64 time, u64 units, u32 mss)
{
	return ccc_ack_clock_packets(time, units, mss);
}

bool law_is_smooth(u32 cwnd, bool cwnd_limited, bool slow_start)
{
	return ccc_is_smooth(cwnd, cwnd_limited, slow_start);
}

bool law_fills(u32 cwnd, u32 in_flight, u32 unsent_bytes, u32 mss)
{
	return ccc_fills(cwnd, in_flight, unsent_bytes, mss);
}

u32 law_opening(u32 written_bytes, u32 mss, u32 most)
{
	return ccc_opening(written_bytes, mss, most);
}

bool law_opening_grows(u32 opening, u32 written_bytes, u32 mss)
{
	return ccc_opening_grows(opening, written_bytes, mss);
}

u32 law_opening_pace(u32 opening, u32 granted)
{
	return ccc_opening_pace(opening, granted);
}

bool law_wakes(u32 in_flight, u32 granted, u32 unsent_bytes, u32 mss)
{
	return ccc_wakes(in_flight, granted, unsent_bytes, mss);
}

bool law_leaps(u32 used, u32 granted)
{
	return ccc_leaps(used, granted);
}

u16 law_ramp(u32 cwnd, u32 granted)
{
	return ccc_ramp(cwnd, granted);
}

u16 law_ramp_on(u32 cwnd, u32 granted, u16 ramp)
{
	return ccc_ramp_on(cwnd, granted, ramp);
}

u32 law_ramp_in_flight(u32 cwnd, u32 in_flight, u32 acked, bool limited)
{
	return ccc_ramp_in_flight(cwnd, in_flight, acked, limited);
}

u32 law_ramp_cwnd(u32 cwnd, u32 granted, u32 in_flight, u32 acked, u16 ramp,
		  u8 *rest)
{
	return ccc_ramp_cwnd(cwnd, granted, in_flight, acked, ramp, rest);
}

u8 law_shed(u32 cwnd, u32 granted)
{
	return ccc_shed(cwnd, granted);
}

u32 law_shed_cwnd(u32 cwnd, u32 granted, u32 acked, u8 shed, u8 *rest)
{
	return ccc_shed_cwnd(cwnd, granted, acked, shed, rest);
}

u64 law_pacing_rate(u32 packets, u32 mss, u32 rtt_us)
{
	return ccc_pacing_rate(packets, mss, rtt_us);
}

u32 law_spread_us(u64 granted_bytes, u32 mss, u32 rtt_us)
{
	return ccc_spread_us(granted_bytes, mss, rtt_us);
}

u32 law_spread_apart_us(u32 gap_us, u32 rtt_us, u32 offset, u32 delivered)
{
	return ccc_spread_apart_us(gap_us, rtt_us, offset, delivered);
}

u32 law_rounding_offset(u32 slot)
{
	return ccc_rounding_offset(slot);
}

u32 law_grant_packets(u64 level, u64 units, u32 mss, u32 offset)
{
	return ccc_grant_packets(level, units, mss, offset);
}

u64 law_grant_bytes(u64 level, u64 units)
{
	return ccc_grant_bytes(level, units);
}

u64 law_grant_units(u16 priority, u32 srtt_us, bool rate)
{
	return ccc_grant_units(priority, srtt_us, rate);
}

bool law_level_jumps(u64 before, u64 now)
{
	return ccc_level_jumps(before, now);
}

u32 law_epoch_of_segment(u32 epoch, u64 since_us, u64 sent_us)
{
	return ccc_epoch_of_segment(epoch, since_us, sent_us);
}

u32 law_bytes(u32 packets, u32 mss)
{
	return ccc_bytes(packets, mss);
}

u16 law_rtt_sample(u32 rtt_us)
{
	return ccc_rtt_sample(rtt_us);
}

u32 law_rtt_average(u32 average_us, u32 rtt_us, u64 delivered, u32 cwnd,
		    u32 rounds, u8 *rest)
{
	return ccc_rtt_average(average_us, rtt_us,
			       ccc_rtt_part(delivered, cwnd), rounds, rest);
}

u32 law_rtt_held(u32 srtt_us, u64 elapsed_us, u64 delivered, u32 cwnd,
		 u32 rounds)
{
	return ccc_rtt_held(srtt_us, elapsed_us, delivered, cwnd, rounds);
}

u32 law_rtt_rounds(u32 rounds, u64 delivered, u32 cwnd)
{
	return ccc_rtt_rounds(rounds, ccc_rtt_part(delivered, cwnd));
}

bool law_report_due(u64 delivered, u32 growth, u32 cwnd, u32 mss, u32 shift)
{
	return ccc_report_due(delivered, growth, cwnd, mss, shift);
}

u32 law_scale_acked(u32 acked, u32 shadow, u32 cwnd, u32 *rest)
{
	return ccc_scale_acked(acked, shadow, cwnd, rest);
}

u32 law_apply_beta(u32 cwnd, u16 beta)
{
	return ccc_apply_beta(cwnd, beta);
}

u16 law_beta(u32 ssthresh, u32 cwnd, u16 last)
{
	return ccc_beta(ssthresh, cwnd, last);
}
