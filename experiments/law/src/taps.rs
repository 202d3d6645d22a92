// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's taps: what comes from each VM of the group, judged by the daemon's own code.
use std::collections::BTreeMap;

use ccc_vhost::fuzzing::{PERIOD_US, Seen, Verdict, Watch, Watched};

use crate::{
    host::Host,
    path::{Nanos, Path},
    setup::Setup,
};

/// How often they are looked at.
pub const PERIOD_NS: Nanos = PERIOD_US * 1000;

/// A VM that was judged.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// Its number.
    pub vm: usize,
    /// What for.
    pub verdict: Verdict,
}

/// The taps of a host.
#[derive(Debug, Default)]
pub struct Taps {
    watch: Watch,
    /// Those that were judged, in time.
    pub judged: Vec<Judged>,
}

impl Taps {
    /// Another daemon looks, which knows nothing of what was.
    pub fn restart(&mut self) {
        self.watch = Watch::default();
    }

    /// Looks at all of them.
    pub fn look(&mut self, now: Nanos, setup: &Setup, host: &Host, path: &Path) {
        let seen: BTreeMap<usize, Seen> = setup
            .vms
            .iter()
            .enumerate()
            .filter(|(_, vm)| vm.has_device)
            .map(|(number, _)| {
                let seen = Seen {
                    at: now / 1000,
                    interface: 0,
                    received_bytes: path.offered_bytes(number),
                    claims: host.claims(number),
                    weight: (host.weight(number) * 256.0).max(1.0) as u32,
                    floor: 0,
                    cap: None,
                };
                (number, seen)
            })
            .collect();
        for vm in self.watch.period(now / 1000, &seen) {
            let verdict = self.watch.vm(vm).and_then(Watched::verdict).copied();
            self.judged.extend(verdict.map(|verdict| Judged { vm, verdict }));
        }
    }
}
