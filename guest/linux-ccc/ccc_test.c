// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the arithmetic of coupling.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "ccc_share.c"

#define MSS	1448u
#define ONE	VIRTIO_CCC_PRIORITY_ONE
#define MANY	(CCC_SLOW_RTTS << 8)

/* The level at which a flow of priority 1 has @bytes. */
static u64 level_of(u64 bytes)
{
	return (bytes << VIRTIO_CCC_LEVEL_SHIFT) / ONE;
}

static void offset_is_van_der_corput(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_slot_offset(0), 0u);
	KUNIT_EXPECT_EQ(test, ccc_slot_offset(1), 0x80000000u);
	KUNIT_EXPECT_EQ(test, ccc_slot_offset(2), 0x40000000u);
	KUNIT_EXPECT_EQ(test, ccc_slot_offset(3), 0xc0000000u);
	KUNIT_EXPECT_EQ(test, ccc_slot_offset(0x80000000u), 1u);
}

static void share_of_one_flow(struct kunit *test)
{
	u64 level = level_of(40 * MSS) + 1;

	KUNIT_EXPECT_EQ(test, ccc_share_packets(level, ONE, MSS, 0), 40u);
	KUNIT_EXPECT_EQ(test, ccc_share_packets(level, 2 * ONE, MSS, 0), 80u);
	KUNIT_EXPECT_EQ(test, ccc_share_packets(level, ONE / 2, MSS, 0), 20u);
	KUNIT_EXPECT_EQ(test, ccc_share_packets(0, ONE, MSS, 0), 0u);
}

static void share_by_rate(struct kunit *test)
{
	u64 level = (((u64)40 * MSS) << VIRTIO_CCC_LEVEL_SHIFT) /
		    ((u64)ONE * 100000) + 1;

	KUNIT_EXPECT_EQ(test, ccc_units(ONE, 100000, false), (u64)ONE);
	KUNIT_EXPECT_EQ(test,
			ccc_share_packets(level, ccc_units(ONE, 100000, true),
					  MSS, 0), 40u);
	KUNIT_EXPECT_EQ(test,
			ccc_share_packets(level, ccc_units(ONE, 200000, true),
					  MSS, 0), 80u);
}

static void any_level_is_harmless(struct kunit *test)
{
	static const u64 level[] = { 0, 1, U32_MAX, 1ull << 62, U64_MAX };
	static const u64 units[] = { 0, 1, ONE, 2560ull * U32_MAX };
	int i, j;

	for (i = 0; i < ARRAY_SIZE(level); i++)
		for (j = 1; j < ARRAY_SIZE(units); j++)
			KUNIT_EXPECT_GE(test,
					ccc_share_packets(level[i], units[j],
							  MSS, U32_MAX),
					ccc_share_packets(level[i],
							  units[j - 1], MSS,
							  U32_MAX));
	KUNIT_EXPECT_EQ(test, ccc_share_packets(U64_MAX, U64_MAX, 0, U32_MAX),
			CCC_WINDOW_MAX);
	KUNIT_EXPECT_EQ(test, ccc_share_packets(U64_MAX, ONE, 0, U32_MAX),
			CCC_WINDOW_MAX);
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

/*
 * tcp_snd_cwnd_set() warns of a window that is not above 0 as a signed number,
 * which ends a kernel that panics on warnings.
 */
static void f6_no_grant_makes_a_window_that_tcp_refuses(struct kunit *test)
{
	u32 share, window, rest = 0, cwnd, twin, scaled;
	u64 n = 1;
	int i;

	for (i = 0; i < 200000; i++) {
		cwnd = clamp_t(u64, odd_number(&n), 1, S32_MAX);
		share = ccc_share_packets(odd_number(&n),
					  ccc_units(odd_number(&n),
						    odd_number(&n), i & 1),
					  odd_number(&n), odd_number(&n));
		share = ccc_cap_packets(share, odd_number(&n), odd_number(&n));
		window = ccc_apply_share(cwnd, share, odd_number(&n),
					 odd_number(&n), odd_number(&n));
		KUNIT_ASSERT_LE(test, window, max(cwnd, CCC_WINDOW_MAX));
		window = ccc_window(window, odd_number(&n));
		KUNIT_ASSERT_GE(test, window, 1u);
		KUNIT_ASSERT_LE(test, window, CCC_WINDOW_MAX);
		/* The inner algorithm may add all that it is told was acknowledged. */
		twin = ccc_window(share, CCC_WINDOW_MAX);
		scaled = ccc_scale_acked(odd_number(&n), twin, cwnd, &rest);
		KUNIT_ASSERT_LE(test, (u64)twin + scaled, (u64)S32_MAX);
		KUNIT_ASSERT_LT(test, rest, cwnd);
	}
}

/* A connection that is reset has its counter cleared before it leaves. */
static void f8_a_cleared_counter_is_no_delivery(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_delivered(17, 10), 7u);
	KUNIT_EXPECT_EQ(test, ccc_delivered(10, 10), 0u);
	KUNIT_EXPECT_EQ(test, ccc_delivered(0, 4000), 0u);
	KUNIT_EXPECT_EQ(test, ccc_delivered(0, U32_MAX), 0u);
	KUNIT_EXPECT_EQ(test, ccc_delivered(10, 4000), 0u);
	KUNIT_EXPECT_EQ(test, ccc_delivered(5, U32_MAX), 6u);
}

