// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What must hold of a coupled run beside the uncoupled one, with the slack of each
//! bound and why it is there.

/// Intervals at the beginning that are not judged: slow starts differ from run to run.
pub const SKIPPED_INTERVALS: usize = 3;

/// Of the uncoupled goodput of the whole run.  The bound; a run has 14 to 40
/// intervals, of which one sawtooth at another time is a fiftieth at the most.
pub const SUM_OF_RUN: f64 = 0.98;

/// Of the least that uncoupled flows have in an interval and its neighbours.  One
/// reduction of the aggregate empties a queue shorter than a product for some round
/// trips; an interval has five.
pub const SUM_OF_INTERVAL: f64 = 0.85;

/// An interval in which uncoupled flows have less, in segments or bursts, says nothing.
pub const INTERVAL_SEGMENTS: u32 = 50;

/// A phase is grossly worse beyond this many times the bound, of the worst uncoupled one.
pub const GROSS: f64 = 2.0;
/// That many of the phases are not chance: of ten and ten without a difference, four of
/// the ten coupled ones and no other are the worst in one of 23 cases, and they are twice
/// as bad besides.
pub const GROSS_PART: f64 = 0.4;

/// Of the uncoupled losses.
pub const LOSSES: f64 = 1.25;
/// And so many more, for each flow: slow starts at other times.
pub const LOSSES_PER_FLOW: f64 = 2.0;

/// Relative error of the worst VM's share over the second half of a run in which all
/// have more to send than they may.
pub const SHARE_ERROR: f64 = 0.05;
/// Shares of fewer segments are not judged: a window is at least one segment.
pub const SHARE_LEAST_SEGMENTS: f64 = 4.0;

/// Mean completion time of the flows that end in both runs, of the uncoupled one's; or
/// of what a flow takes at the part that is due to it, if that is longer: the short flows
/// of a VM of little weight, or of one with many flows, are rightly slower.
pub const COMPLETION: f64 = 1.10;
/// And so many round trips more.
pub const COMPLETION_ROUNDS: f64 = 1.0;

/// Of what one flow has beside another: what an outside flow has of that beside the
/// group, and the group beside it.
pub const AS_ONE: f64 = 0.88;
/// Of the run is not judged: who starts first has more for some sawtooths.
pub const AS_ONE_SKIPPED: f64 = 0.25;

/// A flow without end has at least this part of what is due to it.
pub const STARVED: f64 = 0.1;

/// The aggregate's window at any time, in what the path and its queue hold: slow start
/// doubles it beyond that before losses tell.
pub const WINDOW: f64 = 4.0;
/// And in segments for each flow: initial windows and floors.
pub const WINDOW_PER_FLOW: f64 = 16.0;
