// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon at taps of a real kernel, in network namespaces of the test's own.
//!
//! A tap is an end of a veth: what its other end sends comes in there, as from a VM.  Needs
//! root, and the kernel's ifb, htb and u32; without them it says so and passes.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ccc_proto::wire;
use rustix::net::sockopt::set_socket_send_buffer_size;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, until},
    driver::{Driver, report},
    frontend::Mode,
    operator::Operator,
    space::{Over, must, run, within},
};

/// A host's namespace with the tap `tap0`, and a VM's at its other end.
struct Net {
    host: String,
    vm: String,
}

impl Net {
    /// None where the kernel or the user cannot.
    fn new(name: &str) -> Option<Net> {
        let id = std::process::id();
        let net = Net { host: format!("ccc-h{id}{name}"), vm: format!("ccc-v{id}{name}") };
        for space in [&net.host, &net.vm] {
            if !run(&format!("ip netns add {space}")).0 {
                eprintln!("left out: no network namespaces here");
                return None;
            }
        }
        let (host, vm) = (&net.host, &net.vm);
        must(&format!("ip -n {host} link add tap0 type veth peer name eth0 netns {vm}"));
        if !run(&format!("ip -n {host} link add probe type ifb")).0 {
            eprintln!("left out: no ifb here");
            return None;
        }
        must(&format!("ip -n {host} link del probe"));
        net.address();
        must(&format!("ip -n {host} link set lo up"));
        Some(net)
    }

    /// Gives both ends their addresses.
    fn address(&self) {
        let ends = [(&self.host, "tap0", "10.9.9.1/24"), (&self.vm, "eth0", "10.9.9.2/24")];
        for (space, device, address) in ends {
            must(&format!("ip -n {space} addr add {address} dev {device}"));
            must(&format!("ip -n {space} link set {device} up"));
        }
    }

    /// A daemon in the host's namespace.
    fn daemon(&self, dir: tempfile::TempDir, enforce: &str, more: &str) -> Daemon {
        self.daemon_by(dir, enforce, more, &[])
    }

    /// The same, started by some words.
    fn daemon_by(&self, dir: tempfile::TempDir, enforce: &str, more: &str, by: &[&str]) -> Daemon {
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "[daemon]\ncontrol = \"{}\"\n{more}\n[group.uplink]\nenforce = \"{enforce}\"\n\
             [vm.bad]\nsocket = \"{}\"\ngroup = \"uplink\"\ntap = \"tap0\"\n\
             [vm.good]\nsocket = \"{}\"\ngroup = \"uplink\"\ntap = \"lo\"\n",
            path("control"),
            path("bad"),
            path("good"),
        );
        fs::write(dir.path().join("ccc.toml"), config).unwrap();
        let by = [&["ip", "netns", "exec", &self.host], by].concat();
        Daemon::spawn_by(dir, &by, &[])
    }

    fn links(&self) -> String {
        must(&format!("ip -n {} link", self.host))
    }

    fn filters(&self) -> String {
        must(&format!("tc -n {} filter show dev tap0 ingress", self.host))
    }

    /// The shaper lets so many bytes a second go, within 1 %.  What a machine that stands
    /// still for a moment tells is not that, so it has some seconds to show it.
    fn is_let_go_at(&self, rate: f64) {
        let device = self.links();
        let device = device.split("ccc-ifb").nth(1).unwrap().split(':').next().unwrap();
        let count = || {
            let asked = Instant::now();
            let said = must(&format!("tc -n {} -s -j qdisc show dev ccc-ifb{device}", self.host));
            // Half-way the kernel was asked.
            let then = asked + asked.elapsed() / 2;
            let told: Vec<Value> = serde_json::from_str(&said).unwrap();
            let root = told.iter().find(|qdisc| qdisc["root"] == true).unwrap();
            (then, root["bytes"].as_f64().unwrap(), said)
        };
        // What may go at once has gone.
        thread::sleep(Duration::from_millis(500));
        let mut tries = Vec::new();
        for _ in 0..20 {
            let (begun, before, _) = count();
            thread::sleep(Duration::from_secs(1));
            let (ended, after, said) = count();
            let is = (after - before) / (ended - begun).as_secs_f64();
            if (is / rate - 1.0).abs() < 0.01 {
                return;
            }
            tries.push((is, said));
        }
        panic!("never {rate} bytes a second: {tries:?}");
    }

    /// Ends a daemon, which lets go what it holds.  Where that takes long it leaves it to
    /// the next one.
    fn end(&self, mut daemon: Daemon) {
        for _ in 0..20 {
            daemon.terminate("-TERM");
            if !daemon.log().contains("taps cannot be let go in time") {
                return;
            }
            daemon = self.daemon(daemon.moved(), "on", "");
        }
        panic!("never let go in time");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in [&self.host, &self.vm] {
            run(&format!("ip netns del {space}"));
        }
    }
}

