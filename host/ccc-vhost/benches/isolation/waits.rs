// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long a VM waited, and how long it may.
use std::time::Duration;

/// What is claimed, on a processor of the daemon's own.
pub const P99: Duration = Duration::from_millis(5);
/// What is claimed of any machine: the same beside what it was before.
pub const RATIO: f64 = 100.0;
/// Part of the time that may go by in longer waits.  A VM that is stopped for a
/// second waits once where it would have a thousand times, so that it shows in no
/// quantile.  The kernel's own 50 ms a second are 5 %.
pub const STALLED: f64 = 0.1;
/// Who waits longer has waited for ever.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Times waited, the shortest first.
pub struct Waits(Vec<Duration>);

impl Waits {
    pub fn of(mut waits: Vec<Duration>) -> Waits {
        waits.sort_unstable();
        Waits(waits)
    }

    fn quantile(&self, part: f64) -> Duration {
        self.0[((self.0.len() - 1) as f64 * part).round() as usize]
    }

    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// How many times as long as before.
    pub fn ratio(&self, before: &Waits) -> f64 {
        self.p99().as_secs_f64() / before.p99().as_secs_f64()
    }

    /// Part of a time that went by in waits longer than is claimed.
    pub fn stalled(&self, time: Duration) -> f64 {
        let long: Duration = self.0.iter().filter(|wait| **wait > P99).sum();
        long.as_secs_f64() / time.max(long).as_secs_f64()
    }

    /// What is against the claim.  Times themselves count where nothing but the
    /// daemon made them.
    pub fn faults(&self, before: &Waits, time: Duration, first: bool) -> Vec<String> {
        let (ratio, stalled) = (self.ratio(before), 100.0 * self.stalled(time));
        let judged = [
            (self.quantile(1.0) >= PATIENCE, format!("not served in {PATIENCE:?}")),
            (ratio > RATIO, format!("{ratio:.0} times as long as before")),
            (first && self.p99() > P99, format!("p99 over {P99:?}")),
            (first && stalled > 100.0 * STALLED, format!("stopped for {stalled:.0} % of the time")),
        ];
        judged.into_iter().filter_map(|(wrong, what)| wrong.then_some(what)).collect()
    }

    pub fn columns(&self) -> String {
        let micros = |part| self.quantile(part).as_secs_f64() * 1e6;
        format!("{:>9.0} {:>9.0} {:>9.0}", micros(0.5), micros(0.99), micros(1.0))
    }
}
