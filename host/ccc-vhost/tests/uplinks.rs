// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon at an uplink of a real kernel, in network namespaces of the test's own.
//!
//! Two VMs' taps and the uplink are ports of a bridge, each an end of a veth.  Needs root, and
//! the kernel's bridge, htb and u32; without them it says so and passes.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, until},
    operator::Operator,
    space::{Over, must, run, within},
};

/// So many seconds are to be right within 1 %.
const RIGHT_SECONDS: usize = 3;
/// Of the uplink, bytes a second, and what its queues hold.
const RATE: u64 = 1_250_000;
const QUEUE_PACKETS: u64 = 40;
/// A datagram, and the frame that it is in.
const DATAGRAM: usize = 1400;
const FRAME: u64 = DATAGRAM as u64 + 8 + 20 + 14;
const FAR: &str = "10.9.9.1";
/// Each VM's tap, and address.
const VMS: [(&str, &str); 2] = [("tap0", "10.9.9.2"), ("tap1", "10.9.9.3")];
const BAD: usize = 0;
const GOOD: usize = 1;

/// A host's namespace with two taps and the uplink `up0`, the VMs', and what is behind that.
struct Net {
    host: String,
    far: String,
    vms: [String; 2],
}

impl Net {
    /// None where the kernel or the user cannot.
    fn new(name: &str) -> Option<Net> {
        let space = |kind: &str| format!("ccc-{kind}{}{name}", std::process::id());
        let net = Net { host: space("uh"), far: space("uf"), vms: [space("ua"), space("ub")] };
        for space in net.spaces() {
            if !run(&format!("ip netns add {space}")).0 {
                eprintln!("left out: no network namespaces here");
                return None;
            }
        }
        let host = &net.host;
        if !run(&format!("ip -n {host} link add br0 type bridge")).0
            || !run(&format!("tc -n {host} qdisc add dev br0 root handle 1: htb")).0
        {
            eprintln!("left out: no bridge or no HTB here");
            return None;
        }
        must(&format!("tc -n {host} qdisc del dev br0 root"));
        must(&format!("ip -n {host} link set br0 up"));
        net.port("up0", &net.far, FAR);
        for (space, (tap, address)) in net.vms.iter().zip(VMS) {
            net.port(tap, space, address);
        }
        must(&format!("ip -n {host} link set up0 txqueuelen {QUEUE_PACKETS}"));
        Some(net)
    }

    fn spaces(&self) -> [&String; 4] {
        [&self.host, &self.far, &self.vms[0], &self.vms[1]]
    }

    /// A port of the bridge that leads to a namespace.
    fn port(&self, port: &str, space: &str, address: &str) {
        let host = &self.host;
        must(&format!("ip -n {host} link add {port} type veth peer name eth0 netns {space}"));
        must(&format!("ip -n {host} link set {port} master br0 up"));
        must(&format!("ip -n {space} addr add {address}/24 dev eth0"));
        must(&format!("ip -n {space} link set eth0 up"));
    }