/// Of the socket that floods: as much as a kernel lets anybody have.
const SEND_BYTES: usize = 212_992;

/// Sends datagrams from the VM at a rate, bytes a second, while something goes on.
fn flooded<T: Send>(net: &Net, rate: u64, meanwhile: impl FnOnce() -> T + Send) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            within(&net.vm, || {
                let socket = UdpSocket::bind("10.9.9.2:0").unwrap();
                // What waits in the shaper's queue is the socket's yet: a VM has more room.
                set_socket_send_buffer_size(&socket, SEND_BYTES).unwrap();
                let (begun, mut sent) = (Instant::now(), 0);
                let is_over = || over.load(Ordering::Relaxed);
                while !is_over() {
                    while sent < rate * begun.elapsed().as_millis() as u64 / 1000 && !is_over() {
                        // Nobody listens there; refusals come back.
                        let _ = socket.send_to(&[0; 1400], "10.9.9.1:9");
                        sent += 1442;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
        });
        let _over = Over(&over);
        meanwhile()
    })
}

/// What a VM does that takes all it is given, and loses now and then: 1 Mbit/s through the
/// loopback, which its reports account for.
fn beside_an_honest_vm<T>(net: &Net, daemon: &Daemon, what: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    const STEP_BYTES: u64 = 6250;
    let over = AtomicBool::new(false);
    let mut driver = Driver::connect(&daemon.socket("good"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    let mut now = report(1);
    driver.tell(&extent, wire::OP_REGISTER, 0, &now);
    thread::scope(|scope| {
        scope.spawn(|| {
            within(&net.host, || {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                for step in 1.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    for _ in 0..STEP_BYTES / 1250 {
                        let _ = socket.send_to(&[0; 1208], "127.0.0.1:9");
                    }
                    let bytes = (step * STEP_BYTES).into();
                    (now.delivered_bytes, now.acked_limited_bytes) = (bytes, bytes);
                    now.congestion_events = (step as u16 / 4).into();
                    driver.tell(&extent, wire::OP_UPDATE, 0, &now);
                    thread::sleep(Duration::from_millis(50));
                }
            });
        });
        let _over = Over(&over);
        what()
    })
}

/// Bytes a second of the flood, and of what it is held to.
const FLOOD: u64 = 2_500_000;
const FLOOR_MBIT: f64 = 8.0;

fn start(net: &Net, enforce: &str, more: &str) -> Daemon {
    net.daemon(tempfile::tempdir().unwrap(), enforce, more)
}

fn is_held(net: &Net) -> bool {
    net.links().contains("ccc-ifb") && net.filters().contains("mirred")
}

#[test]
fn a_vm_that_floods_is_held_to_its_share_at_its_tap() {
    let Some(net) = Net::new("a") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"floor_mbit": FLOOR_MBIT}));
    beside_an_honest_vm(&net, &daemon, || {
        thread::sleep(Duration::from_secs(3));
        assert!(!net.links().contains("ccc-ifb"), "nothing is done to who does nothing");
        flooded(&net, FLOOD, || {
            until("held", || is_held(&net));
            let held = || operator.get("/v1/vms/bad")["held"].as_f64().unwrap_or(0.0);
            until("held to its floor", || held() == FLOOR_MBIT * 1e6 / 8.0);
            assert_eq!(operator.get("/v1/vms/bad")["judged"], "unreported");
            net.is_let_go_at(FLOOR_MBIT * 1e6 / 8.0);
            let tap = &operator.get("/v1/groups/uplink")["vms"][0]["tap"];
            assert!(tap["sent"].as_u64() > Some(FLOOD / 4) && tap["claimed"] == 0, "{tap}");
            assert_eq!(tap["verdict"]["reason"], "unreported");
        });
        until("let go", || !net.links().contains("ccc-ifb") && net.filters().is_empty());
    });
    daemon.says("VM bad: in group uplink, has no module, or sends what is not coupled");
    daemon.says("VM bad: keeps below its share in group uplink now");
}

