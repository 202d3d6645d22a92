// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A host and a VM as network namespaces, and what they send.
use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ccc_proto::wire;
use rustix::net::sockopt::set_socket_send_buffer_size;
use serde_json::Value;

use crate::support::{
    daemon::Daemon,
    driver::{Driver, report},
    frontend::Mode,
    space::{Over, must, run, within},
};

/// A host's namespace with the tap `tap0`, and a VM's at its other end.
pub struct Net {
    pub host: String,
    pub vm: String,
}

impl Net {
    /// None where the kernel or the user cannot.
    pub fn new(name: &str) -> Option<Net> {
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
    pub fn address(&self) {
        let ends = [(&self.host, "tap0", "10.9.9.1/24"), (&self.vm, "eth0", "10.9.9.2/24")];
        for (space, device, address) in ends {
            must(&format!("ip -n {space} addr add {address} dev {device}"));
            must(&format!("ip -n {space} link set {device} up"));
        }
    }

    /// A daemon in the host's namespace.
    pub fn daemon(&self, dir: tempfile::TempDir, enforce: &str, more: &str) -> Daemon {
        self.daemon_by(dir, enforce, more, &[])
    }

    /// The same, started by some words.
    pub fn daemon_by(
        &self,
        dir: tempfile::TempDir,
        enforce: &str,
        more: &str,
        by: &[&str],
    ) -> Daemon {
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

    pub fn links(&self) -> String {
        must(&format!("ip -n {} link", self.host))
    }

    pub fn filters(&self) -> String {
        must(&format!("tc -n {} filter show dev tap0 ingress", self.host))
    }

    /// The shaper lets so many bytes a second go, within 1 %.  What a machine that stands
    /// still for a moment tells is not that, so it has some seconds to show it.
    pub fn is_let_go_at(&self, rate: f64) {
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
    pub fn end(&self, mut daemon: Daemon) {
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
pub const SEND_BYTES: usize = 212_992;

/// Sends datagrams from the VM at a rate, bytes a second, while something goes on.
pub fn flooded<T: Send>(net: &Net, rate: u64, meanwhile: impl FnOnce() -> T + Send) -> T {
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
pub fn beside_an_honest_vm<T>(net: &Net, daemon: &Daemon, what: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    pub const STEP_BYTES: u64 = 6250;
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
pub const FLOOD: u64 = 2_500_000;

pub fn start(net: &Net, enforce: &str, more: &str) -> Daemon {
    net.daemon(tempfile::tempdir().unwrap(), enforce, more)
}

pub fn is_held(net: &Net) -> bool {
    net.links().contains("ccc-ifb") && net.filters().contains("mirred")
}

/// Words that start a daemon as one that may not change interfaces.
pub const POWERLESS: [&str; 2] = ["setpriv", "--bounding-set=-net_admin"];
