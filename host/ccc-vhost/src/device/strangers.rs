// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who came to speak for a VM and could not, for its tables are of another revision.
use ccc_core::Micros;
use ccc_proto::stranger::{AGENT, Stranger};

/// Who does not come again within so long has gone: an agent comes each six seconds at least.
const GONE_AFTER: Micros = 15_000_000;

/// The latest one, and when it came.
#[derive(Debug, Default)]
pub struct Strangers(Option<(Stranger, Micros)>);

impl Strangers {
    /// One has come.
    pub fn note(&mut self, stranger: Stranger, now: Micros) {
        self.0 = Some((stranger, now));
    }

    /// Somebody speaks for the VM.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Who comes: the revision that it knows, and what it is.
    pub fn latest(&self, now: Micros) -> Option<(u32, &'static str)> {
        let (stranger, came) = self.0.as_ref()?;
        let who = if stranger.who.get() == AGENT { "agent" } else { "front end" };
        (now.saturating_sub(*came) < GONE_AFTER).then_some((stranger.revision.get(), who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_is_known_until_it_stays_away_or_another_speaks() {
        let mut strangers = Strangers::default();
        assert_eq!(strangers.latest(0), None);
        strangers.note(Stranger { revision: 2.into(), who: AGENT.into() }, 1000);
        assert_eq!(strangers.latest(GONE_AFTER), Some((2, "agent")));
        assert_eq!(strangers.latest(GONE_AFTER + 1000), None);
        strangers.forget();
        assert_eq!(strangers.latest(1000), None);
    }
}
