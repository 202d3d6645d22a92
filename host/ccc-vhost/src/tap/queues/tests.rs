// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an uplink has in the kernel of a namespace of the tests' own.
use rustix::thread::UnshareFlags;

use super::*;

#[test]
fn a_handle_and_a_tag_tell_which_configuration_they_are_of() {
    let (a, b) = (identity_of("/etc/ccc/a.toml"), identity_of("/etc/ccc/b.toml"));
    assert_ne!(a, b);
    assert_eq!(a, identity_of("/etc/ccc/a.toml"));
    for (handle, _) in [a, b] {
        assert!(HANDLES.contains(&(handle >> 16)) && handle & 0xffff == 0);
    }
    for (one, other) in SAME_HANDLE {
        let (one, other) = (identity_of(one), identity_of(other));
        assert!(one.0 == other.0 && one.1 != other.1, "{one:x?} {other:x?}");
    }
}

/// Configurations whose handles are the same.
const SAME_HANDLE: [(&str, &str); 2] =
    [("/run/c.toml", "/run/dcc.toml"), ("/etc/ccc/ccc.toml", "/etc/ccc/host12.toml")];

/// The loopback as an uplink.
fn at_lo(rate: u64, vms: BTreeMap<String, Part>) -> Uplink {
    let rest = Part { rate: 1_000_000, most: 2_000_000, quantum: 1600 };
    let (interface, elsewhere) = ("lo".to_owned(), BTreeSet::new());
    Uplink { interface, rate, vms, rest, elsewhere }
}

/// The queues of a daemon that lives are none that an earlier one has left, whatever their handle.
fn tries_two_daemons_of_one_handle() {
    let uplinks = [at_lo(2_000_000, BTreeMap::new())];
    let (one, other) = SAME_HANDLE[0];
    let [mut one, mut other, mut next] =
        [one, other, one].map(|path| Queues::new(path).expect("a socket"));
    let taps = BTreeMap::new();
    one.set(&uplinks, &taps).remove(0).outcome.expect("queues");
    let there = || tc_says("qdisc show dev lo").expect("qdiscs").contains("htb");
    other.set(&[], &taps);
    assert!(there() && other.clear().is_empty() && there(), "it is not its own");
    let refused = other.set(&uplinks, &taps).remove(0).outcome.expect_err("there already");
    assert!(matches!(refused, QueueError::AnotherDaemons { .. }), "{refused}");
    next.set(&[], &taps);
    assert!(!there(), "what its own earlier one has left");
}

#[test]
fn queues_of_another_daemon_are_left_alone_whatever_their_handle() {
    try_alone(tries_two_daemons_of_one_handle);
}

/// Runs `tc` in this thread's own namespace; what it says, if it works.
fn tc_says(words: &str) -> Option<String> {
    let output = std::process::Command::new("tc").args(words.split(' ')).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(said)
}

/// A class for a VM, one for the rest, and what waits in them.
fn tries_queues_at_lo() {
    let has_fq_codel = tc_says("qdisc add dev lo root fq_codel").is_some();
    tc_says("qdisc del dev lo root");
    let part = Part { rate: 1_000_000, most: 2_000_000, quantum: 1600 };
    let vms = BTreeMap::from([("lo".to_owned(), part)]);
    let uplink = at_lo(2_000_000, vms);
    let taps = BTreeMap::from([("lo".to_owned(), 1)]);
    let mut queues = Queues::new("/a.toml").expect("a socket");
    let outcome = queues.set(std::slice::from_ref(&uplink), &taps).remove(0).outcome;
    let leaf = if has_fq_codel { Leaf::FairQueues } else { Leaf::Fifo };
    let made = Made { vms: 1, absent: BTreeSet::new(), leaf, fault: None, mended: 0 };
    assert_eq!(outcome.expect("queues"), made);
    let leaves = tc_says("qdisc show dev lo").expect("qdiscs").matches("fq_codel").count();
    assert_eq!(leaves, if has_fq_codel { 2 } else { 0 });
    let classes = tc_says("class show dev lo").expect("classes");
    let told = "rate 8Mbit ceil 16Mbit burst 2000b cburst 4000b";
    assert!(classes.contains(told), "two milliseconds, as tc reckons: {classes}");
    tries_leaves_that_are_taken_away(&mut queues, &uplink, &taps, leaves);
    tc_says("filter del dev lo").expect("gone");
    queues.there.get_mut("lo").expect("a tree").filters_seen -= LOOK_AT_FILTERS;
    let outcome = queues.set(std::slice::from_ref(&uplink), &BTreeMap::new()).remove(0).outcome;
    let made = outcome.expect("queues");
    assert!(made.vms == 0 && made.absent.contains("lo"), "its tap has gone: {made:?}");
    let outcome = queues.set(std::slice::from_ref(&uplink), &taps).remove(0).outcome;
    assert_eq!(outcome.expect("queues").vms, 1, "what leads there is made anew");
    assert!(tc_says("filter show dev lo").expect("filters").contains("input dev lo"));
    assert!(queues.set(&[], &taps).is_empty());
    assert!(!tc_says("qdisc show dev lo").expect("qdiscs").contains("htb"));
    queues.lacks_filters = true;
    let outcome = queues.set(std::slice::from_ref(&uplink), &taps).remove(0).outcome;
    let is_tried = Path::new(FILTERS).exists();
    assert_eq!(outcome.is_ok(), is_tried, "what waits is left alone while that is so");
    assert_eq!(tc_says("qdisc show dev lo").expect("qdiscs").contains("htb"), is_tried);
}

