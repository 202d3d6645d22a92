// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs send, flow by flow, at taps of a network namespace of its own.
use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ccc-bpf");
/// What the program does is seen by then, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon with one VM, whose tap has that name and whose flow from port 4000 is coupled; where it
/// is asked.
fn daemon(name: &str, tap: &'static str) -> Control {
    let directory = std::env::temp_dir().join(format!("ccc-taps-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("a directory");
    let path = directory.join("control");
    let control = UnixListener::bind(&path).expect("bound");
    for of in [&directory, &path] {
        fs::set_permissions(of, Permissions::from_mode(0o777)).expect("set");
    }
    thread::spawn(move || {
        for mut stream in control.incoming().flatten() {
            let mut request = [0; 512];
            let length = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]);
            let answer = match request.split_whitespace().nth(1) {
                Some("/v1/vms") => json!({"vms": [vm(tap)]}),
                Some("/v1/vms/web") => vm(tap),
                _ => slots(),
            };
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{answer}");
        }
    });
    Control(path)
}

/// Where a daemon is asked, in a directory that goes with this.
struct Control(PathBuf);

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().expect("a directory"));
    }
}

fn vm(tap: &str) -> Value {
    json!({"name": "web", "tap": tap, "counters": {"delivered_bytes": 0}})
}

fn slots() -> Value {
    let flow = |port, group| {
        json!({"source": "10.0.0.1", "source_port": port, "destination": "10.0.0.2",
            "destination_port": 80, "group": group})
    };
    json!({"flows": [flow(4000, Some("uplink")), flow(5000, None)], "next": null})
}

/// Has this thread, and what it starts, in a network namespace of its own; false without the right.
fn alone() -> bool {
    // SAFETY: no pointers, and nothing else of this thread depends on it.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// A tap that this end sends through as a VM does; it goes with this.
fn tap(name: &str) -> File {
    let tap = File::options().read(true).write(true).open("/dev/net/tun").expect("a tap");
    // SAFETY: all of it may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as _;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as _;
    // SAFETY: a request of that kind.
    let made = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    let up = Command::new("ip").args(["link", "set", name, "up"]).status();
    assert!(up.expect("ip").success());
    tap
}

fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
    [&[2; 6], &[4; 6], &kind.to_be_bytes()[..], packet].concat()
}