    /// A daemon in the host's namespace, with these settings of the group.
    fn daemon(&self, dir: tempfile::TempDir, group: &str, more: &str) -> Daemon {
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "[daemon]\ncontrol = \"{}\"\n{more}\n[group.uplink]\n{group}\n\
             [vm.bad]\nsocket = \"{}\"\ngroup = \"uplink\"\ntap = \"tap0\"\n\
             [vm.good]\nsocket = \"{}\"\ngroup = \"uplink\"\ntap = \"tap1\"\n",
            path("control"),
            path("bad"),
            path("good"),
        );
        fs::write(dir.path().join("ccc.toml"), config).unwrap();
        Daemon::spawn_by(dir, &["ip", "netns", "exec", &self.host], &[])
    }

    fn start(&self) -> Daemon {
        self.daemon(tempfile::tempdir().unwrap(), ON, "")
    }

    fn qdiscs(&self) -> String {
        must(&format!("tc -n {} qdisc show dev up0", self.host))
    }

    fn classes(&self) -> String {
        must(&format!("tc -n {} class show dev up0", self.host))
    }

    /// Bytes that have left by a class: the first is of what is no VM's, then come the taps'.
    fn bytes(&self, minor: &str) -> u64 {
        let told = must(&format!("tc -n {} -s class show dev up0", self.host));
        let class = told
            .split("class htb ")
            .find(|class| class.split(' ').next().is_some_and(|id| id.ends_with(minor)));
        class.unwrap().split("Sent ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    /// Bytes of each VM that leave while all queues are full.
    fn parts(&self) -> [f64; 2] {
        let count = || [":2", ":3"].map(|class| self.bytes(class) as f64);
        thread::sleep(Duration::from_secs(1));
        let before = count();
        thread::sleep(Duration::from_secs(4));
        let after = count();
        [after[BAD] - before[BAD], after[GOOD] - before[GOOD]]
    }

    /// A queue holds more than goes in one turn, as where nobody makes it short.
    fn lengthen(&self) {
        must(&format!("ip -n {} link set up0 txqueuelen {}", self.host, 10 * QUEUE_PACKETS));
    }

    fn filters(&self) -> String {
        must(&format!("tc -n {} filter show dev up0", self.host))
    }

    /// All is as it is to be: a class for each VM, one for the rest, one for all.
    fn is_queued(&self) -> bool {
        self.qdiscs().contains("qdisc htb")
            && self.classes().matches("class htb").count() == 4
            && VMS.iter().all(|(tap, _)| self.filters().contains(&format!("input dev {tap}")))
    }

    fn has_nothing(&self) -> bool {
        !self.qdiscs().contains("htb") && self.classes().is_empty() && self.filters().is_empty()
    }

    /// The uplink lets so many bytes a second go, within 1 %, and no more at any time.  A machine
    /// that stands still for a moment lets less go, so it has some seconds to show it.
    fn lets_go(&self, rate: f64) {
        let told = || {
            let asked = Instant::now();
            let said = must(&format!("tc -n {} -s -j qdisc show dev up0", self.host));
            let told: Value = serde_json::from_str(&said).unwrap();
            let half_way = asked + asked.elapsed() / 2;
            (asked, half_way, told[0]["bytes"].as_f64().unwrap())
        };
        let (begun, mut at, first) = told();
        let (mut bytes, mut is_right, mut tries) = (first, 0, Vec::new());
        while is_right < RIGHT_SECONDS && tries.len() < 20 {
            thread::sleep(Duration::from_secs(1));
            let (_, now, sum) = told();
            let is = (sum - bytes) / (now - at).as_secs_f64();
            is_right += usize::from((is / rate - 1.0).abs() < 0.01);
            tries.push(is);
            (at, bytes) = (now, sum);
        }
        let mean = (bytes - first) / begun.elapsed().as_secs_f64();
        eprintln!("{mean} bytes a second, of {rate}: {tries:?}");
        assert!(is_right == RIGHT_SECONDS && mean < rate * 1.01, "{mean} of {rate}: {tries:?}");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in self.spaces() {
            run(&format!("ip netns del {space}"));
        }
    }
}

/// The group's settings.
const ON: &str = "enforce = \"on\"\nuplink = \"up0\"\nuplink_rate_mbit = 10";
const OFF: &str = "enforce = \"observe\"\nuplink = \"up0\"\nuplink_rate_mbit = 10";

/// A sender catches up so much: fewer packets than a queue holds.
const BEHIND: Duration = Duration::from_millis(20);

/// Sends datagrams from a VM, which its number is in, at a rate, bytes a second, until it is over; how
/// many.  One that stood still catches up little.
fn send(net: &Net, vm: usize, rate: u64, over: &AtomicBool) -> u64 {
    send_together(net, vm, rate, 1, over)
}

/// The same, so many in one packet, which nobody cuts before they have left the host.
fn send_together(net: &Net, vm: usize, rate: u64, many: usize, over: &AtomicBool) -> u64 {
    within(&net.vms[vm], || {
        let socket = UdpSocket::bind(format!("{}:0", VMS[vm].1)).unwrap();
        if many > 1 {
            cut_later(&socket);
        }
        let packet = vec![vm as u8; many * DATAGRAM];
        let gap = Duration::from_nanos(many as u64 * FRAME * 1_000_000_000 / rate);
        let (mut sent, mut due) = (0, Instant::now());
        while !over.load(Ordering::Relaxed) {
            let is_sent = socket.send_to(&packet, (FAR, 9000)).is_ok();
            sent += if is_sent { many as u64 } else { 0 };
            let now = Instant::now();
            due = (due + gap).max(now - BEHIND);
            thread::sleep(due.saturating_duration_since(now));
        }
        sent
    })
}

/// What is sent becomes datagrams as late as it can (`UDP_SEGMENT`, which rustix has not).
fn cut_later(socket: &UdpSocket) {
    let (fd, bytes) = (std::os::fd::AsRawFd::as_raw_fd(socket), DATAGRAM as libc::c_int);
    let size = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of a number that is there.
    let done = unsafe {
        libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const bytes).cast(), size)
    };
    assert_eq!(done, 0);
}