/* The sum over n equal flows stays within one packet of the VM's window. */
static void rounding_keeps_the_sum(struct kunit *test)
{
	u32 n, window, i, sum, phase;
	s64 error;

	for (n = 1; n <= 64; n++) {
		for (window = n; window < n + 150; window += 7) {
			phase = window * 0x9e3779b9u;
			for (i = 0, sum = 0; i < n; i++)
				sum += ccc_share_packets(level_of(window * MSS) / n,
							 ONE, MSS,
							 ccc_slot_offset(i) +
							 phase);
			error = (s64)sum - window;
			KUNIT_EXPECT_LE_MSG(test, abs(error), 2 + n / 32,
					    "n %u window %u sum %u", n, window,
					    sum);
		}
	}
}

static void cap_limits_a_share(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_cap_packets(9, VIRTIO_CCC_CAP_NONE, MSS), 9u);
	KUNIT_EXPECT_EQ(test, ccc_cap_packets(9, 4 * MSS, MSS), 4u);
	KUNIT_EXPECT_EQ(test, ccc_cap_packets(9, 400 * MSS, MSS), 9u);
	KUNIT_EXPECT_EQ(test, ccc_cap_packets(9, 0, 0), 0u);
}

static void windows_fall_at_once_and_rise_by_acks(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_apply_share(40, 20, 39, 1, 2), 20u);
	KUNIT_EXPECT_EQ(test, ccc_apply_share(40, 0, 39, 1, 2), 1u);
	KUNIT_EXPECT_EQ(test, ccc_apply_share(10, 80, 9, 1, 2), 11u);
	KUNIT_EXPECT_EQ(test, ccc_apply_share(10, 11, 9, 2, 2), 11u);
	KUNIT_EXPECT_EQ(test, ccc_apply_share(10, 80, 2, 1, 2), 10u);
	KUNIT_EXPECT_EQ(test,
			ccc_apply_share(10, U32_MAX, U32_MAX, U32_MAX, U8_MAX),
			CCC_WINDOW_MAX);
	KUNIT_EXPECT_EQ(test, ccc_apply_share(10, 80, 9, 1, 8), 17u);
	KUNIT_EXPECT_EQ(test, ccc_join_window(10, 8, false), 4u);
	KUNIT_EXPECT_EQ(test, ccc_join_window(10, 80, false), 10u);
	KUNIT_EXPECT_EQ(test, ccc_join_window(10, 1, false), 2u);
	KUNIT_EXPECT_EQ(test, ccc_join_window(10, 80, true), 2u);
	KUNIT_EXPECT_EQ(test, ccc_climb(10, 11), 2);
	KUNIT_EXPECT_EQ(test, ccc_climb(10, 41), 5);
	KUNIT_EXPECT_EQ(test, ccc_climb(0, U32_MAX), CCC_CLIMB_MAX);
}

static void pacing_spreads_a_window_over_a_round_trip(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_pacing_rate(40, MSS, 100000), 400ull * MSS);
	KUNIT_EXPECT_EQ(test, ccc_pacing_rate(0, MSS, 100000), 0ull);
	KUNIT_EXPECT_EQ(test, ccc_pacing_rate(1, MSS, 0), 1000000ull * MSS);
	KUNIT_EXPECT_GT(test, ccc_pacing_rate(U32_MAX, U32_MAX, 1),
			ccc_pacing_rate(U32_MAX, 1, 2));
}

static void twins_have_as_many_acks_as_their_window(struct kunit *test)
{
	u32 i, sum = 0, rest = 0;

	/* 10 ACKs of a window of 10 are worth a window of 83. */
	for (i = 0; i < 10; i++)
		sum += ccc_scale_acked(1, 83, 10, &rest);
	KUNIT_EXPECT_EQ(test, sum, 83u);
	KUNIT_EXPECT_EQ(test, rest, 0u);
	KUNIT_EXPECT_EQ(test, ccc_scale_acked(3, 1, 2, &rest), 1u);
	KUNIT_EXPECT_EQ(test, rest, 1u);
	KUNIT_EXPECT_EQ(test, ccc_scale_acked(1, 1, 2, &rest), 1u);
	KUNIT_EXPECT_EQ(test, ccc_scale_acked(U32_MAX, U32_MAX, 0, &rest),
			CCC_WINDOW_MAX);
}

