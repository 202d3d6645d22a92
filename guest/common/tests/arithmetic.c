// SPDX-License-Identifier: BSD-3-Clause
/*
 * Tests of the arithmetic: in the kernel under KUnit (linux-ccc/kunit.c), and in
 * user space, where kunit/test.h beside this file takes KUnit's place.
 */
#include <kunit/test.h>

#include "common/ack_clock.h"
#include "common/cwnd.h"
#include "common/opening.h"
#include "common/shadow.h"

#define EXPECT(condition)	KUNIT_EXPECT_TRUE(test, condition)
#define EXPECT_EQ(a, b)		KUNIT_EXPECT_EQ(test, a, b)
#define EXPECT_GE(a, b)		KUNIT_EXPECT_GE(test, a, b)
#define EXPECT_GT(a, b)		KUNIT_EXPECT_GT(test, a, b)
#define ASSERT_GE(a, b)		KUNIT_ASSERT_GE(test, a, b)
#define ASSERT_LE(a, b)		KUNIT_ASSERT_LE(test, a, b)
#define ASSERT_LT(a, b)		KUNIT_ASSERT_LT(test, a, b)

#define MSS	1448u
#define ONE	VIRTIO_CCC_PRIORITY_ONE
#define MANY	((CCC_RTT_SETTLES + CCC_RTT_ROUNDS) << 8)

/* The level at which a flow of priority 1 has @bytes. */
static u64 level_of(u64 bytes)
{
	return (bytes << VIRTIO_CCC_LEVEL_SHIFT) / ONE;
}

static void offset_is_van_der_corput(struct kunit *test)
{
	EXPECT_EQ(ccc_rounding_offset(0), 0u);
	EXPECT_EQ(ccc_rounding_offset(1), 0x80000000u);
	EXPECT_EQ(ccc_rounding_offset(2), 0x40000000u);
	EXPECT_EQ(ccc_rounding_offset(3), 0xc0000000u);
	EXPECT_EQ(ccc_rounding_offset(0x80000000u), 1u);
}

static void grant_of_one_flow(struct kunit *test)
{
	u64 level = level_of(40 * MSS) + 1;

	EXPECT_EQ(ccc_grant_packets(level, ONE, MSS, 0), 40u);
	EXPECT_EQ(ccc_grant_packets(level, 2 * ONE, MSS, 0), 80u);
	EXPECT_EQ(ccc_grant_packets(level, ONE / 2, MSS, 0), 20u);
	EXPECT_EQ(ccc_grant_packets(0, ONE, MSS, 0), 0u);
}

static void grant_by_rate(struct kunit *test)
{
	u64 level = (((u64)40 * MSS) << VIRTIO_CCC_LEVEL_SHIFT) /
		    ((u64)ONE * 100000) + 1;

	EXPECT_EQ(ccc_grant_units(ONE, 100000, false), (u64)ONE);
	EXPECT_EQ(ccc_grant_packets(level, ccc_grant_units(ONE, 100000, true), MSS, 0),
		  40u);
	EXPECT_EQ(ccc_grant_packets(level, ccc_grant_units(ONE, 200000, true), MSS, 0),
		  80u);
}

static void any_level_is_harmless(struct kunit *test)
{
	static const u64 level[] = { 0, 1, U32_MAX, 1ull << 62, U64_MAX };
	static const u64 units[] = { 0, 1, ONE, 2560ull * U32_MAX };
	u32 last, packets, i, j;

	for (i = 0; i < ARRAY_SIZE(level); i++) {
		last = ccc_grant_packets(level[i], units[0], MSS, U32_MAX);
		for (j = 1; j < ARRAY_SIZE(units); j++, last = packets) {
			packets = ccc_grant_packets(level[i], units[j], MSS,
						    U32_MAX);
			EXPECT_GE(packets, last);
		}
	}
	EXPECT_EQ(ccc_grant_packets(U64_MAX, U64_MAX, 0, U32_MAX),
		  CCC_CWND_MAX);
	EXPECT_EQ(ccc_grant_packets(U64_MAX, ONE, 0, U32_MAX), CCC_CWND_MAX);
}

