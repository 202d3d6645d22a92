// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon dies and comes back, by itself or by a service manager.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs::{self, File},
    os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    process::Command,
    time::Instant,
};

use ccc_proto::wire::{self, Report};
use rustix::net::sockopt::socket_peercred;
use serde_json::json;
use support::{
    daemon::{Daemon, PATIENCE, PROGRAM, Program, run, text, until},
    driver::{Driver, report, while_they_count},
    frontend::{Mode, inheritable},
    operator::Operator,
};
use vhost::vhost_user::VhostUserFrontend;

/// Kills the daemon while a driver rings, 20 times: all flows are coupled again
/// each time, with the window they had, and what was rung to nobody counts.
#[test]
fn a_daemon_killed_20_times_loses_nothing() {
    let mut daemon = Daemon::start(&[("a", 1.0, "default")]);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let first = driver.offer_extent(0, 16, 2);
    let second = driver.offer_extent(16, 16, 0);
    let extent_of = |slot: u32| if slot < 16 { &first } else { &second };
    let mut generations = [1u32; 24];
    for (slot, generation) in (0..).zip(generations) {
        driver.register(extent_of(slot), slot, generation);
    }
    let mut instances = vec![driver.status(&first).1];
    let (mut life, mut whole) = (0u32, 0);
    while whole < 20 {
        let alive =
            Report { acked_limited_bytes: u64::from(life).into(), ..report(generations[0]) };
        driver.write_slot(&first, 0, &alive);
        driver.offer_bell(wire::OP_UPDATE, 0, generations[0]);
        driver.front.kick(wire::VQ_DOORBELL);
        daemon = daemon.restart_while(|| {
            // Nobody is there: a flow ends, another begins in its slot, and
            // the messages stay in the queue.
            let slot = 1 + life as usize % 23;
            generations[slot] += 1;
            let anew = report(generations[slot]);
            driver.write_slot(extent_of(slot as u32), slot as u32, &anew);
            driver.offer_bell(wire::OP_REGISTER, slot as u32, generations[slot]);
        });
        let since = Instant::now();
        driver = driver.reconnect(&daemon.socket("a"));
        driver.front.kick(wire::VQ_DOORBELL);
        until("a new instance", || driver.status(&first).1 != instances[life as usize]);
        instances.push(driver.status(&first).1);
        driver.settle();
        for (slot, generation) in (0..).zip(generations) {
            until("coupled again", || driver.accepted(extent_of(slot), slot, generation));
        }
        // A life in which a flow has not counted any more before it was looked at says nothing.
        let before = 14_480 * 24;
        let in_force = while_they_count(since, "in force, and the aggregate as it was", || {
            let sum = driver.window(&first) * 24;
            driver.coupled(&first) && sum.abs_diff(before) < before / 8
        });
        whole += u32::from(in_force);
        life += 1;
        assert!(life < 80, "{whole} of {life} lives go on with what there was");
    }
    instances.dedup();
    assert_eq!(instances.len(), life as usize + 1, "each life says that it is another");
    daemon.says("accepted 16 slots from slot 16 on");
}

#[test]
fn the_instance_differs_from_the_one_in_memory() {
    // In virtual time every life counts from the same number, so what is in
    // memory decides; here memory is made to hold what would come next.
    let daemon = Daemon::start(&[("a", 1.0, "default")]);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    for _ in 0..10 {
        let before = driver.status(&extent).1;
        // A queue that ends counts one on: to what is in memory, then.
        driver.write(extent.head + 4, &before.wrapping_add(1));
        driver.front.vhost.set_vring_enable(wire::VQ_TABLE, false).unwrap();
        driver.front.vhost.set_vring_enable(wire::VQ_TABLE, true).unwrap();
        driver.await_status(&extent, wire::EXTENT_ACCEPTED);
        assert_ne!(driver.status(&extent).1, before.wrapping_add(1));
    }
}

#[test]
fn a_service_manager_passes_sockets_and_is_told_of_readiness() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let notify = UnixDatagram::bind(at("notify")).unwrap();
    notify.set_read_timeout(Some(PATIENCE)).unwrap();
    let (vm, control) =
        (UnixListener::bind(at("vm")).unwrap(), UnixListener::bind(at("control")).unwrap());
    let config = at("ccc.toml");
    let elsewhere = at("elsewhere");
    let configured = at("configured");
    let own = format!(
        "[daemon]\ncontrol = \"{}\"\n[vm.web]\nsocket = \"{}\"\n",
        configured.display(),
        elsewhere.display()
    );
    fs::write(&config, own).unwrap();
    // Out of the way of the numbers the shell copies them to.
    let passed = [&vm, &control].map(|socket| rustix::io::fcntl_dupfd_cloexec(socket, 10).unwrap());
    let numbers = passed.each_ref().map(inheritable);
    let script = format!(
        "exec 3<&{} 4<&{}; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:control exec {PROGRAM} \
         --config {}",
        numbers[0],
        numbers[1],
        config.display()
    );
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", script]).env("NOTIFY_SOCKET", at("notify"));
        command
    };
    let log = at("log");
    let daemon = Program(shell(&script).stderr(File::create(&log).unwrap()).spawn().unwrap());
    let mut said = [0; 64];
    let length = notify.recv(&mut said).unwrap();
    assert_eq!(&said[..length], b"READY=1\n");
    assert!(!elsewhere.exists() && !configured.exists(), "sockets are the service manager's");
    let told = fs::read_to_string(&log).unwrap();
    assert!(told.contains("control socket passed by the service manager"), "{told}");
    let (theirs, ours) = (at("control"), configured.display());
    assert!(told.contains(&format!("[daemon] control to {}", theirs.display())), "{told}");
    assert!(told.contains(&format!("ListenStream= of the socket's unit to {ours}")), "{told}");
    let client = UnixStream::connect(&theirs).unwrap();
    let listens = socket_peercred(&client).unwrap().pid.as_raw_nonzero().get();
    assert_eq!(i64::from(listens), i64::from(daemon.0.id()), "clients see no other daemon");
    let mut driver = Driver::connect(&at("vm"), Mode::Eventfd);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    let operator = Operator::at(&at("control"));
    operator.patch("/v1/vms/web", &json!({"weight": 2}));
    assert_eq!(operator.get("/v1/status")["flows"], 1);
    let unserved = || operator.get("/v1/vms/web")["unserved"].clone();
    assert_eq!(unserved(), json!(null));
    fs::remove_file(at("vm")).unwrap();
    let removed =
        format!("its socket {} was removed, which the service manager passed", text(&at("vm")));
    assert!(unserved().as_str().is_some_and(|told| told.starts_with(&removed)), "{}", unserved());
    assert!(!at("vm").exists(), "it is not the daemon's to make");
    drop(daemon);

    let wrong = script.replace("web:control", "wbe:control");
    let output = shell(&wrong).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("got `wbe`"), "{said}");
}

#[test]
fn without_a_service_manager_nothing_is_missed() {
    let (done, _, said) = run(&["--print-capabilities"]);
    assert!(done, "{said}");
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let _daemon = Program::start(&["--socket-path", text(&socket)]);
    until("listening", || socket.exists());
}
