// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use super::*;

const PERIOD_US: Micros = 50_000;
const MBIT: u64 = 125_000;

/// A group whose VMs send at rates that a test says.
struct Group {
    now: Micros,
    watch: Watch,
    changed: Vec<usize>,
}

/// What a VM does in a period: Mbit/s, and what it says.
#[derive(Clone, Copy)]
struct Does {
    sends: f64,
    claims: f64,
    loses: bool,
    wants: bool,
}

/// A VM with a module that takes what it is given.
fn honest(mbit: f64) -> Does {
    Does { sends: mbit, claims: 0.95 * mbit, loses: true, wants: true }
}

/// One without a module.
fn alone(mbit: f64) -> Does {
    Does { sends: mbit, claims: 0.0, loses: false, wants: false }
}

impl Group {
    fn new() -> Group {
        Group { now: 0, watch: Watch::default(), changed: Vec::new() }
    }

    /// Goes on for so many milliseconds.
    fn go(&mut self, ms: u64, does: &[Does]) {
        for _ in 0..ms * 1000 / PERIOD_US {
            self.now += PERIOD_US;
            let seen = does.iter().map(|does| {
                let bytes = |mbit: f64| (mbit * MBIT as f64) as u64 * PERIOD_US / 1_000_000;
                let (sent_bytes, claimed_bytes) = (bytes(does.sends), bytes(does.claims));
                let count = Count { time_us: PERIOD_US, sent_bytes, claimed_bytes };
                Seen { weight: 1, count, lost: does.loses, wants_more: does.wants, floor: 0 }
            });
            let seen = seen.enumerate().collect();
            self.changed.extend(self.watch.period(self.now, &seen));
        }
    }

    fn verdict(&self, vm: usize) -> Option<&Verdict> {
        self.watch.vm(vm).and_then(Watched::verdict)
    }

    /// Mbit/s that a VM may have.
    fn share(&self, vm: usize) -> f64 {
        self.watch.vm(vm).map_or(0.0, |vm| vm.share() as f64 / MBIT as f64)
    }
}

#[test]
fn honest_vms_are_never_judged() {
    let mut group = Group::new();
    group.go(20_000, &[honest(2.5); 4]);
    // One has nothing to send, the others take its part; then it comes back.
    let idle = Does { wants: false, loses: false, ..honest(0.1) };
    group.go(20_000, &[honest(3.3), honest(3.3), honest(3.3), idle]);
    group.go(500, &[honest(3.2), honest(3.2), honest(3.2), honest(0.4)]);
    group.go(20_000, &[honest(2.5); 4]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    assert!((2.4..2.8).contains(&group.share(0)), "{}", group.share(0));
}

#[test]
fn a_flood_is_judged_within_a_tenth_of_a_second() {
    let mut group = Group::new();
    group.go(20_000, &[honest(3.3), honest(3.3), honest(3.3), alone(0.1)]);
    let flooded = [honest(2.0), honest(2.0), honest(2.0), alone(20.0)];
    group.go(100, &flooded);
    assert_eq!(group.changed, [3]);
    let verdict = group.verdict(3).expect("judged");
    assert_eq!((verdict.reason, verdict.claimed), (Reason::Unreported, 0));
    group.go(10_000, &[honest(2.5), honest(2.5), honest(2.5), alone(20.0)]);
    assert!((2.3..2.75).contains(&group.share(3)), "{}", group.share(3));
}

#[test]
fn who_sends_above_its_share_and_says_so_is_judged_after_a_while() {
    let mut group = Group::new();
    group.go(10_000, &[honest(2.5); 4]);
    let does = [honest(0.6), honest(0.6), honest(0.6), honest(8.2)];
    group.go(400, &does);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    group.go(3000, &does);
    assert_eq!(group.changed, [3]);
    assert_eq!(group.verdict(3).map(|verdict| verdict.reason), Some(Reason::AboveShare));
}

#[test]
fn a_vm_without_a_module_is_left_alone_while_nobody_loses() {
    let mut group = Group::new();
    let calm = Does { loses: false, ..honest(0.5) };
    group.go(30_000, &[calm, calm, alone(9.0)]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
}

#[test]
fn what_others_do_not_use_is_the_held_ones() {
    let mut group = Group::new();
    group.go(10_000, &[honest(2.5), honest(2.5), alone(9.0)]);
    assert!(group.verdict(2).is_some());
    let idle = Does { wants: false, loses: false, ..honest(0.1) };
    group.go(20_000, &[idle, idle, alone(9.0)]);
    assert!(group.share(2) > 8.0, "{}", group.share(2));
}

#[test]
fn who_keeps_below_its_share_is_held_no_more() {
    let mut group = Group::new();
    group.go(10_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    group.go(3_000, &[honest(3.3), honest(3.3), alone(1.0)]);
    assert!(group.verdict(2).is_some());
    group.go(5_000, &[honest(3.3), honest(3.3), alone(1.0)]);
    assert!(group.verdict(2).is_none());
    assert_eq!(group.changed, [2, 2]);
}

#[test]
fn lies_of_wants_and_losses_leave_an_honest_vm_its_share() {
    let mut group = Group::new();
    let idle = Does { wants: false, loses: false, ..honest(0.1) };
    group.go(20_000, &[Does { loses: false, ..honest(9.9) }, idle]);
    // It sends next to nothing, but says that it wants more and loses all the time.
    let liar = Does { wants: true, loses: true, ..honest(0.1) };
    for _ in 0..120 {
        let mbit = group.share(0).min(9.9);
        let sends = if group.verdict(0).is_some() { mbit } else { 9.9 };
        group.go(500, &[Does { loses: false, ..honest(sends) }, liar]);
        assert!(group.share(0) >= 2.4, "{}", group.share(0));
    }
    assert!(group.share(0) > 8.0, "{}", group.share(0));
}

#[test]
fn what_a_judgement_rests_on_is_said() {
    let verdict = Verdict {
        reason: Reason::Unreported,
        since: 7,
        sent: 20 * MBIT,
        claimed: 0,
        share: 5 * MBIT / 2,
    };
    assert_eq!(
        verdict.to_string(),
        "has no module, or sends what is not coupled: 20.00 Mbit/s came from it in a second, of \
         which it reported 0.00; its share was 2.50"
    );
}
