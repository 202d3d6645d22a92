// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Segments that the receivers' kernel has thrown away.
//!
//! In the laboratory only queues and faults lose anything. A receiver that runs
//! out of memory looks to the senders like a full path, and a run in which that
//! happened says nothing of them.

use std::fs;
use std::path::Path;

use crate::error::{Context, LabError, Result};

const COUNTERS: &str = "/proc/thread-self/net/netstat";
/// What Linux counts for want of memory, of buffers or of time.
const LOST: [&str; 4] = ["TCPRcvQDrop", "RcvPruned", "OfoPruned", "TCPBacklogDrop"];

/// Fails if something was thrown away in this thread's network namespace.
pub fn refuse() -> Result<()> {
    let text = fs::read_to_string(COUNTERS).on("reading", Path::new(COUNTERS))?;
    match lost(&text) {
        0 => Ok(()),
        lost => Err(LabError::Overload { lost }),
    }
}

/// Pairs of lines: a heading with names, then their values.
fn lost(text: &str) -> u64 {
    let lines: Vec<_> = text.lines().collect();
    let pairs = lines.chunks_exact(2).map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    pairs
        .flatten()
        .filter(|(name, _)| LOST.contains(name))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_thrown_away_is_added_up() {
        let text = "TcpExt: SyncookiesSent RcvPruned TCPRcvQDrop TCPTimeouts\n\
                    TcpExt: 7 2 3 9\n\
                    IpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!(lost(text), 5);
    }

    #[test]
    fn this_kernel_counts_what_is_looked_for() {
        let text = fs::read_to_string(COUNTERS).expect("this machine's own counters");
        for name in LOST {
            assert!(text.split([' ', '\n']).any(|word| word == name), "{name} is not there");
        }
    }
}