/* A pseudo-random number, the same in each run, often at one of the ends. */
static u64 odd_number(u64 *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	switch (*state >> 60) {
	case 0:
		return 0;
	case 1:
		return U64_MAX;
	case 2:
		return U64_MAX - 1;
	case 3:
		return 1ull << (*state >> 33 & 63);
	default:
		return (*state >> 8) >> (*state >> 33 & 63);
	}
}

static void a_level_stays_while_it_grants_the_same(struct kunit *test)
{
	u64 state = 1, near, level, units, begin;
	u32 offset, packets, i, stayed = 0;
	bool same;

	for (i = 0; i < 200000; i++) {
		units = odd_number(&state) >> 32;
		level = odd_number(&state) >> 16;
		offset = odd_number(&state);
		packets = ccc_grant_packets(level, units, MSS, offset);
		begin = ccc_grant_begin(packets, MSS, offset);
		/* About where a packet more or less begins. */
		near = level + div64_u64((u64)MSS << 32, max_t(u64, units, 1)) - 4 +
		       (odd_number(&state) & 7);
		near = i & 1 ? near : 2 * level - near;
		same = ccc_grant_packets(near, units, MSS, offset) == packets &&
		       packets != CCC_CWND_MAX && ccc_grant_is_short(near, units);
		if (packets != CCC_CWND_MAX)
			EXPECT_EQ(ccc_grant_stays(near, units, MSS, begin), same);
		stayed += same;
	}
	EXPECT_GT(stayed, 1000u);
}

/*
 * tcp_snd_cwnd_set() warns of a window that is not above 0 as a signed number,
 * which ends a kernel that panics on warnings.
 */
static void f6_no_grant_makes_a_window_that_tcp_refuses(struct kunit *test)
{
	u32 granted, window, rest = 0, cwnd, shadow, scaled;
	u8 part = 0;
	u64 units, n = 1;
	int i;

	for (i = 0; i < 200000; i++) {
		cwnd = clamp_t(u64, odd_number(&n), 1, S32_MAX);
		units = ccc_grant_units(odd_number(&n), odd_number(&n), i & 1);
		granted = ccc_grant_packets(odd_number(&n), units,
					    odd_number(&n), odd_number(&n));
		granted = ccc_grant_capped(granted, odd_number(&n), odd_number(&n));
		window = ccc_ramp_cwnd(cwnd, granted, odd_number(&n),
				       odd_number(&n), odd_number(&n), &part);
		ASSERT_LE(window, max_t(u32, cwnd, CCC_CWND_MAX));
		window = ccc_cwnd_clamp(window, odd_number(&n));
		ASSERT_GE(window, 1u);
		ASSERT_LE(window, CCC_CWND_MAX);
		/* The inner algorithm may add all that it is told was acknowledged. */
		shadow = ccc_cwnd_clamp(granted, CCC_CWND_MAX);
		scaled = ccc_scale_acked(odd_number(&n), shadow, cwnd, &rest);
		ASSERT_LE((u64)shadow + scaled, (u64)S32_MAX);
		ASSERT_LT(rest, cwnd);
	}
}

/* A connection that is reset has its counter cleared before it leaves. */
static void f8_a_cleared_counter_is_no_delivery(struct kunit *test)
{
	EXPECT_EQ(ccc_delivered_packets(17, 10), 7u);
	EXPECT_EQ(ccc_delivered_packets(10, 10), 0u);
	EXPECT_EQ(ccc_delivered_packets(0, 4000), 0u);
	EXPECT_EQ(ccc_delivered_packets(0, U32_MAX), 0u);
	EXPECT_EQ(ccc_delivered_packets(10, 4000), 0u);
	EXPECT_EQ(ccc_delivered_packets(5, U32_MAX), 6u);
}

