// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether the others of a VM lose.
//!
//! Its own losses say nothing of harm to others, and one VM that loses where others do not has
//! a path that loses, or lies.  So of those who send something to lose two have to lose, or all
//! there are; how much that is, is by what the others send: nobody silences them by a flood.
use std::{cmp::Reverse, collections::BTreeMap};

use super::watch::WITNESS_PART;

/// Fraction of a rate for a weight of 1.
const LEVEL: u128 = 1 << 16;
/// Whichever VM is asked about, two others are among so many.
const KEPT: usize = 3;

/// What a VM tells.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Its number.
    pub vm: usize,
    /// Bytes a second that it sends.
    pub sent: u64,
    /// Its weight, at least 1.
    pub weight: u32,
    /// Its reports account for those.
    pub is_accounted: bool,
    /// It has lost lately, and within a longer time.
    pub lost: [bool; 2],
}

impl Told {
    fn level(&self) -> Level {
        Level { sent: self.sent.into(), weight: self.weight.into() }
    }
}

/// What is sent, and the weights of those who do.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    sent: u128,
    weight: u128,
}

impl Level {
    fn rate(&self) -> u128 {
        self.sent * LEVEL / self.weight.max(1)
    }
}

/// What VMs of a group tell.
#[derive(Debug, Default)]
pub struct Witnesses {
    accounted: BTreeMap<usize, Level>,
    all: Level,
    /// Those that send most for their weight, with that: of who is accounted for, and of who has
    /// lost, lately or within a longer time.
    sending: Vec<(u128, usize)>,
    losing: [Vec<(u128, usize)>; 2],
}

impl Witnesses {
    /// Of those who are not judged.
    pub fn of(told: impl Iterator<Item = Told>) -> Witnesses {
        let mut of = Witnesses::default();
        for one in told {
            let entry = (one.level().rate(), one.vm);
            if one.is_accounted && one.sent > 0 {
                of.accounted.insert(one.vm, one.level());
                of.all.sent += one.level().sent;
                of.all.weight += one.level().weight;
                of.sending.push(entry);
            }
            let losing = of.losing.iter_mut().zip(one.lost);
            losing.filter(|(_, lost)| *lost).for_each(|(losing, _)| losing.push(entry));
        }
        for list in of.losing.iter_mut().chain([&mut of.sending]) {
            list.sort_unstable_by_key(|entry| Reverse(*entry));
            list.truncate(KEPT);
        }
        of
    }

    /// Whether others than this VM lose, lately or within the longer time.
    pub fn others_lose(&self, vm: usize, is_longer: bool) -> bool {
        self.lose(Some(vm), is_longer)
    }

    /// Whether VMs lose lately, whichever.
    pub fn any_lose(&self) -> bool {
        self.lose(None, false)
    }

    fn lose(&self, but: Option<usize>, is_longer: bool) -> bool {
        let own = but.and_then(|vm| self.accounted.get(&vm)).copied().unwrap_or_default();
        let (sent, weight) = (self.all.sent - own.sent, self.all.weight - own.weight);
        let least = Level { sent, weight }.rate() / u128::from(WITNESS_PART);
        let others = |list: &[(u128, usize)]| {
            let counts = |(rate, other): &&(u128, usize)| Some(*other) != but && *rate >= least;
            list.iter().filter(counts).take(2).count()
        };
        others(&self.losing[usize::from(is_longer)]) >= others(&self.sending).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others_lose(all: &[Told]) -> bool {
        Witnesses::of(all.iter().copied()).others_lose(0, false)
    }

    #[test]
    fn two_have_to_lose_or_all_who_send_something() {
        let told =
            |vm, sent, lost| Told { vm, sent, weight: 256, is_accounted: true, lost: [lost, true] };
        let (own, calm, loses) = (told(0, 9000, true), told(1, 500, false), told(2, 500, true));
        assert!(!others_lose(&[own, calm]), "its own losses");
        assert!(others_lose(&[own, loses]), "the only other one");
        assert!(!others_lose(&[own, calm, loses]), "one of two");
        assert!(others_lose(&[own, calm, loses, told(3, 500, true)]), "two");
        assert!(
            !others_lose(&[own, calm, loses, told(3, 40, true)]),
            "one of them sends next to nothing"
        );
        assert!(others_lose(&[own, told(1, 30, false), loses]), "nor does that deny it");
        assert!(others_lose(&[own, told(1, 0, false), told(2, 0, true)]), "they wait for timers");
        let flood = Told { is_accounted: false, ..own };
        assert!(
            others_lose(&[flood, told(1, 5, true), told(2, 5, true)]),
            "however little is left"
        );
        let light = Told { weight: 25, ..told(3, 40, true) };
        assert!(others_lose(&[own, calm, loses, light]), "much for its weight");
        let within = Witnesses::of([own, calm].into_iter());
        assert!(within.others_lose(0, true), "some time ago");
    }
}