#[test]
fn a_vm_above_its_cap_is_held_to_that_though_nobody_loses() {
    let Some(net) = Net::new("i") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let held = || operator.get("/v1/vms/bad")["held"].as_f64().unwrap_or(0.0);
    flooded(&net, FLOOD, || {
        thread::sleep(Duration::from_secs(3));
        assert!(!is_held(&net), "without a cap it may send what nobody else wants");
        operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
        until("held to its cap", || is_held(&net) && held() == 1e6);
        net.is_let_go_at(1e6);
        assert_eq!(operator.get("/v1/vms/bad")["judged"], "above its cap");
        operator.patch("/v1/vms/bad", &json!({"cap_mbit": 4}));
        until("held to a lower one", || held() == 5e5);
    });
    daemon.says("VM bad: in group uplink, sends above its cap");
}

#[test]
fn a_rate_that_changes_lets_no_more_go() {
    let Some(net) = Net::new("o") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let cap = |mbit: f64| operator.patch("/v1/vms/bad", &json!({"cap_mbit": mbit}));
    let through = || {
        let said = must(&format!("tc -n {} -s -j qdisc show", net.host));
        let told: Vec<Value> = serde_json::from_str(&said).unwrap();
        let ours = told.iter().find(|qdisc| {
            qdisc["root"] == true
                && qdisc["dev"].as_str().is_some_and(|dev| dev.starts_with("ccc-ifb"))
        });
        ours.unwrap()["bytes"].as_f64().unwrap()
    };
    cap(4.0);
    flooded(&net, FLOOD, || {
        until("held", || is_held(&net));
        thread::sleep(Duration::from_secs(1));
        let (begun, before) = (Instant::now(), through());
        for step in 0..60 {
            cap(4.0 + f64::from(step % 2) / 10.0);
            thread::sleep(Duration::from_millis(50));
        }
        let rate = (through() - before) / begun.elapsed().as_secs_f64() * 8.0 / 1e6;
        assert!(rate < 4.3, "{rate} Mbit/s");
    });
}

/// Bytes a second of a VM that begins to flood, and of its cap.
const GIGABIT: u64 = 125_000_000;
const FAST_CAP_MBIT: u64 = 200;
/// A daemon that looks once a second takes longer, a busy machine does not.
const SOON: Duration = Duration::from_millis(500);

/// How long it takes until a VM that begins to send more than its cap is held, and that it is
/// held to it.
fn time_until_a_gigabit_is_held() -> Option<Duration> {
    let net = Net::new("n")?;
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": FAST_CAP_MBIT}));
    let is_seen = || !operator.get("/v1/groups/uplink")["vms"][0]["tap"].is_null();
    until("looked at", is_seen);
    let begun = Instant::now();
    let took = flooded(&net, GIGABIT, || {
        until("held", || net.filters().contains("mirred"));
        let took = begun.elapsed();
        net.is_let_go_at(FAST_CAP_MBIT as f64 * 1e6 / 8.0);
        took
    });
    Some(took)
}