/// What waits in the class of a VM, and of all else, is taken away by hand, or is another's.
fn tries_leaves_that_are_taken_away(
    queues: &mut Queues,
    uplink: &Uplink,
    taps: &BTreeMap<String, u32>,
    leaves: usize,
) {
    let count = || tc_says("qdisc show dev lo").expect("qdiscs").matches("fq_codel").count();
    let handle = queues.handle >> 16;
    for minor in [1, 2] {
        // Where it is the kernel's own there is nothing to take away.
        tc_says(&format!("qdisc del dev lo parent {handle:x}:{minor}"));
    }
    assert_eq!(count(), 0);
    let set = |queues: &mut Queues| queues.set(std::slice::from_ref(uplink), taps);
    let made = set(queues).remove(0).outcome.expect("queues");
    assert_eq!((count(), made.mended), (leaves, leaves), "made anew, and told");
    assert_eq!(set(queues).remove(0).outcome.expect("queues").mended, 0, "once");
    tc_says(&format!("qdisc replace dev lo parent {handle:x}:2 handle 9: pfifo")).expect("set");
    set(queues).remove(0).outcome.expect("queues");
    let there = tc_says("qdisc show dev lo").expect("qdiscs");
    assert!(there.contains("qdisc pfifo 9:"), "who puts its own there has it: {there}");
}

/// What is loaded after the classes were made; `pfifo`, which each kernel has, stands for it.
fn tries_what_is_loaded_later() {
    let part = Part { rate: 1_000_000, most: 2_000_000, quantum: 1600 };
    let vms = BTreeMap::from([("one".to_owned(), part), ("two".to_owned(), part)]);
    let uplinks = [at_lo(4_000_000, vms)];
    let mut queues = Queues::new("/a.toml").expect("a socket");
    let mut leaf = |discipline| {
        queues.discipline = discipline;
        let outcome = queues.set(&uplinks, &BTreeMap::new()).remove(0).outcome;
        let said = tc_says("qdisc show dev lo").expect("qdiscs");
        (outcome.expect("queues").leaf, said.matches("qdisc pfifo").count())
    };
    let missing = Discipline { kind: "no-such", module: "/nowhere" };
    assert_eq!(leaf(missing), (Leaf::Fifo, 0));
    let unloaded = Discipline { kind: "pfifo", ..missing };
    assert_eq!(leaf(unloaded), (Leaf::Fifo, 0), "the kernel is not asked each time");
    let loaded = Discipline { module: "/sys", ..unloaded };
    assert_eq!(leaf(loaded), (Leaf::FairQueues, 3), "of both VMs and of all else");
    tc_says("qdisc del dev lo root").expect("ours");
}

