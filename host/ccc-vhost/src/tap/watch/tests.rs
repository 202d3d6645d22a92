// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use super::*;

const PERIOD_US: Micros = 50_000;
const MBIT: u64 = 125_000;

/// A group whose VMs send at rates that a test says.
struct Group {
    now: Micros,
    watch: Watch,
    changed: Vec<usize>,
    seen: BTreeMap<usize, Seen>,
}

/// What a VM does in a period: Mbit/s, and what it says.
#[derive(Clone, Copy)]
struct Does {
    sends: f64,
    claims: f64,
    granted: f64,
    loses: bool,
    wants: bool,
    exits: bool,
}

/// A VM with a module that takes what it is given.
fn honest(mbit: f64) -> Does {
    Does { sends: mbit, claims: 0.95 * mbit, granted: mbit, loses: true, wants: true, exits: false }
}

/// One without a module.
fn alone(mbit: f64) -> Does {
    Does { sends: mbit, claims: 0.0, granted: 0.0, loses: false, wants: false, exits: false }
}

/// One that tells what it sends, which is more than it is granted.
fn deaf(mbit: f64) -> Does {
    Does { granted: mbit / 4.0, ..honest(mbit) }
}

/// One that says it has nothing to send.
fn idle() -> Does {
    Does { wants: false, loses: false, ..honest(0.1) }
}

impl Group {
    fn new() -> Group {
        Group { now: 0, watch: Watch::default(), changed: Vec::new(), seen: BTreeMap::new() }
    }

    /// Goes on for so many milliseconds.
    fn go(&mut self, ms: u64, does: &[Does]) {
        for _ in 0..ms * 1000 / PERIOD_US {
            self.now += PERIOD_US;
            for (vm, does) in does.iter().enumerate() {
                self.seen.entry(vm).or_default().goes_on(self.now, does);
            }
            self.changed.extend(self.watch.period(self.now, &self.seen));
        }
    }