#[test]
fn a_gigabit_is_held_to_its_cap_soon_after_it_begins() {
    // A machine that stands still for a moment spoils one or two.
    let took: Option<Vec<_>> = (0..5).map(|_| time_until_a_gigabit_is_held()).collect();
    let Some(mut took) = took else { return };
    took.sort();
    eprintln!("held after {took:?}");
    assert!(took[took.len() / 2] < SOON, "{took:?}");
}

#[test]
fn a_cap_holds_whether_the_group_is_coupled_or_not() {
    let Some(net) = Net::new("k") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let judged = || operator.get("/v1/vms/bad")["judged"].clone();
    operator.patch("/v1/groups/uplink", &json!({"coupled": false}));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net) && judged() == "above its cap");
        operator.patch("/v1/groups/uplink", &json!({"coupled": true}));
        for _ in 0..30 {
            thread::sleep(Duration::from_millis(100));
            assert!(is_held(&net) && judged() == "above its cap", "{}", judged());
        }
        let trial = json!({"coupled": false, "seconds": 60});
        let (status, said) = operator.ask("PUT", "/v1/groups/uplink/trial", Some(&trial));
        assert_eq!(status, 200, "{said}");
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(100));
            assert!(is_held(&net) && judged() == "above its cap", "{}", judged());
        }
        operator.patch("/v1/vms/bad", &json!({"cap_mbit": null}));
        until("let go without a cap", || !is_held(&net));
    });
}

#[test]
fn a_tap_that_is_made_anew_or_let_go_by_others_is_held_again() {
    let Some(net) = Net::new("j") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    let (host, vm) = (&net.host, &net.vm);
    // A hold ends some seconds after what it is for: that goes on meanwhile.
    let device = flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        must(&format!("tc -n {host} qdisc del dev tap0 ingress"));
        until("held again", || is_held(&net));
        daemon.says("tap tap0 is held no more");
        let links = net.links();
        let number = links.split("ccc-ifb").nth(1).unwrap().split(':').next().unwrap();
        must(&format!("tc -n {host} qdisc del dev ccc-ifb{number} root"));
        until("with a shaper again", || net.links().contains("qdisc htb"));
        let lost = daemon.log().matches("tap tap0 is held no more").count();
        assert_eq!(lost, 2, "nor is it lost since");
        must(&format!("ip -n {host} link del ccc-ifb{number}"));
        until("with a device again", || is_held(&net) && !net.filters().contains("device *"));
        net.links()
    });
    must(&format!("ip -n {host} link del tap0"));
    must(&format!("ip -n {host} link add tap0 type veth peer name eth0 netns {vm}"));
    net.address();
    flooded(&net, FLOOD, || until("held once more", || is_held(&net)));
    assert_ne!(net.links(), device);
}

/// `tap0` becomes `old0`, and another interface `tap0`.
fn rename(net: &Net) {
    let (host, vm) = (&net.host, &net.vm);
    must(&format!("ip -n {host} link add tap1 type veth peer name eth1 netns {vm}"));
    for (from, to) in [("tap0", "old0"), ("tap1", "tap0")] {
        must(&format!("ip -n {host} link set {from} down"));
        must(&format!("ip -n {host} link set {from} name {to}"));
        must(&format!("ip -n {host} link set {to} up"));
    }
}

#[test]
fn an_interface_with_another_name_is_no_vms_tap_any_more() {
    let Some(net) = Net::new("o") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let sent = || operator.get("/v1/groups/uplink")["vms"][0]["tap"]["sent"].as_u64();
    flooded(&net, FLOOD / 4, || until("seen", || sent() > Some(FLOOD / 8)));
    rename(&net);
    until("the other one is looked at", || sent().is_some_and(|sent| sent < FLOOD / 8));
    // No sooner: who floods catches up, and may be above it for a moment.
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    thread::sleep(Duration::from_secs(1));
    flooded(&net, FLOOD, || thread::sleep(Duration::from_secs(2)));
    assert_eq!(operator.get("/v1/vms/bad")["judged"], Value::Null);
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
}

