// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The law fuzzer: a packet-level model of guests around the real engine, fast enough
//! to draw conditions at random by the thousand, with scenarios of the laboratory as
//! its input and its output.
//!
//! A run is a [`world`] of senders ([`tcp`], with what is in [`mod@env`]), the [`path`]
//! and [`receiver`]s.  A coupled sender has a [`guest`] part that [`report`]s to the
//! [`host`], where `ccc-core` itself is; its arithmetic are the guest's own headers
//! ([`rules`]).
//!
//! [`mod@watched`] runs have the host's [`taps`], which judge who takes what is others'.
//! A [`mod@life`] is long, and [`steady`] says whether it goes on.
//! [`mod@attack`] looks for [`lies`] that do the most harm.
//! [`mod@fuzz`] [`mod@draw`]s cases, [`mod@judge`]s [`invariants`] by [`bounds`] and [`mod@shrink`]s what it finds.
pub mod ack_clock;
pub mod attack;
pub mod bounds;
pub mod draw;
pub mod env;
pub mod fuzz;
pub mod guest;
pub mod host;
pub mod hystart;
pub mod inner;
pub mod invariants;
pub mod judge;
pub mod known;
pub mod lies;
pub mod life;
pub mod measure;
pub mod path;
pub mod receiver;
pub mod report;
pub mod rules;
pub mod setup;
pub mod shrink;
pub mod spread;
pub mod steady;
pub mod taps;
pub mod tcp;
pub mod watched;
pub mod world;