/// What waits in one class is taken away, and cannot be made anew: HTB without its settings stands for
/// what the kernel refuses.
fn tries_a_leaf_that_cannot_be_made() {
    let part = Part { rate: 1_000_000, most: 2_000_000, quantum: 1600 };
    let vms = BTreeMap::from([("one".to_owned(), part), ("two".to_owned(), part)]);
    let mut uplinks = [at_lo(4_000_000, vms)];
    let mut queues = Queues::new("/a.toml").expect("a socket");
    let handle = queues.handle >> 16;
    let take_away =
        || tc_says(&format!("qdisc del dev lo parent {handle:x}:2")).expect("it was there");
    let mut set = |kind, uplinks: &[Uplink]| {
        queues.discipline = Discipline { kind, module: "/nowhere" };
        let outcome = queues.set(uplinks, &BTreeMap::new()).remove(0).outcome;
        let said = tc_says("qdisc show dev lo").expect("qdiscs");
        (outcome.expect("the others"), said.matches("qdisc pfifo").count())
    };
    assert_eq!(set("pfifo", &uplinks).1, 3, "of both VMs and of all else");
    take_away();
    let (lacking, there) = set("htb", &uplinks);
    assert_eq!((lacking.leaf, there), (Leaf::FairQueues, 2), "the others stay");
    assert_eq!(lacking.mended, 0);
    let fault = lacking.fault.expect("told");
    assert!(fault.starts_with("cannot make the queue of a VM of lo: "), "{fault}");
    let (made, there) = set("pfifo", &uplinks);
    assert_eq!((made.fault, made.mended, there), (None, 1, 3), "at the next look");
    // Its VM goes as well, with its class.
    take_away();
    uplinks[0].vms.remove("one");
    let (made, there) = set("pfifo", &uplinks);
    assert_eq!((made.leaf, made.fault, there), (Leaf::FairQueues, None, 2));
}

#[test]
fn one_queue_that_cannot_be_made_anew_leaves_the_others_alone() {
    try_alone(tries_a_leaf_that_cannot_be_made);
}

#[test]
fn a_class_that_goes_as_its_queue_is_made_is_no_lack_of_the_kernels() {
    try_alone(|| {
        let mut queues = Queues::new("/a.toml").expect("a socket");
        let uplinks = [at_lo(4_000_000, BTreeMap::new())];
        queues.discipline = Discipline { kind: "pfifo", module: "/nowhere" };
        queues.set(&uplinks, &BTreeMap::new()).remove(0).outcome.expect("queues");
        let mut tree = queues.there.remove("lo").expect("a tree");
        queues.set_leaf(&mut tree, *VMS.start());
        assert_eq!(tree.leaf, Leaf::FairQueues);
        assert!(tree.fault.is_some() && tree.leafless == [*VMS.start()].into());
        tc_says("qdisc del dev lo root").expect("ours");
    });
}

/// Has something tried in a network namespace of its own, where there are such and HTB.
fn try_alone(what: fn()) {
    std::thread::spawn(move || {
        // SAFETY: only this thread leaves its network namespace, and shares no files by that.
        let alone = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
        if alone.is_err() || tc_says("qdisc add dev lo root handle 1: htb").is_none() {
            eprintln!("left out: no namespaces or no HTB here");
            return;
        }
        tc_says("qdisc del dev lo root").expect("ours");
        what();
    })
    .join()
    .expect("no fault");
}

#[test]
fn a_vm_has_a_queue_for_each_flow_where_the_kernel_has_those() {
    try_alone(tries_queues_at_lo);
}

#[test]
fn a_queue_for_each_flow_is_made_when_the_kernel_has_loaded_those() {
    try_alone(tries_what_is_loaded_later);
}

#[test]
fn who_comes_after_all_classes_are_taken_is_told_of() {
    let part = Part { rate: 1_000_000, most: 2_000_000, quantum: 1600 };
    let branch = |minor| (format!("tap{minor}"), Branch { minor, part, tap: None });
    let vms = VMS.map(branch).collect();
    let leaf = Leaf::Fifo;
    let (leafless, filters_seen) = (BTreeSet::new(), Instant::now());
    let mut tree = Tree {
        index: 1,
        rate: None,
        rest: None,
        vms,
        leaf,
        leafless,
        fault: None,
        filters_seen,
        is_full: false,
    };
    let mut queues = Queues::new("/a.toml").expect("a socket");
    queues.update_vm(&mut tree, "one-more", part, None).expect("it shares the rest's");
    assert!(tree.is_full && !tree.vms.contains_key("one-more"));
}

#[test]
fn what_failed_is_told_with_what_to_do() {
    let told =
        |what, error| error_of("up0", (what, io::Error::from_raw_os_error(error))).to_string();
    assert_eq!(told(FIND, libc::ENODEV), "no interface up0");
    assert!(told(SET_FILTER, libc::ENOENT).contains("modprobe cls_u32"));
    assert!(told(SET_FILTER, libc::EPERM).contains("CAP_NET_ADMIN"));
}

#[test]
fn what_may_go_at_once_is_two_milliseconds_or_a_frame() {
    let class = class_of(&Part { rate: 100_000, most: 125_000_000, quantum: 1600 });
    assert_eq!(class.bursts, [1600, 250_000]);
}