    /// Goes on for so many milliseconds, with what a held VM sends cut to its share.
    fn go_with_shapers(&mut self, ms: u64, does: &[Does]) {
        for _ in 0..ms * 1000 / PERIOD_US {
            let cut = |(vm, does): (usize, &Does)| match self.verdict(vm) {
                Some(_) => Does { sends: does.sends.min(self.share(vm)), ..*does },
                None => *does,
            };
            let cut: Vec<Does> = does.iter().enumerate().map(cut).collect();
            self.go(PERIOD_US / 1000, &cut);
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

impl Seen {
    fn goes_on(&mut self, now: Micros, does: &Does) {
        let bytes = |mbit: f64| (mbit * MBIT as f64) as u64 * PERIOD_US / 1_000_000;
        (self.at, self.weight) = (now, self.weight.max(1));
        self.received_bytes += bytes(does.sends);
        self.claims.delivered_bytes += bytes(does.claims);
        self.claims.events += u64::from(does.loses);
        self.claims.exits += u64::from(does.exits);
        self.claims.backlogged = does.wants;
        self.claims.granted = (does.granted * MBIT as f64) as u64;
    }
}

/// Mbit/s that a VM is not to send more than, or is to have.
fn set(group: &mut Group, vm: usize, floor: u64, cap: Option<u64>) {
    let seen = group.seen.entry(vm).or_default();
    (seen.floor, seen.cap) = (floor * MBIT, cap.map(|cap| cap * MBIT));
}

#[test]
fn who_sends_above_its_cap_is_judged_though_nobody_loses() {
    let quiet = |does: Does| Does { loses: false, ..does };
    for bad in [quiet(alone(5.0)), Does { granted: 2.0, ..quiet(honest(5.0)) }] {
        let mut group = Group::new();
        set(&mut group, 1, 0, Some(2));
        group.go(10_000, &[quiet(honest(2.0)), quiet(honest(2.0))]);
        assert!(group.changed.is_empty(), "it keeps to its cap: {:?}", group.watch);
        group.go_with_shapers(10_000, &[quiet(honest(2.0)), bad]);
        assert_eq!(group.verdict(1).map(|verdict| verdict.reason), Some(Reason::AboveCap));
        assert_eq!(group.share(1), 2.0, "it may have all of its cap");
        assert_eq!(group.verdict(1).map(|verdict| verdict.share), Some(2 * MBIT));
        assert!(group.verdict(0).is_none());
        group.go_with_shapers(30_000, &[quiet(honest(2.0)), quiet(honest(1.5))]);
        assert!(group.verdict(1).is_none(), "it has kept to it for long enough");
    }
}

#[test]
fn who_waits_at_its_cap_is_not_let_go() {
    let calm = Does { loses: false, ..honest(2.0) };
    let mut group = Group::new();
    set(&mut group, 1, 0, Some(2));
    // It has no module, and its TCP does what the shaper tells it.
    group.go_with_shapers(600_000, &[calm, alone(5.0)]);
    assert_eq!(group.changed, [1], "its queue is backlogged: let go, it would be above its cap");
    group.go_with_shapers(12_000, &[calm, alone(1.5)]);
    assert_eq!(group.changed, [1, 1], "it has nothing to send beyond its cap");
    // One that has told of what it sent may follow its grants: that is tried, and once.
    let mut group = Group::new();
    set(&mut group, 1, 0, Some(2));
    let deaf = Does { granted: 2.0, loses: false, ..honest(5.0) };
    group.go_with_shapers(600_000, &[calm, deaf]);
    assert_eq!(group.changed, [1, 1, 1]);
}

#[test]
fn two_segments_a_flow_do_not_excuse_what_is_above_a_cap() {
    let quiet = |does: Does| Does { loses: false, ..does };
    // Four flows at 200 µs, as they are; and who says to be nearer than it is, or does.
    for (cap, granted, sends) in [(100, 427.0, 429.0), (2, 14.8, 16.0), (2, 118.2, 120.0)] {
        let mut group = Group::new();
        set(&mut group, 1, 0, Some(cap));
        let near = Does { granted, ..quiet(honest(sends)) };
        group.go(10_000, &[quiet(honest(100.0)), near]);
        assert_eq!(group.verdict(1).map(|verdict| verdict.reason), Some(Reason::AboveCap));
        assert_eq!(group.share(1), cap as f64, "it is held to that");
    }
}

#[test]
fn an_honest_vm_whose_cap_falls_is_not_judged() {
    let mut group = Group::new();
    group.go(20_000, &[honest(5.0), honest(5.0)]);
    set(&mut group, 1, 0, Some(1));
    let falls = |mbit| Does { granted: 1.0, ..honest(mbit) };
    group.go(300, &[honest(5.0), falls(5.0)]);
    group.go(20_000, &[honest(9.0), falls(1.0)]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
}

#[test]
fn what_a_vm_may_have_beside_one_that_has_its_floor_is_the_rest() {
    let mut group = Group::new();
    set(&mut group, 0, 6, None);
    group.go(20_000, &[honest(6.0), honest(4.0)]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    assert!((3.5..4.6).contains(&group.share(1)), "{}", group.share(1));
    group.go(20_000, &[honest(4.5), alone(5.5)]);
    assert!(group.verdict(1).is_some() && group.verdict(0).is_none());
}

#[test]
fn honest_vms_are_never_judged() {
    let mut group = Group::new();
    group.go(20_000, &[honest(2.5); 4]);
    // One has nothing to send, the others take its part; then it comes back.
    group.go(20_000, &[honest(3.3), honest(3.3), honest(3.3), idle()]);
    group.go(500, &[honest(3.2), honest(3.2), honest(3.2), honest(0.4)]);
    group.go(20_000, &[honest(2.5); 4]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    assert!((2.4..2.8).contains(&group.share(0)), "{}", group.share(0));
}

#[test]
fn who_keeps_within_its_grants_is_not_judged_whatever_another_says() {
    let mut group = Group::new();
    // The second one says that it wants more, and takes little more than half of its share.
    group.go(120_000, &[honest(7.2), honest(2.8)]);
    assert!(group.share(0) < 5.5, "{}", group.share(0));
    assert!(group.changed.is_empty(), "{:?}", group.watch);
}

#[test]
fn grants_that_fall_are_followed_with_acks() {
    let mut group = Group::new();
    group.seen.entry(0).or_default().weight = 20;
    group.go(20_000, &[Does { wants: false, ..honest(3.6) }, honest(28.0)]);
    for _ in 0..20 {
        // The one of most of the weight wants more while it recovers, 200 ms of each second.
        group.go(150, &[honest(3.6), Does { granted: 1.5, ..honest(28.0) }]);
        group.go(50, &[honest(3.6), honest(1.5)]);
        group.go(800, &[Does { wants: false, ..honest(3.6) }, honest(28.0)]);
    }
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    // Who does not follow them for longer is judged.
    group.go(4_000, &[honest(40.0), Does { granted: 1.5, ..honest(28.0) }]);
    assert_eq!(group.changed, [1]);
}

#[test]
fn flows_that_begin_are_not_judged_by_what_is_not_yet_reported() {
    let mut group = Group::new();
    group.go(20_000, &[honest(9.0), idle()]);
    // A round trip's worth of first windows, of which nothing has been delivered.
    group.go(300, &[honest(6.0), Does { claims: 0.0, wants: false, ..honest(6.0) }]);
    group.go(5_000, &[honest(5.0), honest(5.0)]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
}

#[test]
fn short_flows_that_no_look_finds_are_not_judged() {
    let mut group = Group::new();
    group.go(20_000, &[honest(9.0), idle()]);
    let short = Does { granted: 0.0, wants: false, ..honest(7.0) };
    group.go(300, &[honest(6.0), short]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
}

#[test]
fn what_a_vm_loses_itself_is_no_sign_of_harm_to_others() {
    let mut group = Group::new();
    let calm = Does { loses: false, ..honest(0.5) };
    group.go(30_000, &[calm, Does { loses: true, ..deaf(9.0) }]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
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
fn who_sends_above_its_grants_and_share_is_judged_after_a_while() {
    let mut group = Group::new();
    group.go(10_000, &[honest(2.5); 4]);
    let does = [honest(0.6), honest(0.6), honest(0.6), deaf(8.2)];
    group.go(400, &does);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    group.go(3000, &does);
    assert_eq!(group.changed, [3]);
    assert_eq!(group.verdict(3).map(|verdict| verdict.reason), Some(Reason::AboveShare));
}

#[test]
fn who_comes_and_goes_is_judged_as_one_without_a_module() {
    let more = Does { sends: 3.0, claims: 2.0, ..honest(2.5) };
    for (exits, judged) in [(0, false), (2, false), (3, true)] {
        let mut group = Group::new();
        group.go(10_000, &[honest(2.5); 4]);
        for _ in 0..exits {
            group.go(
                PERIOD_US / 1000,
                &[honest(2.5), honest(2.5), honest(2.5), Does { exits: true, ..more }],
            );
            group.go(500, &[honest(2.5), honest(2.5), honest(2.5), more]);
        }
        group.go(2_000, &[honest(2.5), honest(2.5), honest(2.5), more]);
        assert_eq!(!group.changed.is_empty(), judged, "{exits} times: {:?}", group.changed);
    }
}

#[test]
fn who_comes_and_goes_now_and_then_is_trusted() {
    let mut group = Group::new();
    for _ in 0..5 {
        group.go(11_000, &[honest(2.5); 4]);
        let restarts = Does { sends: 3.0, exits: true, ..honest(2.5) };
        group.go(PERIOD_US / 1000, &[honest(2.5), honest(2.5), honest(2.5), restarts]);
        group
            .go(1_000, &[honest(2.5), honest(2.5), honest(2.5), Does { exits: false, ..restarts }]);
    }
    assert!(group.changed.is_empty(), "{:?}", group.watch);
}

#[test]
fn a_slot_does_not_make_a_flood_trusted() {
    let mut group = Group::new();
    group.go(10_000, &[honest(2.5); 4]);
    let flood = Does { claims: 0.0, granted: 2.5, ..honest(20.0) };
    group.go(300, &[honest(1.0), honest(1.0), honest(1.0), flood]);
    assert_eq!(group.changed, [3]);
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
    group.go(5_000, &[honest(2.5), honest(2.5), alone(9.0)]);
    assert!(group.verdict(2).is_some());
    group.go(20_000, &[idle(), idle(), alone(9.0)]);
    assert!(group.share(2) > 8.0, "{}", group.share(2));
}

#[test]
fn who_takes_all_its_shaper_lets_go_is_let_go_after_a_while() {
    let mut group = Group::new();
    group.go(5_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    assert_eq!(group.changed, [2]);
    // It has data all the time, and its TCP does what the shaper tells it.
    group.go_with_shapers(12_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    assert!(group.changed.len() >= 3, "let go, and judged again: {:?}", group.changed);
    // The second time it has to keep to its share twice as long; then it has a module.
    assert!(group.verdict(2).is_some());
    group.go_with_shapers(15_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    assert!(group.verdict(2).is_some(), "twice as long");
    group.go_with_shapers(20_000, &[honest(3.3); 3]);
    assert!(group.verdict(2).is_none());
    assert_eq!(group.changed, [2; 4]);
}

#[test]
fn who_was_held_while_nobody_lost_is_held_again_at_once() {
    let mut group = Group::new();
    group.go(5_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    let calm = Does { loses: false, ..honest(3.3) };
    group.go_with_shapers(12_000, &[calm, calm, alone(9.0)]);
    assert_eq!(group.changed, [2; 3], "let go, and judged again");
}

#[test]
fn who_floods_its_shaper_is_not_let_go() {
    let mut group = Group::new();
    group.go(120_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    assert_eq!(group.changed, [2]);
}

#[test]
fn a_verdict_outlives_a_tap_that_cannot_be_looked_at() {
    let mut group = Group::new();
    group.go(5_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    assert_eq!(group.changed, [2]);
    let bad = group.seen.remove(&2).expect("there");
    group.go(5_000, &[honest(3.3), honest(3.3)]);
    assert!(group.verdict(2).is_some());
    group.seen.insert(2, bad);
    group.go(1_000, &[honest(3.3), honest(3.3), alone(9.0)]);
    assert_eq!(group.changed, [2]);
    group.watch.retain(|vm| vm != 2);
    assert!(group.verdict(2).is_none(), "it is in the group no more");
}

#[test]
fn a_vm_is_not_judged_by_what_another_interface_had_counted() {
    for cap in [None, Some(5)] {
        let mut group = Group::new();
        set(&mut group, 1, 0, cap);
        group.go(20_000, &[honest(3.3); 3]);
        // Its tap was made anew, or was another's name before.
        let seen = group.seen.get_mut(&1).expect("there");
        (seen.interface, seen.received_bytes) = (7, 100_000_000_000);
        group.go(PERIOD_US / 1000, &[honest(3.3); 3]);
        assert_eq!(group.watch.vm(1).expect("known").recent(), Count::default());
        group.go(5_000, &[honest(3.3); 3]);
        assert!(group.changed.is_empty(), "{:?}", group.watch);
        assert!(group.share(0) < 4.0, "{}", group.share(0));
    }
}

#[test]
fn what_a_cap_leaves_is_the_others_and_a_share_is_less_than_a_high_one() {
    let mut group = Group::new();
    set(&mut group, 2, 0, Some(1));
    group.go(20_000, &[honest(4.5), honest(4.5), honest(1.0)]);
    assert!((4.3..4.8).contains(&group.share(0)), "{}", group.share(0));
    set(&mut group, 2, 0, Some(8));
    group.go(20_000, &[honest(3.3); 3]);
    assert!((3.0..3.7).contains(&group.share(2)), "{}", group.share(2));
}

#[test]
fn what_goes_to_a_neighbour_on_this_host_excuses_no_flood_later() {
    let calm = |mbit| Does { loses: false, wants: false, ..honest(mbit) };
    for (local, crushed) in [(10_000.0, 50.0), (10_000.0, 20.0), (20_000.0, 50.0)] {
        let mut group = Group::new();
        let day = |does: Does, last: Does| [does, does, does, last];
        group.go(60_000, &day(calm(50.0), alone(0.05)));
        // A copy from VM to VM, for which the uplink of 1 Gbit/s is no bound.
        group.go(20_000, &day(calm(50.0), alone(local)));
        group.go(60_000, &day(calm(50.0), alone(0.05)));
        group.go(300_000, &day(honest(320.0), alone(0.05)));
        assert!(group.changed.is_empty(), "{:?}", group.watch);
        group.go(100, &day(honest(crushed), alone(850.0)));
        assert_eq!(group.changed, [3], "{local}: its share is {}", group.share(3));
    }
    // Where the uplink is never full between them it takes some minutes, however little is left.
    let mut group = Group::new();
    group.go(20_000, &[calm(50.0), calm(50.0), calm(50.0), alone(10_000.0)]);
    group.go(300_000, &[honest(5.0), honest(5.0), honest(5.0), alone(980.0)]);
    group.go(5_000, &[idle(), idle(), idle(), alone(980.0)]);
    group.go(3_000, &[honest(5.0), honest(5.0), honest(5.0), alone(980.0)]);
    assert_eq!(group.changed, [3], "its share is {}", group.share(3));
}

#[test]
fn one_vm_that_loses_alone_holds_nobody() {
    let calm = Does { loses: false, wants: false, ..honest(5.0) };
    for (mbit, every, others) in [(2.0, 1, 1), (2.0, 16, 4), (20.0, 1, 4), (20.0, 60, 1)] {
        let mut group = Group::new();
        let mut go = |ms: u64, last: Does| {
            for period in 0..ms * 1000 / PERIOD_US {
                let loses = Does { loses: period % every == 0, wants: false, ..honest(mbit) };
                let others = std::iter::repeat_n(calm, others);
                let does: Vec<Does> = [last, loses].into_iter().chain(others).collect();
                group.go_with_shapers(PERIOD_US / 1000, &does);
            }
        };
        go(60_000, alone(0.05));
        // Without a module, on a link of which most is free.
        go(120_000, alone(400.0));
        assert!(group.changed.is_empty(), "{mbit} {every} {others}: {:?}", group.watch);
        let rate = group.watch.capacity.rate() / MBIT;
        assert!(rate >= 400, "what is sent there is room for: {mbit} {every} {others}: {rate}");
    }
}

#[test]
fn lies_of_wants_and_losses_leave_an_honest_vm_alone() {
    let mut group = Group::new();
    group.go(20_000, &[Does { loses: false, ..honest(9.9) }, idle()]);
    // It sends next to nothing, but says that it wants more and loses all the time.
    let liar = Does { wants: true, loses: true, ..honest(0.1) };
    group.go(60_000, &[Does { loses: false, ..honest(9.9) }, liar]);
    assert!(group.changed.is_empty(), "{:?}", group.watch);
    // One without a module has its share at the least, and after a while what is left.
    group.go(5_000, &[alone(9.9), liar]);
    assert!(group.share(0) >= 2.4, "{}", group.share(0));
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
    assert_eq!(verdict.over(), "keeps below its share");
    let (sent, claimed) = (MBIT / 20, 0);
    let burst = Verdict { reason: Reason::AboveCap, sent, claimed, ..verdict };
    assert_eq!(
        burst.to_string(),
        "sends above its cap: a burst, for 0.05 Mbit/s came from it in a second, of which it \
         reported 0.00; its cap was 2.50"
    );
    assert_eq!(burst.over(), "keeps to its cap");
}