/* The sum over n equal flows stays within one packet of the VM's window. */
static void rounding_keeps_the_sum(struct kunit *test)
{
	u32 n, window, i, sum, offset, error;

	for (n = 1; n <= 64; n++) {
		for (window = n; window < n + 150; window += 7) {
			offset = window * 0x9e3779b9u;
			for (i = 0, sum = 0; i < n; i++)
				sum += ccc_grant_packets(level_of(window * MSS) / n,
							 ONE, MSS,
							 ccc_rounding_offset(i) +
							 offset);
			error = sum > window ? sum - window : window - sum;
			KUNIT_EXPECT_LE_MSG(test, error, 2 + n / 32,
					    "n %u window %u sum %u", n, window,
					    sum);
		}
	}
}

static void cap_limits_a_grant(struct kunit *test)
{
	EXPECT_EQ(ccc_grant_capped(9, VIRTIO_CCC_CAP_NONE, MSS), 9u);
	EXPECT_EQ(ccc_grant_capped(9, 4 * MSS, MSS), 4u);
	EXPECT_EQ(ccc_grant_capped(9, 400 * MSS, MSS), 9u);
	EXPECT_EQ(ccc_grant_capped(9, 0, 0), 0u);
}

/* A window of ACKs takes a window of 40 to 20, and one of 3 to 2. */
static void windows_are_given_up_at_the_pace_of_acks(struct kunit *test)
{
	u8 shed = ccc_shed(40, 20), rest = 0;
	u32 i, cwnd = 40;

	for (i = 0; i < 20; i++)
		cwnd = ccc_shed_cwnd(cwnd, 20, 1, shed, &rest);
	EXPECT_EQ(cwnd, 30u);
	for (i = 0; i < 10; i++)
		cwnd = ccc_shed_cwnd(cwnd, 20, 2, shed, &rest);
	EXPECT_EQ(cwnd, 20u);
	EXPECT_EQ(ccc_shed_cwnd(cwnd, 20, 9, shed, &rest), 20u);
	EXPECT_EQ(ccc_shed(3, 2), 85);
	EXPECT_EQ(ccc_shed(U32_MAX, 0), U8_MAX);
	EXPECT_EQ(ccc_shed(1000, 999), 1);
	EXPECT_EQ(ccc_shed(2, 2), 0);
	EXPECT_EQ(ccc_shed_cwnd(10, 0, U32_MAX, U8_MAX, &rest), CCC_CWND_MIN);
}

static void writes_of_an_application_are_paced(struct kunit *test)
{
	EXPECT(ccc_is_smooth(11, false, false));
	/* As many as a new connection sends. */
	EXPECT(!ccc_is_smooth(10, false, false));
	/* By its ACKs. */
	EXPECT(!ccc_is_smooth(11, true, false));
	EXPECT(!ccc_is_smooth(11, false, true));
}

static void who_wakes_up_is_paced(struct kunit *test)
{
	/* 30 of 40 packets are not in flight. */
	EXPECT(ccc_fills(40, 10, 30 * 1000, 1000));
	EXPECT(!ccc_fills(40, 10, 30 * 1000 - 1, 1000));
	EXPECT(ccc_fills(40, 50, 1000, 1000) && !ccc_fills(40, 50, 999, 1000));
	EXPECT(!ccc_fills(U32_MAX, 0, U32_MAX, U32_MAX));
	EXPECT(ccc_wakes(10, 21, 11 * 1000, 1000));
	/* As many as may leave at once, granted or there to be sent. */
	EXPECT(!ccc_wakes(10, 20, U32_MAX, 1000));
	EXPECT(!ccc_wakes(10, 80, 10 * 1000, 1000));
	EXPECT(!ccc_wakes(80, 10, U32_MAX, 1000));
	EXPECT(!ccc_wakes(0, U32_MAX, U32_MAX, U32_MAX));
}