#[test]
fn of_a_tap_that_is_held_the_name_counts() {
    let Some(net) = Net::new("p") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || until("held to its cap", || is_held(&net)));
    let device = net.links();
    rename(&net);
    until("the other one is held", || {
        is_held(&net) && net.links().matches("qdisc htb").count() == 1
    });
    assert_ne!(net.links(), device);
    let qdisc = must(&format!("tc -n {} qdisc show dev old0", net.host));
    assert!(!qdisc.contains("ingress"), "{qdisc}");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(net.filters().matches("mirred").count(), 1, "{}", net.filters());
    assert_eq!(daemon.log().matches("tap tap0 is held no more").count(), 1, "{}", daemon.log());
    // With no interface of that name nobody is held.
    must(&format!("ip -n {} link set tap0 down", net.host));
    must(&format!("ip -n {} link set tap0 name tap9", net.host));
    until("let go", || !net.links().contains("ccc-ifb"));
}

#[test]
fn while_a_group_is_tried_uncoupled_none_of_its_vms_is_judged_or_held() {
    let Some(net) = Net::new("h") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let judged = || operator.get("/v1/vms/bad")["judged"].clone();
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            until("held", || is_held(&net));
            let trial = json!({"coupled": false, "seconds": 60});
            let (status, said) = operator.ask("PUT", "/v1/groups/uplink/trial", Some(&trial));
            assert_eq!(status, 200, "{said}");
            until("let go", || !net.links().contains("ccc-ifb"));
            for _ in 0..30 {
                thread::sleep(Duration::from_millis(100));
                assert_eq!(judged(), Value::Null, "uncoupled it may send what it likes");
            }
            operator.patch("/v1/groups/uplink", &json!({"coupled": true}));
            until("coupled again, and held", || is_held(&net));
        });
    });
}

#[test]
fn what_a_daemon_holds_outlives_its_crash_and_not_its_end() {
    let Some(net) = Net::new("b") else { return };
    let mut daemon = start(&net, "on", "");
    let hold = |daemon: &Daemon| {
        beside_an_honest_vm(&net, daemon, || {
            flooded(&net, FLOOD, || until("held", || is_held(&net)))
        });
    };
    hold(&daemon);
    daemon.terminate("-KILL");
    assert!(is_held(&net), "nobody is there to let it go");
    let dir = daemon.moved();
    let mut daemon = net.daemon(dir, "on", "");
    daemon.says("taps that an earlier daemon holds: tap0");
    until("let go, as nothing speaks against it", || !is_held(&net));
    hold(&daemon);
    net.end(daemon);
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    assert!(!must(&format!("tc -n {} qdisc show dev tap0", net.host)).contains("ingress"));
}

#[test]
fn a_daemon_that_is_to_keep_what_it_holds_does() {
    let Some(net) = Net::new("c") else { return };
    let mut daemon = start(&net, "on", "keep_holds = true");
    let flood = || flooded(&net, FLOOD, || until("held", || is_held(&net)));
    beside_an_honest_vm(&net, &daemon, flood);
    daemon.terminate("-TERM");
    assert!(is_held(&net));
    let (space, program) = (&net.host, support::daemon::PROGRAM);
    let configuration = daemon.dir.path().join("ccc.toml");
    let configuration = configuration.display();
    must(&format!("ip netns exec {space} {program} --config {configuration} --release"));
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
}

#[test]
fn where_it_only_observes_nothing_is_held() {
    let Some(net) = Net::new("d") else { return };
    let daemon = start(&net, "observe", "");
    let operator = Operator::at(&daemon.socket("control"));
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            until("judged", || operator.get("/v1/vms/bad")["judged"] == "unreported");
        });
    });
    assert!(!net.links().contains("ccc-ifb"));
    assert_eq!(operator.get("/v1/vms/bad")["held"], Value::Null);
}

