// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a client of the control socket waits for others there.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use support::{daemon::Daemon, operator::Operator};

/// What all others together may cost one, in the median: a machine that is busy with other
/// things costs some.
const COST: Duration = Duration::from_millis(100);
const LOOKS: usize = 101;

/// The median time until one is answered.
fn answered(operator: &Operator) -> Duration {
    let mut times: Vec<Duration> = (0..LOOKS)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(operator.get("/v1/vms/a")["name"], "a");
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[LOOKS / 2]
}

/// A client that begins a request and does not end it.
fn slow(operator: &Operator) -> UnixStream {
    let mut stream = operator.connect();
    stream.write_all(b"PATCH /v1/vms/a HTTP/1.1\r\nhost: ccc\r\ncontent-le").unwrap();
    stream
}

#[test]
fn a_thousand_slow_clients_and_huge_bodies_cost_another_client_little() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let own = format!("[daemon]\ncontrol = \"{}\"\n[group.g]\n", control.display());
    let daemon = Daemon::start_in(dir, &[("a", 1.0, "g")], &own, &[]);
    let operator = Operator::at(&daemon.socket("control"));
    let alone = answered(&operator);

    let crowd: Vec<UnixStream> = (0..1000).map(|_| slow(&operator)).collect();
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let body = vec![b' '; 1 << 20];
    let beside = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let head = "PUT /v1/rules HTTP/1.1\r\nhost: ccc\r\ncontent-type: \
                                application/json\r\ncontent-length: 1048576\r\n\r\n";
                    let (status, _) = operator.send(&[head.as_bytes(), &body].concat());
                    // It may be gone before the answer is read.
                    assert!([413, 0].contains(&status), "{status}");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let beside = answered(&operator);
        over.store(true, Ordering::Relaxed);
        beside
    });
    println!("alone {alone:?}, beside {beside:?}, {sent:?} bodies");
    assert!(sent.into_inner() > 0 && crowd.len() == 1000);
    assert!(beside < alone + COST, "alone {alone:?}, beside them {beside:?}");
}
