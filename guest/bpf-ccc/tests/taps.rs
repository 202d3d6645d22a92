// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs send, flow by flow, at taps of a network namespace of its own.
use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Read, Write},
    ops::Range,
    os::{
        fd::AsRawFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ccc-bpf");
/// What the program does is seen by then, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a daemon answers; of each VM the flow from port 4000 is coupled.
#[derive(Default)]
struct Answers {
    /// VMs and their taps.
    vms: Vec<(&'static str, &'static str)>,
    /// Of whom it says that there is no such VM, though it is in the list.
    refuses: Option<&'static str>,
    /// Of whom it says nothing, and lets who asks wait.
    hangs_at: Option<&'static str>,
    hung: Vec<UnixStream>,
    /// How often it was asked, and which of these times it was away.
    asked: u32,
    away: Range<u32>,
}

/// What is asked until one VM is looked at: the list, the VM and its flows.
const FIRST_ASKED: u32 = 3;

impl Answers {
    fn to(&self, path: &str) -> Option<Value> {
        let rest = path.strip_prefix("/v1/vms")?;
        if rest.is_empty() {
            let vms: Vec<Value> = self.vms.iter().map(vm).collect();
            return Some(json!({"vms": vms}));
        }
        let (name, rest) = rest[1..].split_once('/').unwrap_or((&rest[1..], ""));
        let known = self.vms.iter().find(|(of, _)| *of == name && self.refuses != Some(of))?;
        Some(if rest.is_empty() { vm(known) } else { slots() })
    }

    fn answer(&mut self, mut stream: UnixStream) {
        let mut request = [0; 512];
        let length = stream.read(&mut request).unwrap_or_default();
        let request = String::from_utf8_lossy(&request[..length]);
        let path = request.split_whitespace().nth(1).unwrap_or_default();
        let is_away = self.away.contains(&self.asked);
        self.asked += 1;
        if self.hangs_at.is_some_and(|name| path.ends_with(name)) {
            self.hung.push(stream);
            return;
        }
        let _ = match self.to(path) {
            _ if is_away => Ok(()),
            Some(answer) => write!(stream, "HTTP/1.1 200 OK\r\n\r\n{answer}"),
            None => write!(stream, "HTTP/1.1 404 Not Found\r\n\r\n{{}}"),
        };
    }
}

/// A daemon with one VM, whose tap has that name.
fn daemon(name: &str, tap: &'static str) -> Control {
    daemon_of(name, vec![("web", tap)])
}

/// A daemon with these VMs and taps; where it is asked.
fn daemon_of(name: &str, vms: Vec<(&'static str, &'static str)>) -> Control {
    let directory = std::env::temp_dir().join(format!("ccc-taps-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("a directory");
    let path = directory.join("control");
    let control = UnixListener::bind(&path).expect("bound");
    for of in [&directory, &path] {
        fs::set_permissions(of, Permissions::from_mode(0o777)).expect("set");
    }
    let answers = Arc::new(Mutex::new(Answers { vms, ..Answers::default() }));
    let shared = Arc::clone(&answers);
    thread::spawn(move || {
        for stream in control.incoming().flatten() {
            shared.lock().expect("answers").answer(stream);
        }
    });
    Control { path, answers }
}

/// Where a daemon is asked, in a directory that goes with this, and what it answers.
struct Control {
    path: PathBuf,
    answers: Arc<Mutex<Answers>>,
}

impl Control {
    fn set(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().expect("answers"));
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.path.parent().expect("a directory"));
    }
}

fn vm((name, tap): &(&str, &str)) -> Value {
    json!({"name": name, "tap": tap, "counters": {"delivered_bytes": 0}})
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
    let is_alone = unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 };
    if !is_alone {
        eprintln!("left out: no network namespaces here");
    }
    is_alone
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

/// As Ethernet's least frame has it.
fn padded(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet.resize(packet.len().max(46), 0);
    packet
}

/// As one that is too long for its header, which has its length there.
fn without_length(mut packet: Vec<u8>, at: usize) -> Vec<u8> {
    packet[at..at + 2].fill(0);
    packet
}

/// What runs with these arguments, and ends with this.
struct Taps(Child);

impl Taps {
    fn start(control: &Control) -> Taps {
        Taps::start_of(&["web"], control)
    }

    fn start_of(vms: &[&str], control: &Control) -> Taps {
        let child = Command::new(PROGRAM)
            .arg("taps")
            .args(vms)
            .args(["--json", "--interval", "0.2", "--control"])
            .arg(&control.path)
            .stdout(Stdio::piped())
            .spawn();
        Taps(child.expect("started"))
    }

    /// Looks, until one of them has this.
    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        let (until, mut last) = (Instant::now() + PATIENCE, Value::Null);
        let lines = BufReader::new(self.0.stdout.as_mut().expect("piped")).lines();
        for line in lines.map_while(Result::ok) {
            last = serde_json::from_str(&line).expect("JSON");
            if is_it(&last) {
                return last;
            }
            assert!(Instant::now() < until, "{last}");
        }
        panic!("it has ended: {last}");
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
fn a_padded_ack_carries_no_data() {
    if !alone() {
        return;
    }
    let control = daemon("padded", "web0");
    let mut web = tap("web0");
    let mut taps = Taps::start(&control);
    wait_for_sockets(1);
    let longer = [ipv6(&tcp(5001, 0)), vec![0; 4]].concat();
    let packets = [
        frame(0x0800, &padded(&ipv4(6, 0, &tcp(5000, 0)))),
        frame(0x86dd, &longer),
        frame(0x0800, &padded(&ipv4(6, 0, &tcp(5002, 2)))),
        frame(0x0800, &without_length(ipv4(6, 0, &tcp(5003, 300)), 2)),
        frame(0x86dd, &without_length(ipv6(&tcp(5004, 70)), 4)),
    ];
    packets.iter().for_each(|packet| web.write_all(packet).expect("sent"));
    let flows = taps.told([0, 46 + 340 + 130, 46 + 64]);
    let expected = [("10.0.0.1 5002", 46), ("10.0.0.1 5003", 340), ("fd00::1 5004", 130)];
    assert_eq!(flows, expected.map(|(from, bytes)| (from.to_owned(), bytes)).into());
}

/// As one whose header says that it is longer than it is, which has its length there.
fn with_more_length(mut packet: Vec<u8>, at: usize) -> Vec<u8> {
    packet[at..at + 2].copy_from_slice(&u16::MAX.to_be_bytes());
    packet
}

#[test]
fn a_packet_is_as_long_as_its_frame_whatever_its_header_says() {
    if !alone() {
        return;
    }
    let control = daemon("longer", "web0");
    let mut web = tap("web0");
    let mut taps = Taps::start(&control);
    wait_for_sockets(1);
    let packets = [
        frame(0x0800, &with_more_length(ipv4(6, 0, &tcp(5000, 0)), 2)),
        frame(0x86dd, &with_more_length(ipv6(&tcp(5001, 0)), 4)),
        frame(0x0800, &with_more_length(ipv4(6, 0, &tcp(5002, 30)), 2)),
        frame(0x86dd, &with_more_length(ipv6(&tcp(5003, 20)), 4)),
    ];
    packets.iter().for_each(|packet| web.write_all(packet).expect("sent"));
    let flows = taps.told([0, 70 + 80, 40 + 60]);
    let expected = [("10.0.0.1 5002", 70), ("fd00::1 5003", 80)];
    assert_eq!(flows, expected.map(|(from, bytes)| (from.to_owned(), bytes)).into());
}

/// Whether a look says of that VM why it has no account.
fn has_fault(look: &Value, vm: &str, why: &str) -> bool {
    let mut faults = look["faults"].as_array().expect("faults").iter();
    faults.any(|of| of["name"] == vm && of["why"].as_str().expect("text").contains(why))
}

/// Whether there is an account of that VM.
fn has_account(look: &Value, vm: &str) -> bool {
    look["vms"].as_array().expect("VMs").iter().any(|of| of["name"] == vm)
}

#[test]
fn a_vm_that_goes_is_told_and_the_others_go_on() {
    if !alone() {
        return;
    }
    let control = daemon_of("goes", vec![("bob", "bob0"), ("web", "web0")]);
    let _taps = (tap("bob0"), tap("web0"));
    let mut taps = Taps::start_of(&["bob", "web"], &control);
    wait_for_sockets(2);
    // It is gone when it is asked for, between the list and what is asked of each in it.
    control.set(|answers| answers.refuses = Some("bob"));
    let look =
        taps.until(|look| has_fault(look, "bob", "cannot ask what bob has reported: the daemon"));
    assert!(has_account(&look, "web"), "{look}");
    control.set(|answers| answers.vms.retain(|(name, _)| *name != "bob"));
    let look = taps.until(|look| has_fault(look, "bob", "bob is no VM with a tap"));
    assert!(has_account(&look, "web"), "{look}");
    wait_for_sockets(1);
    control.set(|answers| {
        answers.vms.push(("bob", "bob0"));
        answers.refuses = None;
    });
    let look = taps.until(|look| has_account(look, "bob"));
    assert_eq!(look["faults"], json!([]));
}

#[test]
fn a_tap_that_is_absent_is_told_of_who_is_named() {
    if !alone() {
        return;
    }
    let control = daemon_of("named", vec![("bob", "bob0"), ("web", "web0")]);
    let _web = tap("web0");
    let mut taps = Taps::start_of(&["bob", "web"], &control);
    let why = "cannot count at the tap bob0 of bob: No such device";
    let look = taps.until(|look| has_fault(look, "bob", why));
    assert!(has_account(&look, "web"), "{look}");
    let mut all = Taps::start_of(&[], &control);
    let look = all.until(|look| has_account(look, "web"));
    assert_eq!(look["faults"], json!([]), "bob does not run");
    let _bob = tap("bob0");
    taps.until(|look| has_account(look, "bob"));
    all.until(|look| has_account(look, "bob"));
}

#[test]
fn a_daemon_that_is_away_is_asked_again() {
    if !alone() {
        return;
    }
    let control = daemon("away", "web0");
    let is_back = FIRST_ASKED + 3;
    control.set(|answers| answers.away = FIRST_ASKED..is_back);
    let mut web = tap("web0");
    let mut taps = Taps::start(&control);
    wait_for_sockets(1);
    web.write_all(&frame(0x0800, &ipv4(6, 0, &tcp(5000, 60)))).expect("sent");
    assert_eq!(taps.told([0, 100, 0]), [("10.0.0.1 5000".to_owned(), 100)].into());
    control.set(|answers| assert!(answers.asked > is_back));
}

#[test]
fn who_is_not_told_of_at_the_last_look_is_told_why() {
    if !alone() {
        return;
    }
    let control = daemon("last", "web0");
    let _web = tap("web0");
    let looks = |count, away| {
        control.set(|answers| (answers.asked, answers.away) = (0, FIRST_ASKED..away));
        let mut command = Command::new(PROGRAM);
        command.args(["taps", "--interval", "0.1", "--count", count, "--control"]);
        command.arg(&control.path).output().expect("run")
    };
    let said = looks("1", u32::MAX);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("the daemon broke off"), "{said:?}");
    let said = looks("2", FIRST_ASKED + 1);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert_eq!(String::from_utf8_lossy(&said.stdout).matches("NOT COUPLED").count(), 1);
}

#[test]
fn who_waits_for_a_daemon_that_hangs_waits_once_a_look() {
    if !alone() {
        return;
    }
    let vms = vec![("off", "off0"), ("bob", "bob0"), ("web", "web0"), ("zoe", "zoe0")];
    let control = daemon_of("hangs", vms);
    let (mut bob, _web) = (tap("bob0"), tap("web0"));
    let mut taps = Taps::start_of(&[], &control);
    wait_for_sockets(2);
    taps.until(|look| has_account(look, "web"));
    control.set(|answers| answers.hangs_at = Some("bob"));
    let is_silent = |look: &Value| has_fault(look, "bob", "the daemon does not answer");
    taps.until(is_silent);
    // Is read at the next look, and told when the daemon speaks again.
    bob.write_all(&frame(0x0800, &ipv4(6, 0, &tcp(5000, 60)))).expect("sent");
    let look = taps.until(is_silent);
    assert!(!has_account(&look, "web"), "it is not asked for web: {look}");
    let why = "the daemon does not answer; it is asked again at the next look";
    assert!(has_fault(&look, "web", why), "{look}");
    assert_eq!(look["faults"].as_array().map(Vec::len), Some(2), "others do not run: {look}");
    // Comes while it hangs, and is not waited for, too.
    let zoe = tap("zoe0");
    let look = taps.until(|look| is_silent(look) && has_fault(look, "zoe", why));
    assert_eq!(look["faults"].as_array().map(Vec::len), Some(3), "{look}");
    drop(zoe);
    taps.until(|look| is_silent(look) && !has_fault(look, "zoe", why));
    control.set(|answers| answers.hangs_at = None);
    let look = taps.until(|look| look["faults"] == json!([]));
    assert!(has_account(&look, "web"), "{look}");
    assert_eq!(look["vms"][0]["uncoupled_bytes"], 100, "{look}");
}

#[test]
fn each_vm_that_is_named_has_an_account_or_a_fault() {
    if !alone() {
        return;
    }
    let control = daemon_of("each", vec![("bob", "bob0"), ("off", "off0"), ("web", "web0")]);
    let _taps = (tap("bob0"), tap("web0"));
    let names = ["bob", "off", "web"];
    let mut taps = Taps::start_of(&names, &control);
    taps.until(|look| has_account(look, "bob") && has_account(look, "web"));
    control.set(|answers| answers.hangs_at = Some("bob"));
    let look = taps.until(|look| has_fault(look, "bob", "the daemon does not answer"));
    let is_in_one = |name: &&str| has_account(&look, name) != has_fault(&look, name, "");
    assert!(names.iter().all(is_in_one), "{look}");
}

#[test]
fn a_daemon_that_does_not_run_is_to_be_started() {
    let mut command = Command::new(PROGRAM);
    let said = command.args(["taps", "--control", "/nowhere/control"]).output().expect("run");
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot ask /nowhere/control: the daemon does not run"), "{text}");
    assert!(text.contains("start it: systemctl start ccc-vhost"), "{text}");
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
        .arg(&control.path)
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
        .arg(&control.path)
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("bob is no VM with a tap"), "{text}");
}

#[test]
fn a_tap_that_is_not_there_is_told() {
    let control = daemon("absent", "no-such-tap");
    let said = Command::new(PROGRAM).args(["taps", "--control"]).arg(&control.path).output();
    let said = said.expect("run");
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("no VM has a tap that is there"), "{text}");
}