#[test]
fn the_qdisc_of_somebody_else_is_left_alone() {
    let Some(net) = Net::new("e") else { return };
    must(&format!("tc -n {} qdisc add dev tap0 handle ffff: ingress", net.host));
    let mut daemon = start(&net, "on", "");
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            let operator = Operator::at(&daemon.socket("control"));
            until("judged", || operator.get("/v1/vms/bad")["judged"] == "unreported");
            thread::sleep(Duration::from_secs(1));
        });
    });
    daemon.says("tap tap0 has an ingress qdisc of somebody else's");
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    assert!(must(&format!("tc -n {} qdisc show dev tap0", net.host)).contains("ingress"));
    assert!(net.filters().is_empty());
}

#[test]
fn an_empty_qdisc_in_the_place_of_ours_is_left_alone() {
    let Some(net) = Net::new("m") else { return };
    let mut daemon = start(&net, "on", "");
    let cap = json!({"cap_mbit": 8});
    Operator::at(&daemon.socket("control")).patch("/v1/vms/bad", &cap);
    flooded(&net, FLOOD, || until("held to its cap", || is_held(&net)));
    daemon.terminate("-KILL");
    let host = &net.host;
    must(&format!("tc -n {host} qdisc del dev tap0 ingress"));
    must(&format!("tc -n {host} qdisc add dev tap0 handle ffff: ingress"));
    let has_qdisc = || must(&format!("tc -n {host} qdisc show dev tap0")).contains("ingress");
    let mut daemon = net.daemon(daemon.moved(), "on", "");
    Operator::at(&daemon.socket("control")).patch("/v1/vms/bad", &cap);
    flooded(&net, FLOOD, || daemon.says("tap tap0 has an ingress qdisc of somebody else's"));
    assert!(net.filters().is_empty(), "{}", net.filters());
    Operator::at(&daemon.socket("control")).patch("/v1/vms/bad", &json!({"cap_mbit": null}));
    net.end(daemon);
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    assert!(has_qdisc(), "it is gone with what was ours");
}

/// Words that start a daemon as one that may not change interfaces.
const POWERLESS: [&str; 2] = ["setpriv", "--bounding-set=-net_admin"];

#[test]
fn the_tap_that_another_daemon_holds_is_left_alone() {
    let Some(net) = Net::new("l") else { return };
    let first = start(&net, "on", "");
    let mut second = start(&net, "on", "");
    let [operator, other] = [&first, &second].map(|daemon| Operator::at(&daemon.socket("control")));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        let (links, filters) = (net.links(), net.filters());
        other.patch("/v1/vms/bad", &json!({"cap_mbit": 6}));
        second.says("tap tap0 has an ingress qdisc of somebody else's");
        second.terminate("-TERM");
        assert_eq!((net.links(), net.filters()), (links, filters));
    });
}

#[test]
fn what_a_daemon_may_not_let_go_is_told_with_what_to_do() {
    let Some(net) = Net::new("f") else { return };
    let mut daemon = start(&net, "on", "");
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || until("held", || is_held(&net)));
    });
    daemon.terminate("-KILL");
    let dir = daemon.moved();
    let mut daemon = net.daemon_by(dir, "on", "", &POWERLESS);
    let device = net.links().split("ccc-ifb").nth(1).unwrap().split(':').next().unwrap().to_owned();
    daemon.says("VM bad: tap tap0 is held on, and not to be: cannot remove the ingress qdisc");
    daemon.says(&format!("tc qdisc del dev tap0 ingress; ip link del ccc-ifb{device}"));
    daemon.says("AmbientCapabilities=CAP_NET_ADMIN");
    assert!(is_held(&net));
    let held = &Operator::at(&daemon.socket("control")).get("/v1/vms/bad")["held"];
    assert_eq!(*held, Value::Null, "at a rate that is not known");
    must(&format!("tc -n {} qdisc del dev tap0 ingress", net.host));
    must(&format!("ip -n {} link del ccc-ifb{device}", net.host));
}