/// A socket behind the uplink, with room for what comes while the machine stands still.
fn receiver(net: &Net) -> UdpSocket {
    within(&net.far, || {
        let socket = UdpSocket::bind((FAR, 9000)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        set_socket_recv_buffer_size_force(&socket, 1 << 23).unwrap();
        socket
    })
}

/// What has arrived of each VM, until nothing comes any more.
fn receive(socket: &UdpSocket, over: &AtomicBool) -> [u64; 2] {
    let (mut arrived, mut datagram) = ([0, 0], [0; DATAGRAM]);
    loop {
        match socket.recv(&mut datagram) {
            Ok(_) => arrived[usize::from(datagram[0])] += 1,
            Err(_) if over.load(Ordering::Relaxed) => return arrived,
            Err(_) => {}
        }
    }
}

/// Has VMs send at rates, bytes a second, while something goes on; what each sent, and what of
/// that has arrived.
fn sent<T: Send>(
    net: &Net,
    rates: &[(usize, u64)],
    meanwhile: impl FnOnce() -> T,
) -> ([u64; 2], [u64; 2]) {
    let (over, socket) = (AtomicBool::new(false), receiver(net));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&socket, &over));
        let senders = rates.iter().map(|(vm, rate)| {
            let over = &over;
            (*vm, scope.spawn(move || send(net, *vm, *rate, over)))
        });
        let senders: Vec<_> = senders.collect();
        {
            let _over = Over(&over);
            meanwhile();
        }
        let mut sent = [0, 0];
        senders.into_iter().for_each(|(vm, sender)| sent[vm] = sender.join().unwrap());
        (sent, receiver.join().unwrap())
    })
}

/// Twice what the uplink takes, and well below what each VM is sure of, a third: who takes more borrows
/// it, and may lose what a machine that stands still for a moment had no time to lend.
const FLOOD: u64 = 2 * RATE;
const LITTLE: u64 = RATE / 4;

#[test]
fn who_floods_loses_its_own_packets_from_the_first_on() {
    let Some(net) = Net::new("a") else { return };
    let two_seconds = || thread::sleep(Duration::from_secs(2));
    let both = [(BAD, FLOOD), (GOOD, LITTLE)];
    // One queue for both, at the same rate and as long.
    let limit = QUEUE_PACKETS * FRAME;
    let host = &net.host;
    let bytes = RATE * 8;
    must(&format!("tc -n {host} qdisc add dev up0 root tbf rate {bytes} burst 3k limit {limit}"));
    let (before, arrived) = sent(&net, &both, two_seconds);
    eprintln!("one queue: sent {before:?}, arrived {arrived:?}");
    assert!(arrived[GOOD] < before[GOOD] * 9 / 10, "it loses in one queue");
    must(&format!("tc -n {host} qdisc del dev up0 root"));
    let daemon = net.start();
    until("queued", || net.is_queued());
    let (before, arrived) = sent(&net, &both, two_seconds);
    eprintln!("a queue each: sent {before:?}, arrived {arrived:?}");
    let lost = before[GOOD] - arrived[GOOD];
    assert!(lost <= before[GOOD] / 100, "{lost} are lost of who keeps below its share");
    assert!(arrived[BAD] < before[BAD], "who floods loses");
    let judged = &Operator::at(&daemon.socket("control")).get("/v1/vms/bad")["judged"];
    assert_eq!(*judged, Value::Null, "nobody was judged for that");
}

#[test]
fn a_lone_vm_has_the_whole_uplink_and_no_more() {
    let Some(net) = Net::new("b") else { return };
    let daemon = net.start();
    until("queued", || net.is_queued());
    sent(&net, &[(BAD, FLOOD)], || net.lets_go(RATE as f64));
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 4}));
    until("capped", || net.classes().contains("ceil 4Mbit"));
    sent(&net, &[(BAD, FLOOD)], || net.lets_go(5e5));
    let rest = net.bytes(":1");
    assert!(rest < RATE / 4, "what comes through its shaper at the tap is its own, too: {rest}");
}

/// A change is in force: a daemon that looks once a second takes longer, a busy machine does not.
const SOON: Duration = Duration::from_millis(500);

