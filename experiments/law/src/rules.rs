// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest's arithmetic: guest/common itself, by way of `guest_rules.c`.

/// So many packets an acknowledgement may release (`CCC_RAMP_MAX`).
pub const RAMP_MAX: u32 = 8;
/// What a flow begins with if the ACK clock runs (`CCC_JOIN_PACKETS`).
pub const JOIN_PACKETS: u32 = 2;
/// The most that it takes at once (`CCC_JOIN_MAX`).
pub const JOIN_MAX: u32 = 4096;
/// An event that is not answered for so long is none to the device (`CCC_ANSWER_RTTS`,
/// `CCC_ANSWER_MIN_US`).
pub const ANSWER_RTTS: u64 = 4;
/// The same, at the least, microseconds.
pub const ANSWER_MIN_US: u64 = 200_000;
/// `CCC_OPENING_MAX`.
pub const OPENING_MAX: u32 = 64;
/// A window that is not in flight after so many has another limit (`CCC_PACED_RTTS`).
pub const PACED_RTTS: u64 = 2;
/// One part in so many of the units has to drive the ACK clock (`CCC_ACK_CLOCK_DRIVERS`).
pub const CLOCK_DRIVERS: u64 = 4;
/// Units of a round-trip sample (`VIRTIO_CCC_RTT_UNIT_US`).
pub const RTT_UNIT_US: u32 = 32;
/// Priority 1 (`VIRTIO_CCC_PRIORITY_ONE`).
pub const PRIORITY_ONE: u16 = 256;
/// Largest window, in packets (`CCC_CWND_MAX`).
pub const CWND_MAX: u32 = 1 << 21;
/// A message for each window >> this (the module's `report_shift`).
pub const REPORT_SHIFT: u32 = 3;