#[test]
fn what_is_to_be_enforced_in_vain_is_told() {
    let Some(net) = Net::new("g") else { return };
    let file = tempfile::tempdir().unwrap();
    let mut daemon = net.daemon_by(file, "on", "", &POWERLESS);
    let powerless = "group uplink: enforce = \"on\" cannot hold any VM: the daemon needs";
    daemon.says(powerless);
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            let operator = Operator::at(&daemon.socket("control"));
            until("judged", || operator.get("/v1/vms/bad")["judged"] == "unreported");
            thread::sleep(Duration::from_secs(1));
        });
    });
    daemon.says("VM bad: cannot make the device of tap tap0: ");
    let line = daemon.log().lines().find(|line| line.contains("cannot make")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.contains("AmbientCapabilities=CAP_NET_ADMIN")));
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/groups/default", &json!({"enforce": "on"}));
    daemon.says("group default: enforce = \"on\" cannot hold any VM");
    operator.patch("/v1/vms/good", &json!({"tap": null}));
    daemon.says("VM good: it has no tap, so group uplink neither judges nor holds it");
    operator.patch("/v1/vms/good", &json!({"tap": "gone0"}));
    let _good = Driver::connect(&daemon.socket("good"), Mode::InBand);
    daemon.says("VM good: its tap gone0 is not there, so group uplink neither judges");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.log().matches("gone0 is not there").count(), 1, "once");
    assert_eq!(daemon.log().matches(powerless).count(), 1, "once");
    let config = daemon.dir.path().join("ccc.toml");
    let program = env!("CARGO_BIN_EXE_ccc-vhost");
    let check = format!("{program} --config {} --check", config.display());
    let (_, said) = run(&format!("{} {check}", POWERLESS.join(" ")));
    assert!(said.contains(powerless), "{said}");
    assert!(!run(&check).1.contains("cannot hold any VM"), "this one may");
}

/// What `--check` says of the daemon's configuration in the host's namespace.
fn checked(net: &Net, daemon: &Daemon) -> String {
    let (program, file) = (support::daemon::PROGRAM, daemon.dir.path().join("ccc.toml"));
    let check = format!("{program} --config {} --check", file.display());
    run(&format!("ip netns exec {} {check}", net.host)).1
}

#[test]
fn a_tap_that_counts_what_its_vm_receives_is_not_looked_at() {
    const MAC: &str = "02:00:00:00:00:03";
    let Some(net) = Net::new("q") else { return };
    let (host, vm) = (&net.host, &net.vm);
    let make = format!("ip -n {host} link add link tap0 name mv0 address {MAC} type");
    if !["macvtap", "macvlan"].iter().any(|kind| run(&format!("{make} {kind}")).0) {
        eprintln!("left out: neither macvtap nor macvlan here");
        return;
    }
    must(&format!("ip -n {host} link set mv0 up"));
    // What the flood sends is what a VM at `mv0` would receive.
    must(&format!("ip -n {vm} neigh replace 10.9.9.1 lladdr {MAC} dev eth0 nud permanent"));
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"tap": "mv0", "cap_mbit": 8, "device": false}));
    daemon.says("VM bad: its tap mv0 is a macv");
    daemon.says("<interface type='bridge'>), so group uplink neither judges nor holds it");
    flooded(&net, FLOOD, || {
        let received = || {
            let told = must(&format!("ip -n {host} -s -j link show mv0"));
            let told: Vec<Value> = serde_json::from_str(&told).unwrap();
            told[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
        };
        until("it receives", || received() > FLOOD * 2);
    });
    let told = operator.get("/v1/vms/bad");
    assert_eq!([&told["judged"], &told["held"]], [&Value::Null, &Value::Null], "{told}");
    assert!(told["unseen"].as_str().unwrap().starts_with("its tap mv0 is a macv"), "{told}");
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    operator.patch("/v1/vms/bad", &json!({"tap": "tap0"}));
    until("looked at", || operator.get("/v1/vms/bad")["unseen"].is_null());
    // A VM of several groups, which are told if any of them is to enforce.
    let rule = json!({"vm": "bad", "destination": "10.0.0.0/8", "group": "default"});
    let (status, said) = operator.ask("PUT", "/v1/rules", Some(&json!({"rules": [rule]})));
    assert_eq!(status, 200, "{said}");
    operator.patch("/v1/groups/uplink", &json!({"enforce": "off"}));
    operator.patch("/v1/groups/default", &json!({"enforce": "observe"}));
    operator.patch("/v1/vms/bad", &json!({"tap": "mv0"}));
    daemon.says("so group default neither judges nor holds it: after that: cccctl set bad --tap");
    until("told", || operator.get("/v1/vms/bad")["unseen"].is_string());
    let file = daemon.dir.path().join("ccc.toml");
    let config = fs::read_to_string(&file).unwrap().replace("\"tap0\"", "\"mv0\"");
    fs::write(&file, config).unwrap();
    let said = checked(&net, &daemon);
    assert!(said.contains("VM bad: its tap mv0 is a macv"), "{said}");
}

