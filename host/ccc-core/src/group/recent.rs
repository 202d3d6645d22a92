// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What packets of those VMs wait that have reported last.
//!
//! All wait as long in one queue, so what one VM says to wait is held against what others have
//! said within the last round trips: the more of two, for one may lie.  Averages over longer, and
//! of VMs that hardly send, say that nothing waits while the queue fills.
use crate::fixed::Micros;

/// One VM, another that it is held against, and one that may lie.
const LATEST: usize = 3;

/// What a VM has said last.
#[derive(Clone, Copy, Debug)]
struct Said {
    member: usize,
    at: Micros,
    wait_us: Micros,
}

/// What the VMs have said that reported last.
#[derive(Debug, Default)]
pub(super) struct Recent {
    said: [Option<Said>; LATEST],
}

impl Recent {
    /// Packets of this VM wait so long.
    pub(super) fn hear(&mut self, now: Micros, member: usize, wait_us: Micros) {
        let new = Said { member, at: now, wait_us };
        let its = self.said.iter_mut().flatten().find(|said| said.member == member);
        match its {
            Some(its) => *its = new,
            None => self.replace_oldest(new),
        }
    }

    fn replace_oldest(&mut self, new: Said) {
        let oldest = self.said.iter_mut().min_by_key(|said| said.map(|said| said.at));
        oldest.into_iter().for_each(|said| *said = Some(new));
    }

    /// What others than this VM have said since then, the most; `None` if they have said nothing.
    pub(super) fn of_others_since(&self, member: usize, since: Micros) -> Option<Micros> {
        let said = self.said.iter().flatten();
        let others = said.filter(|said| said.member != member && said.at >= since);
        others.map(|said| said.wait_us).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_others_that_spoke_last_count_while_that_is_recent() {
        let mut recent = Recent::default();
        assert_eq!(recent.of_others_since(1, 0), None);
        for (now, member, wait_us) in [(1, 4, 400), (2, 1, 100), (3, 2, 20), (4, 1, 90), (5, 3, 30)]
        {
            recent.hear(now, member, wait_us);
        }
        assert_eq!(recent.of_others_since(1, 0), Some(30), "the fourth one is forgotten");
        assert_eq!(recent.of_others_since(3, 0), Some(90));
        assert_eq!((recent.of_others_since(3, 4), recent.of_others_since(3, 5)), (Some(90), None));
    }
}