static void reductions(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_apply_beta(40, CCC_BETA_HALF), 20u);
	KUNIT_EXPECT_EQ(test, ccc_apply_beta(U32_MAX, U16_MAX), 0xfffeffffu);
	KUNIT_EXPECT_EQ(test, ccc_beta(20, 40, 7), (u16)CCC_BETA_HALF);
	KUNIT_EXPECT_EQ(test, ccc_beta(3, 7, 45875), (u16)45875);
	KUNIT_EXPECT_EQ(test, ccc_beta(40, 40, 7), (u16)U16_MAX);
}

static void priorities(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_priority(0, 0), (u16)ONE);
	KUNIT_EXPECT_EQ(test, ccc_priority(1, 0), (u16)ONE);
	KUNIT_EXPECT_EQ(test, ccc_priority(4, 0), (u16)(4 * ONE));
	KUNIT_EXPECT_EQ(test, ccc_priority(10, 0), (u16)VIRTIO_CCC_PRIORITY_MAX);
	KUNIT_EXPECT_EQ(test, ccc_priority(U32_MAX, 0),
			(u16)VIRTIO_CCC_PRIORITY_MAX);
}

/* An unprivileged IP_TOS of 0x10 had given six times the share. */
static void g1_a_priority_that_ip_tos_has_set_is_none(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_priority(6, 6), (u16)ONE);
	KUNIT_EXPECT_EQ(test, ccc_priority(2, 2), (u16)ONE);
	KUNIT_EXPECT_EQ(test, ccc_priority(3, 6), (u16)(3 * ONE));
	KUNIT_EXPECT_EQ(test, ccc_priority(6, 0), (u16)(6 * ONE));
}

static void g3_waiting_for_a_device_has_an_end(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_stale_us(0), CCC_STALE_MAX_US);
	KUNIT_EXPECT_EQ(test, ccc_stale_us(1), CCC_STALE_MIN_US);
	KUNIT_EXPECT_EQ(test, ccc_stale_us(200000), 200000u);
	KUNIT_EXPECT_EQ(test, ccc_stale_us(U32_MAX), CCC_STALE_MAX_US);
}

static void epochs(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_event_epoch(7, 1000, 1000), 7u);
	KUNIT_EXPECT_EQ(test, ccc_event_epoch(7, 1000, 999), 6u);
	KUNIT_EXPECT_EQ(test, ccc_event_epoch(0, 1000, 999), U32_MAX);
	KUNIT_EXPECT_EQ(test, ccc_event_epoch(7, 0, 0), 7u);
}

static void generations_wrap_past_zero(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_next_generation(0), 1u);
	KUNIT_EXPECT_EQ(test, ccc_next_generation(7), 8u);
	KUNIT_EXPECT_EQ(test, ccc_next_generation(U32_MAX), 1u);
}

static void bytes_saturate(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_wire_rtt(100000), 3125);
	KUNIT_EXPECT_EQ(test, ccc_wire_rtt(1), 1);
	KUNIT_EXPECT_EQ(test, ccc_slow_rtt(0, 100000, 1, 1, MANY), 100000);
	KUNIT_EXPECT_EQ(test, ccc_slow_rtt(100000, 132000, 500, 500, MANY), 101000);
	KUNIT_EXPECT_EQ(test, ccc_slow_rtt(100000, 132000, 250, 500, MANY), 100500);
	KUNIT_EXPECT_EQ(test, ccc_slow_rtt(100000, 68000, 900, 500, MANY), 99000);
	/* The first round trips count as much as they are. */
	KUNIT_EXPECT_EQ(test, ccc_slow_rtt(100000, 132000, 250, 500, 128),
			116000);
	KUNIT_EXPECT_EQ(test, ccc_slow_rtt(100000, 132000, 500, 500, 2 << 8),
			116000);
	KUNIT_EXPECT_EQ(test, ccc_slow_rounds(128, 250, 500), 256u);
	KUNIT_EXPECT_EQ(test, ccc_slow_rounds(MANY, 900, 0), MANY);
	KUNIT_EXPECT_FALSE(test, ccc_level_jumps(1000, 1125));
	KUNIT_EXPECT_TRUE(test, ccc_level_jumps(1000, 1126));
	KUNIT_EXPECT_TRUE(test, ccc_level_jumps(1000, 874));
	KUNIT_EXPECT_EQ(test, ccc_steady_rtt(160000, 164000), 160000);
	KUNIT_EXPECT_EQ(test, ccc_steady_rtt(160000, 171000), 171000);
	KUNIT_EXPECT_EQ(test, ccc_steady_rtt(160000, 149000), 149000);
	KUNIT_EXPECT_EQ(test, ccc_wire_rtt(U32_MAX), U16_MAX);
	KUNIT_EXPECT_EQ(test, ccc_bytes(10, MSS), 10 * MSS);
	KUNIT_EXPECT_EQ(test, ccc_bytes(U32_MAX, 9000),
			VIRTIO_CCC_SSTHRESH_UNSET - 1);
}