static void who_leaps_is_paced(struct kunit *test)
{
	EXPECT(!ccc_leaps(10, 87));
	EXPECT(ccc_leaps(10, 88));
	EXPECT(!ccc_leaps(0, 7));
	EXPECT(ccc_leaps(0, 8));
	EXPECT(!ccc_leaps(U32_MAX, U32_MAX));
}

static void who_begins_says_what_it_has_to_send(struct kunit *test)
{
	EXPECT_EQ(ccc_opening(1, 1000, 64), 1u);
	EXPECT_EQ(ccc_opening(1000, 1000, 64), 1u);
	EXPECT_EQ(ccc_opening(1001, 1000, 64), 2u);
	/* More than the window will be, and nothing. */
	EXPECT_EQ(ccc_opening(64 * 1000, 1000, 64), 64u);
	EXPECT_EQ(ccc_opening(64 * 1000 + 1, 1000, 64), 0u);
	EXPECT_EQ(ccc_opening(0, 1000, 64), 0u);
	EXPECT_EQ(ccc_opening(U32_MAX, 0, U32_MAX), U32_MAX);
	/* It has more than a segment, or twice what it has told. */
	EXPECT(!ccc_opening_grows(1, 1000, 1000) && ccc_opening_grows(1, 1001, 1000));
	EXPECT(!ccc_opening_grows(8, 15 * 1000, 1000));
	EXPECT(ccc_opening_grows(8, 15 * 1000 + 1, 1000));
	EXPECT(!ccc_opening_grows(0, U32_MAX, 1));
	/* All at once up to ten packets, in a part of a round trip above. */
	EXPECT_EQ(ccc_opening_pace(0, 500), 500u);
	EXPECT_EQ(ccc_opening_pace(10, 500), 500u);
	EXPECT_EQ(ccc_opening_pace(11, 500), 44u);
	EXPECT_EQ(ccc_opening_pace(11, 20), 20u);
	EXPECT_EQ(ccc_opening_pace(U32_MAX, U32_MAX), U32_MAX);
}

static void windows_rise_by_acks(struct kunit *test)
{
	u8 rest = 0;

	EXPECT_EQ(ccc_ramp_cwnd(40, 20, 39, 1, 512, &rest), 20u);
	EXPECT_EQ(ccc_ramp_cwnd(40, 0, 39, 1, 512, &rest), CCC_CWND_MIN);
	EXPECT_EQ(ccc_ramp_cwnd(10, 80, 9, 1, 512, &rest), 11u);
	EXPECT_EQ(ccc_ramp_cwnd(10, 11, 9, 2, 512, &rest), 11u);
	EXPECT_EQ(ccc_ramp_cwnd(10, 80, 2, 1, 512, &rest), 10u);
	EXPECT_EQ(ccc_ramp_cwnd(10, U32_MAX, U32_MAX, U32_MAX, U16_MAX, &rest),
		  CCC_CWND_MAX);
	EXPECT_EQ(ccc_ramp_cwnd(10, 80, 9, 1, CCC_RAMP_MAX << 8, &rest), 17u);
	EXPECT_EQ(ccc_ramp(10, 11), 281);
	EXPECT_EQ(ccc_ramp(10, 40), 4 << 8);
	EXPECT_EQ(ccc_ramp(10, 9), 1 << 8);
	EXPECT_EQ(ccc_ramp(0, U32_MAX), CCC_RAMP_MAX << 8);
	/* Who was to give up packets in recovery may be to take some after it. */
	EXPECT_EQ(ccc_ramp_on(10, 20, ccc_ramp(12, 9)), 2 << 8);
	EXPECT_EQ(ccc_ramp_on(10, 40, ccc_ramp(12, 9)), 4 << 8);
	EXPECT_EQ(ccc_ramp_on(1000, 1001, ccc_ramp(1000, 1001)), 2 << 8);
	EXPECT_EQ(ccc_ramp_on(10, 20, 0), 2 << 8);
	EXPECT_EQ(ccc_ramp_on(10, 20, 281), 281);
	EXPECT_EQ(ccc_ramp_on(10, 10, 281), 0);
	/* Of eleven packets for ten, none is lost where two wait for a third. */
	rest = 0;
	EXPECT_EQ(ccc_ramp_in_flight(40, 28, 10, false), 28u);
	EXPECT_EQ(ccc_ramp_in_flight(40, 28, 10, true), 30u);
	EXPECT_EQ(ccc_ramp_in_flight(40, 35, 10, true), 35u);
	EXPECT_EQ(ccc_ramp_in_flight(40, 0, U32_MAX, true), 0u);
	EXPECT_EQ(ccc_ramp_cwnd(40, 44, 30, 10, ccc_ramp(40, 44), &rest), 40u);
	EXPECT_EQ(ccc_ramp_cwnd(40, 44, 30, 10, ccc_ramp(40, 44), &rest), 41u);
	/* Half a packet more for each. */
	rest = 0;
	EXPECT_EQ(ccc_ramp_cwnd(10, 15, 9, 1, ccc_ramp(10, 15), &rest), 10u);
	EXPECT_EQ(ccc_ramp_cwnd(10, 15, 9, 1, ccc_ramp(10, 15), &rest), 11u);
}

