// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use serde_json::json;

use super::*;
use crate::{
    settings::{config, state::State},
    tap::host::Counter,
};

const CONFIG: &str = "[group.g]\nenforce = \"on\"\n\
                      [vm.bad]\nsocket = \"/bad\"\ngroup = \"g\"\ntap = \"vnet0\"\n\
                      [vm.good]\nsocket = \"/good\"\ngroup = \"g\"\ntap = \"vnet1\"\n";

/// Two VMs, of which the first floods beside the second.
struct Host {
    now: Micros,
    settings: Settings,
    watches: Watches,
}

impl Host {
    fn new() -> Host {
        let settings = config::parse("ccc.toml", CONFIG).expect("right");
        Host { now: 0, settings, watches: Watches::default() }
    }

    fn flood(&mut self) {
        for _ in 0..200 {
            self.now += PERIOD_US;
            let (sent, reported) = (self.now * 5 / 2, self.now);
            let claims = |vm: usize, _| match vm {
                0 => Claims::default(),
                _ => Claims {
                    delivered_bytes: reported,
                    events: reported / PERIOD_US,
                    backlogged: true,
                    granted: 1_000_000,
                    ..Claims::default()
                },
            };
            let received = [sent, reported].into_iter().enumerate();
            let received = received.map(|(vm, bytes)| {
                let counter = Counter { interface: vm as u32, bytes };
                (vm, Received { at: self.now, tap: format!("vnet{vm}"), also: Vec::new(), counter })
            });
            let received = received.collect();
            let reading = Reading { now: self.now, received: &received, claims: &claims };
            self.watches.take(&self.settings, &reading);
        }
    }

    /// An operator says that a VM's tap is another.
    fn set_tap(&mut self, vm: &str, tap: &str) {
        let vms = json!({vm: {"tap": tap}});
        let mut state = State::from_json(json!({"version": 1, "vms": vms})).expect("right");
        state.apply(&mut self.settings);
    }

    /// The same while the group rests, as it is looked at.
    fn flood_uncoupled(&mut self) {
        self.watches.rest(self.now, &self.settings, [0].into_iter());
        assert_eq!(self.watches.taps(&self.settings), [], "nobody is looked at");
        self.flood();
        self.watches.rest(self.now, &self.settings, [0].into_iter());
    }

    fn holds(&mut self) -> Vec<(String, bool)> {
        let holds = self.watches.holds(self.now, &self.settings);
        holds.into_iter().map(|hold| (hold.tap, hold.rate.is_some())).collect()
    }

    /// What came of letting `vnet0` go; whether it is told.
    fn let_go(&mut self, done: bool) -> bool {
        let hold = Hold { tap: "vnet0".to_owned(), rate: None };
        self.watches.take_hold(self.now, &hold, done)
    }
}

fn vnet0(held: bool) -> Vec<(String, bool)> {
    vec![("vnet0".to_owned(), held)]
}

#[test]
fn a_tap_that_two_vms_name_is_not_held() {
    let mut host = Host::new();
    host.flood();
    assert_eq!(host.holds(), vnet0(true));
    host.set_tap("good", "vnet0");
    assert_eq!(host.holds(), vnet0(false));
    assert_eq!(host.watches.taps(&host.settings), [], "nobody is judged by it");
}

#[test]
fn a_vm_whose_tap_is_corrected_is_not_judged_by_the_one_before() {
    let mut host = Host::new();
    host.flood();
    assert_eq!(host.holds(), vnet0(true));
    host.set_tap("bad", "vnet7");
    assert_eq!(host.holds(), vnet0(false), "nor is the other one held for it");
    host.let_go(true);
    // A look that had begun before.
    host.flood();
    assert_eq!(host.holds(), []);
    assert!(host.watches.vm(0, 0).is_none(), "nothing is known of it");
    host.set_tap("bad", "vnet0");
    host.flood();
    assert_eq!(host.watches.vm(0, 0).expect("known").verdicts(), 1, "it began anew");
}

#[test]
fn a_tap_that_leads_to_a_queue_is_looked_at_though_nobody_is_judged_by_it() {
    let mut host = Host::new();
    host.settings.groups[0].settings.uplink = Some("eth0".to_owned());
    host.watches.rest(host.now, &host.settings, [0].into_iter());
    let looks = host.watches.taps(&host.settings);
    assert_eq!(looks.len(), 2);
    assert!(looks.iter().all(|look| look.uplink.as_deref() == Some("eth0")), "{looks:?}");
    host.flood();
    assert!(host.watches.vm(0, 0).is_none_or(|watched| watched.verdict().is_none()));
}