/// Declares each function of `guest_rules.c` and a safe one that calls it.
macro_rules! rules {
    ($($(#[$doc:meta])* fn $name:ident = $c:ident($($arg:ident: $of:ty),*) -> $result:ty;)*) => {
        unsafe extern "C" {
            $(fn $c($($arg: $of),*) -> $result;)*
        }
        $($(#[$doc])*
        pub fn $name($($arg: $of),*) -> $result {
            // SAFETY: plain arithmetic on numbers passed by value.
            unsafe { $c($($arg),*) }
        })*
    };
}

rules! {
    /// Bytes acknowledged, on the clock of flows with so many units.
    fn clock_time = law_clock_time(bytes: u64, units: u64) -> u64;
    /// What that time releases to a flow of these units.
    fn clock_packets = law_clock_packets(time: u64, units: u64, mss: u32) -> u32;
    /// Whether what a flow sends is paced.
    fn is_smooth = law_is_smooth(cwnd: u32, limited: bool, slow_start: bool) -> bool;
    /// Whether what is not sent yet would fill the window.
    fn fills = law_fills(cwnd: u32, in_flight: u32, unsent_bytes: u32, mss: u32) -> bool;
    /// Packets that a flow has to send that begins; 0 if its window is to be the limit.
    fn opening = law_opening(written_bytes: u32, mss: u32, most: u32) -> u32;
    /// Whether it has written so much more that others have to know.
    fn opening_grows = law_opening_grows(opening: u32, written_bytes: u32, mss: u32) -> bool;
    /// The window of which such a flow is sent at the rate.
    fn opening_pace = law_opening_pace(opening: u32, granted: u32) -> u32;
    /// Whether a flow that comes to be limited by its window is to be paced to its part.
    fn wakes = law_wakes(in_flight: u32, granted: u32, unsent_bytes: u32, mss: u32) -> bool;
    /// Whether a flow is to be paced to its part, of which it has used so much.
    fn leaps = law_leaps(used: u32, granted: u32) -> bool;
    /// What an acknowledged packet releases on the way up, in 256ths of one.
    fn ramp = law_ramp(cwnd: u32, granted: u32) -> u16;
    /// The same for a flow on its way already.
    fn ramp_on = law_ramp_on(cwnd: u32, granted: u32, ramp: u16) -> u16;
    /// What counts as in flight on the way up.
    fn ramp_in_flight = law_ramp_in_flight(cwnd: u32, in_flight: u32, acked: u32, limited: bool) -> u32;
    /// What a flow gives up of each acknowledged packet on the way down, in 256ths.
    fn shed = law_shed(cwnd: u32, granted: u32) -> u8;
    /// The rate that spreads a window over a round trip, bytes a second.
    fn pacing_rate = law_pacing_rate(packets: u32, mss: u32, rtt_us: u32) -> u64;
    /// How long a flow with less than two segments has none.
    fn spread_us = law_spread_us(granted_bytes: u64, mss: u32, rtt_us: u32) -> u32;
    /// That, longer or shorter by what was delivered.
    fn spread_apart_us = law_spread_apart_us(gap_us: u32, rtt_us: u32, offset: u32, delivered: u32) -> u32;
    /// Where a slot's rounding begins.
    fn rounding_offset = law_rounding_offset(slot: u32) -> u32;
    /// Packets that a level grants.
    fn grant_packets = law_grant_packets(level: u64, units: u64, mss: u32, offset: u32) -> u32;
    /// Bytes that a level grants.
    fn grant_bytes = law_grant_bytes(level: u64, units: u64) -> u64;
    /// Units of a flow.
    fn grant_units = law_grant_units(priority: u16, srtt_us: u32, rate: bool) -> u64;
    /// Whether the aggregate was divided anew.
    fn level_jumps = law_level_jumps(before: u64, now: u64) -> bool;
    /// The epoch under which a segment was sent.
    fn epoch_of_segment = law_epoch_of_segment(epoch: u32, since_us: u64, sent_us: u64) -> u32;
    /// Bytes on the wire.
    fn bytes = law_bytes(packets: u32, mss: u32) -> u32;
    /// A round-trip sample on the wire.
    fn rtt_sample = law_rtt_sample(rtt_us: u32) -> u16;
    /// How long a packet holds its place in the window.
    fn rtt_held = law_rtt_held(srtt_us: u32, elapsed_us: u64, delivered: u64, cwnd: u32, rounds: u32) -> u32;
    /// The round trips that the average has seen.
    fn rtt_rounds = law_rtt_rounds(rounds: u32, delivered: u64, cwnd: u32) -> u32;
    /// Whether a message is due.
    fn report_due = law_report_due(delivered: u64, growth: u32, cwnd: u32, mss: u32, shift: u32) -> bool;
    /// A window after a reduction.
    fn apply_beta = law_apply_beta(cwnd: u32, beta: u16) -> u32;
    /// The factor of a reduction.
    fn beta = law_beta(ssthresh: u32, cwnd: u32, last: u16) -> u16;
}

unsafe extern "C" {
    fn law_ramp_cwnd(
        cwnd: u32,
        granted: u32,
        in_flight: u32,
        acked: u32,
        ramp: u16,
        rest: *mut u8,
    ) -> u32;
    fn law_shed_cwnd(cwnd: u32, granted: u32, acked: u32, shed: u8, rest: *mut u8) -> u32;
    fn law_rtt_average(
        average_us: u32,
        rtt_us: u32,
        delivered: u64,
        cwnd: u32,
        rounds: u32,
        rest: *mut u8,
    ) -> u32;
    fn law_scale_acked(acked: u32, shadow: u32, cwnd: u32, rest: *mut u32) -> u32;
}

/// The average of round-trip times.
pub fn rtt_average(
    average_us: u32,
    rtt_us: u32,
    delivered: u64,
    cwnd: u32,
    rounds: u32,
    rest: &mut u8,
) -> u32 {
    // SAFETY: `rest` is valid for the call.
    unsafe { law_rtt_average(average_us, rtt_us, delivered, cwnd, rounds, rest) }
}

/// Packets acknowledged, had the window been the shadow.
pub fn scale_acked(acked: u32, shadow: u32, cwnd: u32, rest: &mut u32) -> u32 {
    // SAFETY: `rest` is valid for the call.
    unsafe { law_scale_acked(acked, shadow, cwnd, rest) }
}

/// The window on its way down to the grant.
pub fn shed_cwnd(cwnd: u32, granted: u32, acked: u32, shed: u8, rest: &mut u8) -> u32 {
    // SAFETY: `rest` is valid for the call.
    unsafe { law_shed_cwnd(cwnd, granted, acked, shed, rest) }
}

/// The window on its way up to the grant, or at once down to it.
pub fn ramp_cwnd(
    cwnd: u32,
    granted: u32,
    in_flight: u32,
    acked: u32,
    ramp: u16,
    rest: &mut u8,
) -> u32 {
    // SAFETY: `rest` is valid for the call.
    unsafe { law_ramp_cwnd(cwnd, granted, in_flight, acked, ramp, rest) }
}