static void pacing_spreads_a_window_over_a_round_trip(struct kunit *test)
{
	EXPECT_EQ(ccc_pacing_rate(40, MSS, 100000), 400ull * MSS);
	EXPECT_EQ(ccc_pacing_rate(0, MSS, 100000), 0ull);
	EXPECT_EQ(ccc_pacing_rate(1, MSS, 0), 1000000ull * MSS);
	EXPECT_GT(ccc_pacing_rate(U32_MAX, U32_MAX, 1),
		  ccc_pacing_rate(U32_MAX, 1, 2));
}

static void less_than_two_segments_are_spread_over_more_than_a_round_trip(struct kunit *test)
{
	u32 delivered, sum = 0;

	EXPECT_EQ(ccc_spread_us(2 * MSS, MSS, 100000), 0u);
	EXPECT_EQ(ccc_spread_us(U64_MAX, MSS, 100000), 0u);
	EXPECT_EQ(ccc_spread_us(MSS, MSS, 100000), 100000u);
	EXPECT_EQ(ccc_spread_us(MSS / 2, MSS, 100000), 300000u);
	EXPECT_EQ(ccc_spread_us(0, MSS, 40000), 600000u);
	EXPECT_EQ(ccc_spread_us(0, MSS, 100000), 750000u);
	EXPECT_EQ(ccc_spread_us(MSS, MSS, 9999), 0u);
	EXPECT_EQ(ccc_spread_us(0, U32_MAX, U32_MAX), 750000u);
	EXPECT_EQ(ccc_spread_us(0, 0, U32_MAX), 0u);
	/* From a half to one and a half, and the whole in the mean. */
	EXPECT_EQ(ccc_spread_apart_us(100000, 0, 0, 0), 50000u);
	EXPECT_EQ(ccc_spread_apart_us(100000, 0, U32_MAX, 0), 149609u);
	EXPECT_EQ(ccc_spread_apart_us(750000, 0, U32_MAX, 0), 750000u);
	EXPECT_EQ(ccc_spread_apart_us(0, 0, U32_MAX, 0), 0u);
	EXPECT_EQ(ccc_spread_apart_us(100000, 100001, U32_MAX, 0), 100000u);
	for (delivered = 0; delivered < 512; delivered += 2)
		sum += ccc_spread_apart_us(100000, 0, 0, delivered);
	EXPECT(sum / 256 > 99000 && sum / 256 < 101000);
}

