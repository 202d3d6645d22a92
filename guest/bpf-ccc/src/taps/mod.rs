// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs send, flow by flow, by a BPF program at their taps, beside the flows that they have
//! reported: which flow makes a VM take what is others'.
//!
//! Of this program, and not of the daemon, so that the daemon stays without rights.  Each look takes
//! what was counted since the one before.  Flows are found in slots by their addresses and ports.
mod account;
mod all;
mod flow;
mod reported;
mod socket;
mod tap;
mod view;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use self::all::{Taps, Told};
use crate::hopeless::Hopeless;

/// How soon it is seen that this is to end.
const TURN: Duration = Duration::from_millis(100);

/// What is looked at, and how often.
#[derive(Clone, Debug)]
pub struct Looks {
    /// The daemon's control socket.
    pub control: PathBuf,
    /// VMs by their names; all that have a tap if none is named.
    pub vms: Vec<String>,
    /// Time between two looks.
    pub interval: Duration,
    /// How many looks; until it is told to end if `None`.
    pub count: Option<u32>,
    /// Flows told of each VM.
    pub top: usize,
    /// As JSON, a line each look.
    pub json: bool,
}

/// Looks at taps until it is told to end; nothing of it is left then.  A daemon that is away is
/// asked again at the next look, which has what was counted meanwhile.
pub fn run(looks: &Looks, stop: &Arc<AtomicBool>, to: &mut impl Write) -> Result<()> {
    let mut taps = Taps::begin(looks)?;
    let (mut left, mut silent) = (looks.count, None);
    while left != Some(0) && wait(looks.interval, stop) {
        match taps.look(looks) {
            Ok(told) => {
                show(looks, &told, to)?;
                silent = None;
            }
            // The last look has no other after it.
            Err(error) if error.is::<Hopeless>() || left == Some(1) => return Err(error),
            Err(error) => {
                let error = format!("{error:#}");
                if silent.as_ref() != Some(&error) {
                    log::warn!("{error}");
                }
                silent = Some(error);
            }
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}

fn show(looks: &Looks, told: &Told, to: &mut impl Write) -> io::Result<()> {
    match looks.json {
        true => writeln!(to, "{}", view::json(told))?,
        false => write!(to, "{}", view::text(told))?,
    }
    to.flush()
}

/// Whether it goes on after that time.
fn wait(interval: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + interval;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TURN));
    }
    false
}