#[test]
fn a_weight_is_in_force_at_once() {
    let Some(net) = Net::new("c") else { return };
    net.lengthen();
    let daemon = net.start();
    until("queued", || net.is_queued());
    let operator = Operator::at(&daemon.socket("control"));
    // A machine that stands still for a moment spoils some of many.
    let took = |round: usize| {
        let (weight, rate) = if round % 2 == 0 { (3, "rate 6Mbit") } else { (8, "rate 8Mbit") };
        let begun = Instant::now();
        operator.patch("/v1/vms/good", &json!({"weight": weight}));
        until(rate, || net.classes().contains(rate));
        begun.elapsed()
    };
    let mut took: Vec<Duration> = (0..11).map(took).collect();
    took.sort();
    eprintln!("in force after {took:?}");
    assert!(took[took.len() / 2] < SOON, "{took:?}");
    operator.patch("/v1/vms/good", &json!({"weight": 3}));
    until("three parts of five", || net.classes().contains("rate 6Mbit"));
    let mut parts = [0.0; 2];
    sent(&net, &[(BAD, FLOOD), (GOOD, FLOOD)], || parts = net.parts());
    let ratio = parts[GOOD] / parts[BAD];
    eprintln!("weights of 3 to 1: {parts:?}");
    assert!((2.6..3.4).contains(&ratio), "{parts:?}");
}

#[test]
fn vms_that_come_and_go_have_queues_while_they_are_there() {
    let Some(net) = Net::new("d") else { return };
    let mut daemon = net.start();
    until("queued", || net.is_queued());
    daemon.says("uplink up0: each VM of its group has a queue of its own there");
    let operator = Operator::at(&daemon.socket("control"));
    let has = |vms: usize| {
        let queues = &operator.get("/v1/groups/uplink")["queues"];
        queues["vms"] == vms && queues["wanted"] == 2
    };
    until("told of both", || has(2));
    let host = &net.host;
    must(&format!("tc -n {host} filter del dev up0"));
    until("led there again", || net.is_queued() && has(2));
    // The daemon sees both gone, never the class without what leads to it.
    let pid = daemon.pid();
    let class =
        net.filters().split("flowid ").last().unwrap().split(' ').next().unwrap().to_owned();
    must(&format!("kill -STOP {pid}"));
    must(&format!("tc -n {host} filter del dev up0"));
    must(&format!("tc -n {host} class del dev up0 classid {class}"));
    must(&format!("kill -CONT {pid}"));
    until("has its class again", || net.is_queued() && has(2));
    let has_leaf = || net.qdiscs().contains(&format!("parent {class} "));
    // Where the kernel has no fq_codel there is nothing to take away.
    if has_leaf() {
        must(&format!("tc -n {host} qdisc del dev up0 parent {class}"));
        daemon.says("was not there any more in 1 of them");
        assert!(has_leaf());
    }
    operator.patch("/v1/vms/bad", &json!({"tap": null}));
    until("one less", || net.classes().matches("class htb").count() == 3);
    until("told of one", || has(1));
    assert!(!net.filters().contains("tap0"), "{}", net.filters());
    operator.patch("/v1/vms/bad", &json!({"tap": "tap0"}));
    until("queued again", || net.is_queued());
    // A domain that starts again has another tap of the same name.
    must(&format!("ip -n {host} link del tap1"));
    until("nothing comes from there", || !net.filters().contains("input dev tap1"));
    until("told that it is off", || {
        let queues = &operator.get("/v1/groups/uplink")["queues"];
        queues["vms"] == 1 && queues["wanted"] == 1
    });
    net.port("tap1", &net.vms[GOOD], VMS[GOOD].1);
    until("the new one's packets are the VM's", || net.is_queued() && has(2));
    must(&format!("tc -n {} qdisc del dev up0 root", net.host));
    until("made anew", || net.is_queued());
    operator.patch("/v1/groups/uplink", &json!({"uplink": null}));
    until("gone", || net.has_nothing());
    daemon.says("uplink up0: VMs have no queues there any more");
}

#[test]
fn the_root_qdisc_of_somebody_else_is_left_alone() {
    let Some(net) = Net::new("e") else { return };
    must(&format!("tc -n {} qdisc add dev up0 root handle 1: htb", net.host));
    let is_theirs = || net.qdiscs().starts_with("qdisc htb 1: root");
    let mut daemon = net.start();
    daemon.says("up0 has a root qdisc of somebody else's");
    let group = || Operator::at(&daemon.socket("control")).get("/v1/groups/uplink");
    until("told", || group()["queues"]["trouble"].is_string());
    assert!(is_theirs() && group()["queues"]["there"] == false);
    daemon.terminate("-TERM");
    assert!(is_theirs() && net.classes().is_empty() && net.filters().is_empty());
}