static void shadows_have_as_many_acks_as_their_window(struct kunit *test)
{
	u32 i, sum = 0, rest = 0;

	/* 10 ACKs of a window of 10 are worth a window of 83. */
	for (i = 0; i < 10; i++)
		sum += ccc_scale_acked(1, 83, 10, &rest);
	EXPECT_EQ(sum, 83u);
	EXPECT_EQ(rest, 0u);
	EXPECT_EQ(ccc_scale_acked(3, 1, 2, &rest), 1u);
	EXPECT_EQ(rest, 1u);
	EXPECT_EQ(ccc_scale_acked(1, 1, 2, &rest), 1u);
	EXPECT_EQ(ccc_scale_acked(U32_MAX, U32_MAX, 0, &rest), CCC_CWND_MAX);
}

static void reductions(struct kunit *test)
{
	EXPECT_EQ(ccc_apply_beta(40, CCC_BETA_HALF), 20u);
	EXPECT_EQ(ccc_apply_beta(U32_MAX, U16_MAX), 0xfffeffffu);
	EXPECT_EQ(ccc_beta(20, 40, 7), (u16)CCC_BETA_HALF);
	EXPECT_EQ(ccc_beta(3, 7, 45875), (u16)45875);
	EXPECT_EQ(ccc_beta(40, 40, 7), (u16)U16_MAX);
}

static void priorities(struct kunit *test)
{
	EXPECT_EQ(ccc_priority(0, 0), (u16)ONE);
	EXPECT_EQ(ccc_priority(1, 0), (u16)ONE);
	EXPECT_EQ(ccc_priority(4, 0), (u16)(4 * ONE));
	EXPECT_EQ(ccc_priority(10, 0), (u16)VIRTIO_CCC_PRIORITY_MAX);
	EXPECT_EQ(ccc_priority(U32_MAX, 0), (u16)VIRTIO_CCC_PRIORITY_MAX);
}

/* An unprivileged IP_TOS of 0x10 had given six times the share. */
static void g1_a_priority_that_ip_tos_has_set_is_none(struct kunit *test)
{
	EXPECT_EQ(ccc_priority(6, 6), (u16)ONE);
	EXPECT_EQ(ccc_priority(2, 2), (u16)ONE);
	EXPECT_EQ(ccc_priority(3, 6), (u16)(3 * ONE));
	EXPECT_EQ(ccc_priority(6, 0), (u16)(6 * ONE));
}

static void g3_waiting_for_a_device_has_an_end(struct kunit *test)
{
	EXPECT_EQ(ccc_stale_us(0), CCC_STALE_MAX_US);
	EXPECT_EQ(ccc_stale_us(1), CCC_STALE_MIN_US);
	EXPECT_EQ(ccc_stale_us(200000), 200000u);
	EXPECT_EQ(ccc_stale_us(U32_MAX), CCC_STALE_MAX_US);
}

static void epochs(struct kunit *test)
{
	EXPECT_EQ(ccc_epoch_of_segment(7, 1000, 1000), 7u);
	EXPECT_EQ(ccc_epoch_of_segment(7, 1000, 999), 6u);
	EXPECT_EQ(ccc_epoch_of_segment(0, 1000, 999), U32_MAX);
	EXPECT_EQ(ccc_epoch_of_segment(7, 0, 0), 7u);
}

static void generations_wrap_past_zero(struct kunit *test)
{
	EXPECT_EQ(ccc_next_generation(0), 1u);
	EXPECT_EQ(ccc_next_generation(7), 8u);
	EXPECT_EQ(ccc_next_generation(U32_MAX), 1u);
}

/* With nothing of a microsecond left over from before. */
static u32 averaged(u32 average_us, u32 rtt_us, u64 delivered, u32 cwnd,
		    u32 rounds)
{
	u8 rest = 0;

	return ccc_rtt_average(average_us, rtt_us,
			       ccc_rtt_part(delivered, cwnd), rounds, &rest);
}

/* An eighth of a window each, of an RTT that is off by a tenth. */
static void a_short_rtt_is_averaged_as_a_long_one(struct kunit *test)
{
	u32 average_us = 1100, longer_us = 1100;
	u8 rest = 0, other = 0;
	int i;

	for (i = 0; i < 2000; i++) {
		average_us = ccc_rtt_average(average_us, 1000, 1 << 5, MANY,
					     &rest);
		longer_us = ccc_rtt_average(longer_us, 1200, 1 << 5, MANY,
					    &other);
	}
	EXPECT_EQ(average_us, 1000);
	EXPECT_EQ(longer_us, 1200);
}

