// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The relay as a program, with one tenant of a daemon that is only asked for its tenants.
use std::{
    cell::Cell,
    fs,
    io::{self, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixDatagram, UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ccc_proto::{MAX_GRANT_LINES, wire};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ccc-bpf");

/// A directory of its own, with the control socket of such a daemon.
struct Place(PathBuf);

impl Place {
    /// With one tenant, `vm`.
    fn new(name: &str) -> Place {
        Place::with(name, |place| tenants(&[("vm", &place.at("vm"), Path::new("/nowhere"))])).0
    }

    /// With tenants, which may be others later.
    fn with(name: &str, first: impl FnOnce(&Place) -> String) -> (Place, Arc<Mutex<String>>) {
        let directory =
            std::env::temp_dir().join(format!("ccc-relay-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("a directory");
        let place = Place(directory);
        let control = UnixListener::bind(place.at("control")).expect("bound");
        let now = Arc::new(Mutex::new(first(&place)));
        let vms = Arc::clone(&now);
        thread::spawn(move || {
            for mut stream in control.incoming().flatten() {
                let _ = stream.read(&mut [0; 512]);
                let vms = vms.lock().expect("whole").clone();
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{{\"vms\":[{vms}]}}");
            }
        });
        (place, now)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where the relay listens for the tenant.
    fn socket(&self) -> PathBuf {
        self.at("vm_1063")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names, paths of the VMMs' sockets, and where the daemon listens, as it tells of them.
fn tenants(all: &[(&str, &Path, &Path)]) -> String {
    let one = |(name, path, socket): &(&str, &Path, &Path)| {
        let tenant = format!("vsock:{}", path.display());
        json!({"name": name, "tenant": tenant, "socket": socket}).to_string()
    };
    all.iter().map(one).collect::<Vec<_>>().join(",")
}

/// A relay that runs.
struct Relay {
    child: Child,
    log: PathBuf,
}

impl Relay {
    fn start(place: &Place, name: &str) -> Relay {
        Relay::start_by(&mut Command::new(PROGRAM), place, name)
    }

    /// By a command of which the program is the last word.
    fn start_by(command: &mut Command, place: &Place, name: &str) -> Relay {
        let log = place.at(name);
        let child = command
            .args(["relay", "--control"])
            .arg(place.at("control"))
            .stderr(fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("started");
        Relay { child, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    fn says(&self, what: &str) {
        until(what, || self.log().contains(what));
    }

    /// What it has had of processors, in the kernel's hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("there");
        let behind_name = stat.rsplit(')').next().expect("a name");
        let number = |word: &str| word.parse::<u64>().expect("a number");
        behind_name.split_whitespace().skip(11).take(2).map(number).sum()
    }

    /// Ends it as a service manager does.
    fn end(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().expect("run").success());
        assert!(self.child.wait().expect("ended").success());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn is_there(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[test]
fn a_second_relay_is_refused_and_takes_nothing_with_it() {
    let place = Place::new("second");
    let first = Relay::start(&place, "first");
    until("it listens", || is_there(&place.socket()));
    let second = Relay::start(&place, "second");
    second.says("somebody else listens there; expected one ccc-bpf relay");
    second.end();
    assert!(is_there(&place.socket()), "{}", first.log());
    // It takes over from one that ends, and from one that is killed.
    let third = Relay::start(&place, "third");
    third.says("somebody else listens there");
    first.end();
    third.says("listening at");
    assert!(is_there(&place.socket()));
    drop(third);
    let fourth = Relay::start(&place, "fourth");
    fourth.says("listening at");
    assert!(is_there(&place.socket()));
    fourth.end();
    assert!(!place.socket().exists());
}

#[test]
fn who_comes_and_goes_does_not_fill_the_log() {
    let place = Place::new("flood");
    let relay = Relay::start(&place, "relay");
    until("it listens", || is_there(&place.socket()));
    let began = Instant::now();
    let mut came = 0;
    while came < 1000 || began.elapsed() < Duration::from_secs(2) {
        assert!(began.elapsed() < PATIENCE, "{came} connections");
        came += usize::from(is_there(&place.socket()));
    }
    thread::sleep(Duration::from_secs(1));
    assert!(is_there(&place.socket()));
    relay.says("lines left out since the last");
    // One of its own, a burst of four, and one a second.
    let lines = relay.log().lines().count();
    let most = 5 + began.elapsed().as_secs() as usize + 1;
    assert!(lines <= most, "{lines} lines of {came} connections: {}", &relay.log()[..2000]);
}

#[test]
fn a_socket_that_takes_no_connections_holds_up_its_own_vm_only() {
    let socket = |place: &Place| place.at("full");
    let (place, now) =
        Place::with("full", |place| tenants(&[("stuck", &place.at("vm"), &socket(place))]));
    let daemon = UnixListener::bind(socket(&place)).expect("bound");
    rustix::net::listen(&daemon, 0).expect("a short backlog");
    let _waiting = UnixStream::connect(socket(&place)).expect("the only one");
    let relay = Relay::start(&place, "relay");
    until("it listens", || is_there(&place.socket()));
    let mut agent = UnixStream::connect(place.socket()).expect("connected");
    let numbers = [1, wire::REVISION, 0, 8, 1, 0].map(u32::to_le_bytes);
    agent.write_all(numbers.as_flattened()).expect("a hello");
    relay.says("its agent has connected");
    thread::sleep(Duration::from_millis(300));
    // Another instead of it, while it waits for the daemon.
    *now.lock().expect("whole") = tenants(&[("other", &place.at("other"), Path::new("/nowhere"))]);
    until("the other is served", || is_there(&place.at("other_1063")));
    relay.says("takes no connections: others wait");
    relay.end();
}

#[test]
fn a_second_tenant_with_the_same_path_is_told_once() {
    let (place, now) = Place::with("double", |place| {
        let vm = place.at("vm");
        let nowhere = Path::new("/nowhere");
        tenants(&[("first", &vm, nowhere), ("second", &vm, nowhere)])
    });
    let relay = Relay::start(&place, "relay");
    relay.says("tenant second: is not served: vsock:");
    thread::sleep(Duration::from_millis(1500));
    let lines = relay.log().lines().filter(|line| line.contains("second")).count();
    assert_eq!(lines, 1, "{}", relay.log());
    assert!(relay.log().contains("is tenant first's"));
    *now.lock().expect("whole") = tenants(&[("second", &place.at("vm"), Path::new("/nowhere"))]);
    relay.says("tenant first: is served no more");
    until("the second has it", || relay.log().matches("listening at /").count() == 2);
    relay.end();
}

/// A daemon that takes what vhost-user says as if it understood it; connections so far.
fn daemon_at(socket: &Path) -> Arc<AtomicUsize> {
    // Requests that are answered in any case, and a flag of others that are.
    const GET_FEATURES: u32 = 1;
    const GET_PROTOCOL_FEATURES: u32 = 15;
    const GET_CONFIG: u32 = 24;
    const NEED_REPLY: u32 = 8;
    // The version, and that it is an answer.
    const ANSWER: u32 = 1 | 4;
    const REPLY_ACK_AND_CONFIG: u64 = 1 << 3 | 1 << 9;
    const CONFIG_HEADER_BYTES: usize = 12;
    let listener = UnixListener::bind(socket).expect("bound");
    let connections = Arc::new(AtomicUsize::new(0));
    let came = Arc::clone(&connections);
    let serve = |mut stream: UnixStream| -> io::Result<std::convert::Infallible> {
        loop {
            let mut header = [0; 12];
            stream.read_exact(&mut header)?;
            let [request, flags, bytes] =
                [0, 4, 8].map(|at| u32::from_le_bytes(header[at..at + 4].try_into().expect("4")));
            let mut said = vec![0; bytes as usize];
            stream.read_exact(&mut said)?;
            let (is_asked, answer) = match request {
                GET_FEATURES => (true, u64::MAX.to_le_bytes().to_vec()),
                GET_PROTOCOL_FEATURES => (true, REPLY_ACK_AND_CONFIG.to_le_bytes().to_vec()),
                GET_CONFIG => {
                    // One of its fields is the revision.
                    for field in said[CONFIG_HEADER_BYTES..].chunks_exact_mut(4) {
                        field.copy_from_slice(&wire::REVISION.to_le_bytes());
                    }
                    (true, said)
                }
                _ => (flags & NEED_REPLY != 0, vec![0; 8]),
            };
            if is_asked {
                let header = [request, ANSWER, answer.len() as u32].map(u32::to_le_bytes);
                stream.write_all(&[header.as_flattened(), &answer].concat())?;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            came.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || serve(stream));
        }
    });
    connections
}

/// What an agent says that is there.
const ALIVE: [u8; 8] = [4, 0, 0, 0, 0, 0, 0, 0];

/// An agent that has said its hello, and heard something.
fn agent_at(socket: &Path) -> UnixStream {
    let mut agent = UnixStream::connect(socket).expect("connected");
    let numbers = [1, wire::REVISION, 0, 8, 1, 0].map(u32::to_le_bytes);
    agent.write_all(numbers.as_flattened()).expect("a hello");
    agent.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    let _ = agent.read(&mut [0]);
    agent
}

#[test]
fn agents_that_come_and_go_have_the_daemon_connected_to_once_a_second() {
    const FLOOD: Duration = Duration::from_secs(3);
    let (place, _) =
        Place::with("agents", |place| tenants(&[("vm", &place.at("vm"), &place.at("daemon"))]));
    let connections = daemon_at(&place.at("daemon"));
    let connections = || connections.load(Ordering::Relaxed);
    let relay = Relay::start(&place, "relay");
    until("it listens", || is_there(&place.socket()));
    let (began, mut agents) = (Instant::now(), 0);
    let most = || began.elapsed().as_secs() as usize + 1;
    until("two connections, and more agents than may have one", || {
        drop(agent_at(&place.socket()));
        agents += 1;
        began.elapsed() >= FLOOD && agents > 2 * most() && connections() >= 2
    });
    assert!(connections() <= most(), "{} for {agents} agents", connections());
    thread::sleep(Duration::from_secs(1));
    // The VM's own agent after a quiet time, and when it is started again, which tries again as long
    // as the one before has not been seen to go.
    for _ in 0..2 {
        let (before, mut agent) = (connections(), agent_at(&place.socket()));
        until("it is served", || {
            if agent.write_all(&ALIVE).is_err() {
                agent = agent_at(&place.socket());
            }
            connections() > before
        });
    }
    relay.end();
}

/// Only root can have a user of its own for it, whose processes alone count.
#[test]
fn who_finds_no_thread_is_told_once_and_tried_again_and_nobody_else_is_harmed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The loop, who asks the daemon, and who passes connections on; and one VM.
    const THREADS: u32 = 4;
    let names = ["a", "b", "c"];
    let vms = |place: &Place, names: &[&str]| {
        let paths = names.iter().map(|name| place.at(name)).collect::<Vec<_>>();
        let all = names.iter().zip(&paths);
        let all: Vec<_> = all.map(|(name, path)| (*name, &**path, Path::new("/nowhere"))).collect();
        tenants(&all)
    };
    let (place, now) = Place::with("threads", |place| vms(place, &names));
    let user = 0x4000_0000 + std::process::id();
    let mut command = Command::new("setpriv");
    // It may be where others may not look.
    let may_look = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"];
    command.arg(format!("--reuid={user}")).arg("--clear-groups").args(may_look);
    command.args(["prlimit", &format!("--nproc={THREADS}"), PROGRAM]);
    let relay = Relay::start_by(&mut command, &place, "relay");
    until("one is served", || is_there(&place.at("a_1063")));
    relay.says("tenant c: is not served: no thread for it");
    thread::sleep(Duration::from_millis(1200));
    let told = relay.log().matches("is not served: no thread for it").count();
    assert_eq!(told, 2, "{}", relay.log());
    assert!(is_there(&place.at("a_1063")), "{}", relay.log());
    *now.lock().expect("whole") = vms(&place, &names[1..2]);
    until("the next is served", || is_there(&place.at("b_1063")));
    relay.end();
}

#[test]
fn an_agent_with_more_grant_lines_than_the_daemon_takes_is_refused_with_words() {
    let place = Place::new("lines");
    let relay = Relay::start(&place, "relay");
    until("it listens", || is_there(&place.socket()));
    let enter = |lines| {
        let mut agent = UnixStream::connect(place.socket()).expect("connected");
        let numbers = [1, wire::REVISION, 0, 8, lines, 0].map(u32::to_le_bytes);
        agent.write_all(numbers.as_flattened()).expect("a hello");
        agent
    };
    let _refused = enter(MAX_GRANT_LINES + 1);
    relay.says("its agent has 17 grant lines; expected 1 to 16");
    let _taken = enter(MAX_GRANT_LINES);
    relay.says("its agent has connected");
    relay.end();
}

#[test]
fn a_socket_that_is_removed_is_made_again_and_who_came_by_it_stays() {
    let place = Place::new("removed");
    let relay = Relay::start(&place, "relay");
    until("it listens", || is_there(&place.socket()));
    let mut agent = UnixStream::connect(place.socket()).expect("connected");
    let numbers = [1, wire::REVISION, 0, 8, 1, 0].map(u32::to_le_bytes);
    agent.write_all(numbers.as_flattened()).expect("a hello");
    relay.says("its agent has connected");
    fs::remove_file(place.socket()).expect("removed");
    until("it is made again", || is_there(&place.socket()));
    agent.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    // What was sent before, and then what is sent now: it is told ten times a second.
    let mut bytes = [0; 4096];
    while agent.read(&mut bytes).is_ok_and(|came| came > 0) {}
    agent.set_read_timeout(Some(PATIENCE)).expect("set");
    assert!(agent.read(&mut bytes).is_ok_and(|came| came > 0), "{}", relay.log());
    relay.end();
}

#[test]
fn a_directory_to_which_anybody_may_write_is_refused_until_it_is_closed_and_once_it_is_opened() {
    let place = Place::new("open");
    let may_write = |mode| {
        fs::set_permissions(&place.0, fs::Permissions::from_mode(mode)).expect("set");
    };
    may_write(0o777);
    let relay = Relay::start(&place, "relay");
    relay.says("anybody may write to");
    assert!(!place.socket().exists());
    may_write(0o755);
    until("it listens", || is_there(&place.socket()));
    may_write(0o777);
    until("it listens no more", || !place.socket().exists());
    assert_eq!(relay.log().matches("anybody may write to").count(), 2, "{}", relay.log());
    relay.end();
}

#[test]
fn a_directory_that_is_made_later_is_of_one_vm_where_a_group_may_write() {
    let vms = |place: &Place, name: &str| place.at("later").join(name);
    let nowhere = Path::new("/nowhere");
    let (place, _) = Place::with("later", |place| {
        tenants(&[("a", &vms(place, "a"), nowhere), ("b", &vms(place, "b"), nowhere)])
    });
    let relay = Relay::start(&place, "relay");
    relay.says("No such file or directory");
    let made = place.at("made");
    fs::create_dir(&made).expect("made");
    fs::set_permissions(&made, fs::Permissions::from_mode(0o2770)).expect("set");
    fs::rename(made, place.at("later")).expect("renamed");
    relay.says("expected a directory each");
    let sockets =
        || ["a_1063", "b_1063"].iter().filter(|name| is_there(&vms(&place, name))).count();
    until("one is served", || sockets() == 1);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(sockets(), 1, "{}", relay.log());
    relay.end();
}

#[test]
fn who_removes_the_socket_again_and_again_does_not_fill_the_log() {
    let place = Place::new("removes");
    let relay = Relay::start(&place, "relay");
    let (began, removed) = (Instant::now(), Cell::new(0));
    // Twice a second, where nobody is there.
    until("it is made again and again", || {
        removed.set(removed.get() + usize::from(fs::remove_file(place.socket()).is_ok()));
        removed.get() > 14
    });
    // A burst of four, and one a second.
    let lines = relay.log().lines().count();
    assert!(lines <= 4 + began.elapsed().as_secs() as usize + 1, "{}", relay.log());
    relay.says("its socket was removed; it is made again");
    relay.end();
}

const WAKES: Duration = Duration::from_millis(100);

/// Milliseconds by which a thread that wakes ten times a second was late at the most.
fn lateness() -> Arc<AtomicU64> {
    let late = Arc::new(AtomicU64::new(0));
    let most = Arc::clone(&late);
    thread::spawn(move || {
        loop {
            let began = Instant::now();
            thread::sleep(WAKES);
            most.fetch_max((began.elapsed() - WAKES).as_millis() as u64, Ordering::Relaxed);
        }
    });
    late
}

#[test]
fn the_service_manager_hears_of_a_relay_that_begins_with_two_thousand_vms() {
    const VMS: usize = 2000;
    // Half of WatchdogSec= in ccc-relay.service, and how often it tells here.
    const MOST: Duration = Duration::from_secs(5);
    const EVERY: Duration = Duration::from_millis(500);
    // How long it is measured for what it costs when all is done.
    const REST: Duration = Duration::from_secs(5);
    let (place, _) = Place::with("many", |place| {
        let names: Vec<String> = (0..VMS).map(|number| format!("vm{number}")).collect();
        let paths: Vec<PathBuf> = names.iter().map(|name| place.at(name).join("vm")).collect();
        paths.iter().for_each(|path| fs::create_dir(path.parent().expect("one")).expect("made"));
        let all = names.iter().zip(&paths);
        let all: Vec<_> = all
            .map(|(name, path)| (name.as_str(), path.as_path(), Path::new("/nowhere")))
            .collect();
        tenants(&all)
    });
    let manager = UnixDatagram::bind(place.at("notify")).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let limited = format!("ulimit -n $(ulimit -Hn); exec {PROGRAM} \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &limited, "sh", "relay", "--control"])
        .arg(place.at("control"))
        .env("NOTIFY_SOCKET", place.at("notify"))
        .env("WATCHDOG_USEC", (2 * EVERY).as_micros().to_string())
        .stderr(fs::File::create(place.at("relay")).expect("a log"))
        .spawn()
        .expect("started");
    let relay = Relay { child, log: place.at("relay") };
    let are_there = || (0..VMS).all(|vm| place.at(&format!("vm{vm}")).join("vm_1063").exists());
    let late_ms = lateness();
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    // Until after the last of them, when all that is to be done for them is done at once.
    for after in (0..).scan(0, |after, _| {
        *after += usize::from(are_there());
        Some(*after)
    }) {
        let heard = Instant::now();
        late_ms.store(0, Ordering::Relaxed);
        manager.recv(&mut [0; 256]).expect("heard of");
        let silent = heard.elapsed();
        if silent > MOST {
            // This whole machine may have stood still, which is known once the other thread wakes.
            thread::sleep(2 * WAKES);
            let late = Duration::from_millis(late_ms.load(Ordering::Relaxed));
            assert!(silent <= MOST + late, "silent for {silent:?}, this machine for {late:?}");
        }
        longest = longest.max(silent);
        if after >= 3 {
            break;
        }
        assert!(began.elapsed() < 5 * PATIENCE, "{longest:?}");
    }
    println!("{VMS} VMs: all served after {:?}, silent for {longest:?}", began.elapsed());
    let before = relay.ticks();
    thread::sleep(REST);
    let at_rest = relay.ticks() - before;
    println!("at rest {at_rest} hundredths of a second of a processor in {REST:?}");
    relay.end();
}