fn ipv4(protocol: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let length = (20 + rest.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let header = [
        &[0x45, 0],
        &length[..],
        &[0, 0],
        &fragment,
        &[64, protocol, 0, 0],
        &[10, 0, 0, 1],
        &[10, 0, 0, 2],
    ];
    [&header.concat(), rest].concat()
}

fn ipv6(rest: &[u8]) -> Vec<u8> {
    let (length, mut from, mut to) = ((rest.len() as u16).to_be_bytes(), [0; 16], [0; 16]);
    (from[0], from[15], to[0], to[15]) = (0xfd, 1, 0xfd, 2);
    [&[0x60, 0, 0, 0], &length[..], &[6, 64], &from, &to, rest].concat()
}

fn tcp(from: u16, data: usize) -> Vec<u8> {
    let ports = [from.to_be_bytes(), 80u16.to_be_bytes()].concat();
    [&ports[..], &[0; 8], &[0x50, 0x10], &[0; 6], &vec![0; data]].concat()
}

/// What runs with these arguments, and ends with this.
struct Taps(Child);

impl Taps {
    fn start(control: &Control) -> Taps {
        let child = Command::new(PROGRAM)
            .args(["taps", "web", "--json", "--interval", "0.2", "--control"])
            .arg(&control.0)
            .stdout(Stdio::piped())
            .spawn();
        Taps(child.expect("started"))
    }

    /// Bytes of flows that are not coupled, by their source, once there are that many of all kinds.
    fn told(&mut self, all: [u64; 3]) -> BTreeMap<String, u64> {
        let (mut sums, mut flows) = ([0; 3], BTreeMap::new());
        let until = Instant::now() + PATIENCE;
        let lines = BufReader::new(self.0.stdout.as_mut().expect("piped")).lines();
        for line in lines.map_while(Result::ok) {
            let told: Value = serde_json::from_str(&line).expect("JSON");
            let Some(vm) = told["vms"].get(0) else { continue };
            assert_eq!(vm["name"], "web");
            let kinds = ["coupled_bytes", "uncoupled_bytes", "other_bytes"];
            for (sum, kind) in sums.iter_mut().zip(kinds) {
                *sum += vm[kind].as_u64().expect("a number");
            }
            for flow in vm["uncoupled"].as_array().expect("flows") {
                assert_eq!(flow["destination_port"], 80);
                let from = flow["source"].as_str().expect("an address");
                *flows.entry(format!("{from} {}", flow["source_port"])).or_default() +=
                    flow["bytes"].as_u64().expect("a number");
            }
            if sums == all {
                return flows;
            }
            assert!(Instant::now() < until, "{sums:?} {flows:?}");
        }
        panic!("it has ended: {sums:?}");
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until there are that many packet sockets at that interface.
fn wait_for_sockets(count: usize) {
    let until = Instant::now() + PATIENCE;
    let sockets = || fs::read_to_string("/proc/thread-self/net/packet").expect("there");
    while sockets().lines().count() != 1 + count {
        assert!(Instant::now() < until, "{}", sockets());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_flow_at_a_tap_is_counted_and_nothing_stays_behind() {
    if !alone() {
        return;
    }
    let control = daemon("flows", "web0");
    let mut web = tap("web0");
    let mut taps = Taps::start(&control);
    wait_for_sockets(1);
    let (data, udp, rest) = (tcp(5000, 1000), 17, 0x2001);
    let tagged = [&[0, 7], &0x0800u16.to_be_bytes()[..], &ipv4(6, 0, &tcp(5001, 100))].concat();
    let packets = [
        frame(0x0800, &ipv4(6, 0, &tcp(4000, 1000))),
        frame(0x0800, &ipv4(6, 0, &tcp(4000, 500))),
        frame(0x0800, &ipv4(6, 0, &data)),
        frame(0x0800, &ipv4(6, 0, &data)),
        frame(0x8100, &tagged),
        frame(0x86dd, &ipv6(&tcp(5002, 200))),
        // An ACK, another protocol, a part of a packet, and what is no packet at all.
        frame(0x0800, &ipv4(6, 0, &tcp(5003, 0))),
        frame(0x0800, &ipv4(udp, 0, &[0; 80])),
        frame(0x0800, &ipv4(6, rest, &data)),
        frame(0x0800, &[0x4f; 30]),
    ];
    packets.iter().for_each(|packet| web.write_all(packet).expect("sent"));
    let other = 40 + 100 + 1040 + 30;
    let flows = taps.told([1040 + 540, 2 * 1040 + 140 + 260, other]);
    let expected = [("10.0.0.1 5000", 2080), ("10.0.0.1 5001", 140), ("fd00::1 5002", 260)];
    assert_eq!(flows, expected.map(|(from, bytes)| (from.to_owned(), bytes)).into());
    // The tap goes, and comes anew: another interface of the same name.
    drop(web);
    wait_for_sockets(0);
    let mut web = tap("web0");
    wait_for_sockets(1);
    web.write_all(&frame(0x0800, &ipv4(6, 0, &tcp(5004, 60)))).expect("sent");
    assert_eq!(taps.told([0, 100, 0]), [("10.0.0.1 5004".to_owned(), 100)].into());
    // However it ends.
    drop(taps);
    wait_for_sockets(0);
}

#[test]
fn who_may_not_count_is_told_what_is_missing() {
    if !alone() {
        return;
    }
    let control = daemon("rights", "lo");
    let said = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/proc/self/fd/0", "taps"])
        .arg("--control")
        .arg(&control.0)
        .stdin(File::open(PROGRAM).expect("the program"))
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(78), "{text}");
    assert!(text.contains("CAP_BPF") && text.contains("the tap lo of web"), "{text}");
}

#[test]
fn a_vm_without_a_tap_is_told() {
    let control = daemon("unknown", "web0");
    let said = Command::new(PROGRAM)
        .args(["taps", "bob", "--control"])
        .arg(&control.0)
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("bob is no VM with a tap"), "{text}");
}

#[test]
fn a_tap_that_is_not_there_is_told() {
    let control = daemon("absent", "no-such-tap");
    let said = Command::new(PROGRAM).args(["taps", "--control"]).arg(&control.0).output();
    let said = said.expect("run");
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("no VM has a tap that is there"), "{text}");
}