#[test]
fn two_vms_at_one_tap_by_two_of_its_names_are_told_and_not_judged() {
    let Some(net) = Net::new("r") else { return };
    if !run(&format!("ip -n {} link property add dev tap0 altname also0", net.host)).0 {
        eprintln!("left out: interfaces have one name here");
        return;
    }
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        operator.patch("/v1/vms/good", &json!({"tap": "also0", "cap_mbit": 8}));
        daemon.says("VM good: its tap also0 is tap0, which is another VM's");
        daemon.says("VM bad: its tap tap0 is also0, which is another VM's");
        until("let go", || !net.links().contains("ccc-ifb") && net.filters().is_empty());
        thread::sleep(Duration::from_secs(1));
        assert!(!is_held(&net), "neither is held by it");
        for vm in ["bad", "good"] {
            let judged = &operator.get(&format!("/v1/vms/{vm}"))["judged"];
            assert!(judged.is_null(), "{vm}: {judged}");
        }
        operator.patch("/v1/vms/good", &json!({"group": "default"}));
        thread::sleep(Duration::from_secs(2));
        let told = operator.get("/v1/vms/bad");
        assert!(told["unseen"].as_str().unwrap().contains("tap0 is also0"), "{told}");
        assert!(told["judged"].is_null() && !is_held(&net), "nobody looks at the other: {told}");
    });
    let said = checked(&net, &daemon);
    assert!(!said.contains("is another VM's"), "{said}");
    let file = daemon.dir.path().join("ccc.toml");
    let config = fs::read_to_string(&file).unwrap().replace("\"lo\"", "\"also0\"");
    fs::write(&file, config).unwrap();
    let said = checked(&net, &daemon);
    assert!(said.contains("VM good: its tap also0 is tap0, which is another VM's"), "{said}");
    let uplink = "[group.uplink]\nuplink = \"tap0\"\nuplink_rate_mbit = 9.0\n";
    let config = fs::read_to_string(&file).unwrap().replace("[group.uplink]\n", uplink);
    fs::write(&file, config).unwrap();
    let said = checked(&net, &daemon);
    assert!(said.contains("VM good: its tap also0 is tap0, the uplink of its group"), "{said}");
}

#[test]
fn the_uplink_of_its_group_is_no_vms_tap() {
    let Some(net) = Net::new("s") else { return };
    let mut daemon = start(&net, "observe", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    let change = json!({"uplink": "tap0", "uplink_rate_mbit": 100.0});
    operator.patch("/v1/groups/uplink", &change);
    daemon.says("VM bad: its tap tap0 is tap0, the uplink of its group");
    flooded(&net, FLOOD, || thread::sleep(Duration::from_secs(2)));
    assert!(operator.get("/v1/vms/bad")["judged"].is_null());
}