#[test]
fn a_tap_of_a_vm_of_several_groups_is_looked_at_if_one_of_them_is_to_enforce() {
    let mut host = Host::new();
    let rule = "[group.h]\n[[rule]]\nvm = \"good\"\ndestination = \"10.0.0.0/8\"\ngroup = \"h\"\n";
    host.settings = config::parse("ccc.toml", &format!("{CONFIG}{rule}")).expect("right");
    let looked_at = |host: &Host| {
        let looks = host.watches.taps(&host.settings).into_iter();
        looks.map(|look| look.tap).collect::<Vec<_>>()
    };
    assert_eq!(looked_at(&host), ["vnet0", "vnet1"]);
    host.flood();
    assert!(host.watches.vm(0, 1).is_none(), "it is not judged");
    let set = |host: &mut Host, group: usize, enforce| {
        host.settings.groups[group].settings.enforce = enforce;
    };
    let group = |host: &Host, name| host.settings.group(name).expect("there");
    let (g, h) = (group(&host, "g"), group(&host, "h"));
    set(&mut host, g, Enforce::Off);
    assert_eq!(looked_at(&host), [""; 0]);
    set(&mut host, h, Enforce::Observe);
    assert_eq!(looked_at(&host), ["vnet1"], "a rule leads flows of it there");
    assert_eq!(enforcing(&host.settings, 1).collect::<Vec<_>>(), [h]);
}

#[test]
fn in_a_group_that_is_not_coupled_nobody_is_judged_and_who_is_held_is_let_go() {
    let mut host = Host::new();
    host.flood();
    assert_eq!(host.holds(), vnet0(true));
    host.flood_uncoupled();
    assert_eq!(host.holds(), vnet0(false));
    assert!(!host.let_go(true));
    assert!(host.watches.vm(0, 0).expect("known").verdict().is_none());
    host.flood_uncoupled();
    assert_eq!(host.holds(), []);
    host.now += REST_US - 1;
    host.watches.rest(host.now, &host.settings, std::iter::empty());
    assert_eq!(host.watches.taps(&host.settings), [], "flows come back one by one");
    host.now += 1;
    host.watches.rest(host.now, &host.settings, std::iter::empty());
    assert_eq!(host.watches.taps(&host.settings).len(), 2);
    host.flood();
    assert_eq!(host.holds(), vnet0(true), "it is coupled again, and floods on");
    assert_eq!(host.watches.vm(0, 0).expect("known").verdicts(), 2);
}

#[test]
fn what_could_not_be_let_go_is_held_on_and_tried_again() {
    let mut host = Host::new();
    host.watches.take_over(host.now, vec!["vnet0".to_owned()]);
    assert_eq!(host.holds(), [], "until it could be judged anew");
    host.now += TAKEN_OVER_US;
    assert_eq!(host.holds(), vnet0(false));
    assert_eq!(host.holds(), [], "it is under way");
    assert!(host.let_go(false), "it is told");
    assert!(host.watches.is_held("vnet0"));
    assert_eq!(host.watches.held("vnet0"), None, "at a rate that is not known");
    assert_eq!(host.holds(), [], "not at once");
    host.now += FAILED_US;
    assert_eq!(host.holds(), vnet0(false));
    assert!(!host.let_go(false), "it was told before");
    host.now += TOLD_US;
    assert_eq!(host.holds(), vnet0(false));
    assert!(host.let_go(false), "once more");
    host.now += FAILED_US;
    assert_eq!(host.holds(), vnet0(false));
    host.let_go(true);
    assert!(!host.watches.is_held("vnet0"));
    assert_eq!(host.holds(), []);
}

#[test]
fn a_tap_that_is_lost_again_and_again_is_held_with_pauses() {
    let mut host = Host::new();
    host.flood();
    let mut told = 0;
    for _ in 0..LOSSES {
        assert_eq!(host.holds(), vnet0(true), "at once");
        told += u64::from(host.watches.take_lost(host.now, "vnet0"));
    }
    assert_eq!((host.holds(), told), (vnet0(true), LOSSES));
    for _ in 0..TOLD_US / FAILED_US {
        assert!(!host.watches.take_lost(host.now, "vnet0"), "it was told");
        assert_eq!(host.holds(), []);
        host.now += FAILED_US;
        assert_eq!(host.holds(), vnet0(true));
    }
    assert!(host.watches.take_lost(host.now, "vnet0"), "once more");
    host.now += LOSSES_US;
    assert_eq!(host.holds(), vnet0(true));
    assert!(host.watches.take_lost(host.now, "vnet0"));
    assert_eq!(host.holds(), vnet0(true), "at once, after a while");
}

#[test]
fn what_an_earlier_daemon_left_stays_known_when_holding_it_anew_fails() {
    let mut host = Host::new();
    host.watches.take_over(host.now, vec!["vnet0".to_owned()]);
    host.flood();
    let holds = host.watches.holds(host.now, &host.settings);
    assert!(!host.let_go(true) && holds[0].rate.is_some());
    host.watches.take_over(host.now, vec!["vnet0".to_owned()]);
    assert!(host.watches.take_hold(host.now, &holds[0], false));
    assert!(host.watches.is_held("vnet0"), "by the earlier daemon's shaper");
    assert_eq!(host.watches.held("vnet0"), None);
}