#[test]
fn the_queues_of_another_daemon_are_left_alone() {
    let Some(net) = Net::new("f") else { return };
    let first = net.start();
    until("queued", || net.is_queued());
    let handle = || net.qdiscs().split(" root").next().map(str::to_owned);
    let there = handle();
    let mut second = net.start();
    second.says("up0 has a root qdisc of somebody else's");
    second.terminate("-TERM");
    assert!(handle() == there && net.is_queued());
    drop(first);
}

#[test]
fn nothing_is_left_at_the_end_nor_by_who_was_killed() {
    let Some(net) = Net::new("g") else { return };
    let mut daemon = net.start();
    until("queued", || net.is_queued());
    daemon.terminate("-TERM");
    assert!(net.has_nothing(), "{}", net.qdiscs());
    let mut daemon = net.daemon(daemon.moved(), ON, "");
    until("queued", || net.is_queued());
    daemon.terminate("-KILL");
    assert!(net.is_queued(), "nobody is there to take it away");
    let mut daemon = net.daemon(daemon.moved(), ON, "");
    daemon.says("queues that an earlier daemon has left at an uplink are gone");
    until("queued anew", || net.is_queued());
    daemon.terminate("-KILL");
    let mut daemon = net.daemon(daemon.moved(), OFF, "");
    until("taken away", || net.has_nothing());
    daemon.terminate("-TERM");
}

#[test]
fn queues_that_are_to_be_kept_are_until_they_are_released() {
    let Some(net) = Net::new("h") else { return };
    let mut daemon = net.daemon(tempfile::tempdir().unwrap(), ON, "keep_holds = true");
    until("queued", || net.is_queued());
    daemon.terminate("-TERM");
    assert!(net.is_queued());
    let (space, program) = (&net.host, support::daemon::PROGRAM);
    let configuration = daemon.dir.path().join("ccc.toml");
    let configuration = configuration.display();
    let release = format!("{program} --config {configuration} --release");
    let (done, said) =
        run(&format!("ip netns exec {space} setpriv --bounding-set -net_admin {release}"));
    assert!(!done && said.contains("CAP_NET_ADMIN") && net.is_queued(), "{said}");
    let (done, said) = run(&format!("ip netns exec {space} {release}"));
    assert!(done && net.has_nothing(), "{said} {}", net.qdiscs());
    assert!(
        said.contains("queues that an earlier daemon has left at an uplink are gone"),
        "{said}"
    );
    assert!(!said.contains("no tap was held"), "{said}");
    let (done, said) = run(&format!("ip netns exec {space} {release}"));
    assert!(done && said.contains("no tap was held, and no uplink had queues"), "{said}");
}

#[test]
fn a_vm_of_a_group_left_alone_has_its_queue_again_after_a_restart() {
    let Some(net) = Net::new("i") else { return };
    let daemon = net.start();
    until("queued", || net.is_queued());
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/groups/uplink", &json!({"coupled": false}));
    must(&format!("ip -n {} link del tap1", net.host));
    until("nothing comes from there", || !net.filters().contains("input dev tap1"));
    net.port("tap1", &net.vms[GOOD], VMS[GOOD].1);
    until("the new one's packets are the VM's", || net.is_queued());
}

#[test]
fn who_puts_its_own_qdisc_in_place_of_ours_has_it() {
    let Some(net) = Net::new("j") else { return };
    let mut daemon = net.start();
    until("queued", || net.is_queued());
    must(&format!("tc -n {} qdisc replace dev up0 root handle 1: htb", net.host));
    daemon.says("up0 has a root qdisc of somebody else's");
    let group = || Operator::at(&daemon.socket("control")).get("/v1/groups/uplink");
    until("told", || group()["queues"]["trouble"].is_string());
    assert_eq!(group()["queues"]["there"], false);
    must(&format!("tc -n {} qdisc del dev up0 root", net.host));
    until("queued again", || net.is_queued());
}

#[test]
fn an_uplink_without_queues_is_told_with_what_to_do() {
    let Some(net) = Net::new("k") else { return };
    let on = ON.replace("up0", "up1");
    let mut daemon = net.daemon(tempfile::tempdir().unwrap(), &on, "");
    daemon.says("VMs have no queues of their own there: no interface up1");
    drop(daemon);
    // Another configuration's, which nobody is there to take away.
    let mut left = net.start();
    until("queued", || net.is_queued());
    left.terminate("-KILL");
    net.start().says("(ccc-vhost --config ITS_CONFIGURATION --release)");
    assert!(net.is_queued());
}