static void rtt_is_averaged(struct kunit *test)
{
	EXPECT_EQ(ccc_rtt_sample(100000), 3125);
	EXPECT_EQ(ccc_rtt_sample(1), 1);
	EXPECT_EQ(averaged(0, 100000, 1, 1, MANY), 100000);
	EXPECT_EQ(averaged(100000, 132000, 500, 500, MANY), 101000);
	EXPECT_EQ(averaged(100000, 132000, 250, 500, MANY), 100500);
	EXPECT_EQ(averaged(100000, 68000, 900, 500, MANY), 99000);
	EXPECT_EQ(averaged(1000, 968, 1, 2, MANY), 999);
	/* Two settle; the first ones after them count as much as they are. */
	EXPECT_EQ(averaged(100000, 132000, 250, 500, 511), 100000);
	EXPECT_EQ(averaged(0, 132000, 250, 500, 511), 132000);
	EXPECT_EQ(averaged(100000, 132000, 250, 500, 512), 116000);
	EXPECT_EQ(averaged(100000, 132000, 500, 500, 4 << 8), 116000);
	EXPECT_EQ(ccc_rtt_rounds(128, ccc_rtt_part(250, 500)), 256u);
	EXPECT_EQ(ccc_rtt_rounds(MANY, ccc_rtt_part(900, 0)), MANY);
	EXPECT(!ccc_level_jumps(1000, 1125));
	EXPECT(ccc_level_jumps(1000, 1126));
	EXPECT(ccc_level_jumps(1000, 874));
	/* Two packets of a window of four in half a round trip of 100 ms. */
	EXPECT_EQ(ccc_rtt_held(120000, 50000, 2000, 4000, MANY), 100000);
	EXPECT_EQ(ccc_rtt_held(120000, 50000, 2000, 4000, 2559), 120000);
	EXPECT_EQ(ccc_rtt_held(120000, 480000, 2000, 4000, MANY), 120000);
	EXPECT_EQ(ccc_rtt_held(120000, 50000, 0, 4000, MANY), 120000);
	EXPECT_EQ(ccc_rtt_held(U32_MAX, U32_MAX, 1, U32_MAX, MANY), 1u << 30);
	EXPECT_EQ(ccc_rtt_sample(U32_MAX), U16_MAX);
	EXPECT_EQ(ccc_bytes(10, MSS), 10 * MSS);
	EXPECT_EQ(ccc_bytes(U32_MAX, 9000), VIRTIO_CCC_SSTHRESH_UNSET - 1);
}

static void doorbells_per_window(struct kunit *test)
{
	EXPECT(!ccc_report_due(0, 0, 40, MSS, 3));
	EXPECT(!ccc_report_due(4 * MSS, 0, 40, MSS, 3));
	EXPECT(ccc_report_due(5 * MSS, 0, 40, MSS, 3));
	EXPECT(ccc_report_due(0, 5 * MSS, 40, MSS, 3));
	EXPECT(ccc_report_due(MSS, 0, 4, MSS, 3));
	EXPECT(ccc_report_due(1, 0, 40, MSS, 64));
	EXPECT(!ccc_report_too_soon(0, 0));
	EXPECT(ccc_report_too_soon(999, 1000));
	EXPECT(!ccc_report_too_soon(1000, 1000));
	EXPECT(!ccc_report_too_soon(VIRTIO_CCC_REPORT_INTERVAL_MAX_US, U32_MAX));
}