static void doorbells_per_window(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, ccc_report_due(0, 0, 40, MSS, 3));
	KUNIT_EXPECT_FALSE(test, ccc_report_due(4 * MSS, 0, 40, MSS, 3));
	KUNIT_EXPECT_TRUE(test, ccc_report_due(5 * MSS, 0, 40, MSS, 3));
	KUNIT_EXPECT_TRUE(test, ccc_report_due(0, 5 * MSS, 40, MSS, 3));
	KUNIT_EXPECT_TRUE(test, ccc_report_due(MSS, 0, 4, MSS, 3));
	KUNIT_EXPECT_TRUE(test, ccc_report_due(1, 0, 40, MSS, 64));
}

/* In the time of one window of the guest, a flow is released its part of it. */
static void clock_releases_shares(struct kunit *test)
{
	u64 units = 12 * ONE;
	u64 round_trip = ccc_clock_time(120 * MSS, units);

	KUNIT_EXPECT_EQ(test, ccc_clock_packets(round_trip + 1, ONE, MSS), 10u);
	KUNIT_EXPECT_EQ(test, ccc_clock_packets(round_trip + 1, 2 * ONE, MSS),
			20u);
	KUNIT_EXPECT_EQ(test, ccc_clock_packets(round_trip / 20, ONE, MSS), 0u);
}

/* Or a flow that is released would find nothing, and not wait again. */
static void clock_releases_on_time(struct kunit *test)
{
	u32 priority;

	for (priority = 1; priority <= VIRTIO_CCC_PRIORITY_MAX; priority++)
		KUNIT_EXPECT_EQ(test,
				ccc_clock_packets(ccc_clock_time(MSS, priority),
						  priority, MSS), 1u);
}

static void clock_bears_any_units(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ccc_clock_packets(ccc_clock_time(MSS, 0), 0, 0),
			0u);
	KUNIT_EXPECT_EQ(test, ccc_clock_packets(U64_MAX, U64_MAX, 0), U32_MAX);
	KUNIT_EXPECT_GT(test, ccc_clock_time(U64_MAX, 1), 0ull);
}

static void g6_clock_wraps(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, ccc_clock_after(1, 0));
	KUNIT_EXPECT_FALSE(test, ccc_clock_after(0, 0));
	KUNIT_EXPECT_FALSE(test, ccc_clock_after(0, 1));
	KUNIT_EXPECT_TRUE(test, ccc_clock_after(5, U64_MAX - 5));
	KUNIT_EXPECT_FALSE(test, ccc_clock_after(U64_MAX - 5, 5));
	/* Where a signed number would turn. */
	KUNIT_EXPECT_TRUE(test, ccc_clock_after((1ull << 63) + 1, S64_MAX));
}

static struct kunit_case ccc_cases[] = {
	KUNIT_CASE(offset_is_van_der_corput),
	KUNIT_CASE(share_of_one_flow),
	KUNIT_CASE(share_by_rate),
	KUNIT_CASE(any_level_is_harmless),
	KUNIT_CASE(f6_no_grant_makes_a_window_that_tcp_refuses),
	KUNIT_CASE(f8_a_cleared_counter_is_no_delivery),
	KUNIT_CASE(rounding_keeps_the_sum),
	KUNIT_CASE(cap_limits_a_share),
	KUNIT_CASE(windows_fall_at_once_and_rise_by_acks),
	KUNIT_CASE(pacing_spreads_a_window_over_a_round_trip),
	KUNIT_CASE(twins_have_as_many_acks_as_their_window),
	KUNIT_CASE(reductions),
	KUNIT_CASE(priorities),
	KUNIT_CASE(g1_a_priority_that_ip_tos_has_set_is_none),
	KUNIT_CASE(g3_waiting_for_a_device_has_an_end),
	KUNIT_CASE(epochs),
	KUNIT_CASE(generations_wrap_past_zero),
	KUNIT_CASE(bytes_saturate),
	KUNIT_CASE(doorbells_per_window),
	KUNIT_CASE(clock_releases_shares),
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

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("KUnit tests of congestion control coupling");