#[test]
fn a_bridge_is_no_uplink() {
    let Some(net) = Net::new("o") else { return };
    let mut daemon = net.daemon(tempfile::tempdir().unwrap(), &ON.replace("up0", "br0"), "");
    daemon.says("VMs have no queues of their own there: br0 is a bridge");
    let queues = Operator::at(&daemon.socket("control")).get("/v1/groups/uplink")["queues"].clone();
    assert_eq!((&queues["there"], &queues["vms"]), (&json!(false), &json!(0)), "{queues}");
    let (program, file) = (support::daemon::PROGRAM, daemon.dir.path().join("ccc.toml"));
    let check = format!("ip netns exec {} {program} --config {} --check", net.host, file.display());
    let (_, said) = run(&check);
    assert!(said.contains("group uplink: its uplink br0 is a bridge"), "{said}");
    assert!(!must(&format!("tc -n {} qdisc show dev br0", net.host)).contains("htb"));
}

#[test]
fn an_interface_that_two_groups_name_is_told() {
    let Some(net) = Net::new("n") else { return };
    let (host, dir) = (&net.host, tempfile::tempdir().unwrap());
    if !run(&format!("ip -n {host} link property add dev up0 altname also0")).0 {
        eprintln!("left out: interfaces have one name here");
        return;
    }
    let zone = ON.replace("up0", "also0");
    let socket = dir.path().join("zone").display().to_string();
    let more = format!(
        "[group.zone]\n{zone}\n[vm.zone]\nsocket = \"{socket}\"\ngroup = \"zone\"\ntap = \"tap2\"\n"
    );
    let mut daemon = net.daemon(dir, ON, &more);
    daemon.says("VMs have no queues of their own there: also0 is up0");
    until("queued", || net.is_queued());
    let file = daemon.dir.path().join("ccc.toml");
    let (program, file) = (support::daemon::PROGRAM, file.display());
    let (_, said) = run(&format!("ip netns exec {host} {program} --config {file} --check"));
    assert!(
        said.contains("groups uplink and zone have one uplink, for up0 and also0 are names of one"),
        "{said}"
    );
}

#[test]
fn an_interface_that_was_the_uplink_keeps_none_of_our_queues() {
    let Some(net) = Net::new("m") else { return };
    let daemon = net.start();
    until("queued", || net.is_queued());
    // The daemon sees both at once, never the name without an interface.
    let host = &net.host;
    let pid = daemon.pid();
    must(&format!("ip -n {host} link add new0 type veth peer name new1"));
    must(&format!("kill -STOP {pid}"));
    must(&format!("ip -n {host} link set up0 down"));
    must(&format!("ip -n {host} link set up0 name old0"));
    must(&format!("ip -n {host} link set new0 name up0"));
    must(&format!("kill -CONT {pid}"));
    until("the new one is queued", || net.is_queued());
    let old = must(&format!("tc -n {host} qdisc show dev old0"));
    assert!(!old.contains("htb"), "{old}");
}

#[test]
fn long_packets_have_no_more_than_their_weight() {
    let Some(net) = Net::new("l") else { return };
    net.lengthen();
    let dir = tempfile::tempdir().unwrap();
    // What they leave is shared in turns.
    let idle = (0..8).map(|number| {
        let socket = dir.path().join(format!("idle{number}"));
        let socket = socket.display();
        format!(
            "\n[vm.idle{number}]\nsocket = \"{socket}\"\ngroup = \"uplink\"\ntap = \"vnet{number}\""
        )
    });
    let group = idle.fold(ON.to_owned(), |group, vm| group + &vm);
    let _daemon = net.daemon(dir, &group, "");
    let is_queued = || {
        let filters = net.filters();
        VMS.iter().all(|(tap, _)| filters.contains(&format!("input dev {tap}")))
    };
    until("queued", is_queued);
    let over = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        scope.spawn(|| send_together(&net, BAD, FLOOD, 44, &over));
        scope.spawn(|| send(&net, GOOD, FLOOD, &over));
        let _over = Over(&over);
        net.parts()
    });
    eprintln!("in long packets and in short ones: {sent:?} bytes");
    assert!((0.75..1.33).contains(&(sent[BAD] / sent[GOOD])), "{sent:?}");
}