/* In the time of one window of the guest, a flow is released its part of it. */
static void clock_releases_grants(struct kunit *test)
{
	u64 units = 12 * ONE;
	u64 round_trip = ccc_ack_clock_time(120 * MSS, units);

	EXPECT_EQ(ccc_ack_clock_packets(round_trip + 1, ONE, MSS), 10u);
	EXPECT_EQ(ccc_ack_clock_packets(round_trip + 1, 2 * ONE, MSS), 20u);
	EXPECT_EQ(ccc_ack_clock_packets(round_trip / 20, ONE, MSS), 0u);
}

/* Or a flow that is released would find nothing, and not wait again. */
static void clock_releases_on_time(struct kunit *test)
{
	u32 priority;
	u64 time;

	for (priority = 1; priority <= VIRTIO_CCC_PRIORITY_MAX; priority++) {
		time = ccc_ack_clock_time(MSS, priority);
		EXPECT_EQ(ccc_ack_clock_packets(time, priority, MSS), 1u);
	}
}

static void clock_bears_any_units(struct kunit *test)
{
	EXPECT_EQ(ccc_ack_clock_packets(ccc_ack_clock_time(MSS, 0), 0, 0), 0u);
	EXPECT_EQ(ccc_ack_clock_packets(U64_MAX, U64_MAX, 0), U32_MAX);
	EXPECT_GT(ccc_ack_clock_time(U64_MAX, 1), 0ull);
}

static void g6_clock_wraps(struct kunit *test)
{
	EXPECT(ccc_ack_clock_after(1, 0));
	EXPECT(!ccc_ack_clock_after(0, 0));
	EXPECT(!ccc_ack_clock_after(0, 1));
	EXPECT(ccc_ack_clock_after(5, U64_MAX - 5));
	EXPECT(!ccc_ack_clock_after(U64_MAX - 5, 5));
	/* Where a signed number would turn. */
	EXPECT(ccc_ack_clock_after((1ull << 63) + 1, S64_MAX));
}

static struct kunit_case ccc_cases[] = {
	KUNIT_CASE(offset_is_van_der_corput),
	KUNIT_CASE(grant_of_one_flow),
	KUNIT_CASE(grant_by_rate),
	KUNIT_CASE(any_level_is_harmless),
	KUNIT_CASE(a_level_stays_while_it_grants_the_same),
	KUNIT_CASE(f6_no_grant_makes_a_window_that_tcp_refuses),
	KUNIT_CASE(f8_a_cleared_counter_is_no_delivery),
	KUNIT_CASE(rounding_keeps_the_sum),
	KUNIT_CASE(cap_limits_a_grant),
	KUNIT_CASE(windows_are_given_up_at_the_pace_of_acks),
	KUNIT_CASE(writes_of_an_application_are_paced),
	KUNIT_CASE(who_wakes_up_is_paced),
	KUNIT_CASE(who_leaps_is_paced),
	KUNIT_CASE(who_begins_says_what_it_has_to_send),
	KUNIT_CASE(windows_rise_by_acks),
	KUNIT_CASE(pacing_spreads_a_window_over_a_round_trip),
	KUNIT_CASE(less_than_two_segments_are_spread_over_more_than_a_round_trip),
	KUNIT_CASE(shadows_have_as_many_acks_as_their_window),
	KUNIT_CASE(reductions),
	KUNIT_CASE(priorities),
	KUNIT_CASE(g1_a_priority_that_ip_tos_has_set_is_none),
	KUNIT_CASE(g3_waiting_for_a_device_has_an_end),
	KUNIT_CASE(epochs),
	KUNIT_CASE(generations_wrap_past_zero),
	KUNIT_CASE(rtt_is_averaged),
	KUNIT_CASE(a_short_rtt_is_averaged_as_a_long_one),
	KUNIT_CASE(doorbells_per_window),
	KUNIT_CASE(clock_releases_grants),
	KUNIT_CASE(clock_releases_on_time),
	KUNIT_CASE(clock_bears_any_units),
	KUNIT_CASE(g6_clock_wraps),
	{}
};

static struct kunit_suite ccc_suite = {
	.name = "ccc",
	.test_cases = ccc_cases,
};
kunit_test_suite(ccc_suite);
