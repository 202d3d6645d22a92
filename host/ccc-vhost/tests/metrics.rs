// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a monitoring system is told, on the control socket and over TCP.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use ccc_proto::wire;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, PATIENCE, until, until_tried},
    driver::{Driver, report},
    frontend::Mode,
    operator::{IDLE_STAYS, Operator},
};

/// After this time any client leaves.
const ALL_LEAVE: Duration = Duration::from_secs(30);
/// As Prometheus asks.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// An address that nobody listens on.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A daemon with one coupled flow, where its operators are, and its metrics.
fn start() -> (Daemon, Operator, SocketAddr) {
    let metrics = free();
    let (daemon, operator) = start_at(metrics);
    (daemon, operator, metrics)
}

fn start_at(metrics: SocketAddr) -> (Daemon, Operator) {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let own = format!(
        "[daemon]\ncontrol = \"{}\"\nmetrics = \"{metrics}\"\n[group.g]\n",
        control.display()
    );
    let daemon = Daemon::start_in(dir, &[("a", 3.0, "g"), ("b", 1.0, "g")], &own, &[]);
    (daemon, Operator::at(&control))
}

fn scrape(at: SocketAddr, request: &str) -> String {
    until("somebody listens", || TcpStream::connect(at).is_ok());
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: ccc\r\nconnection: close\r\naccept: {ACCEPT}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_tell_what_the_control_socket_tells() {
    let (daemon, operator, metrics) = start();
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.tell(&extent, wire::OP_REGISTER, 0, &report(1));
    assert!(driver.accepted(&extent, 0, 1));
    let (mut plain, mut answer) = (String::new(), String::new());
    let (mut window, mut part) = (Value::Null, Value::Null);
    // What was told before may be told again for a moment.
    until("its flow counts wherever it is told", || {
        driver.alive();
        plain = operator.get("/metrics").as_str().unwrap().to_owned();
        answer = scrape(metrics, "GET /metrics");
        let group = operator.get("/v1/groups/g");
        (window, part) = (group["window"].clone(), group["vms"][0]["part"].clone());
        let told = format!("ccc_group_vm_window_bytes{{group=\"g\",vm=\"a\"}} {part}.0\n");
        part.as_u64() > Some(0) && plain.contains(&told) && answer.contains(&told)
    });
    assert!(window.as_u64() > Some(0), "{window}");
    assert!(
        plain.contains("# TYPE ccc_vm_reports_total counter\nccc_vm_reports_total{"),
        "{plain}"
    );
    assert!(answer.contains("application/openmetrics-text; version=1.0.0"), "{answer}");
    for line in [
        "ccc_vm_connected{vm=\"a\"} 1.0",
        "ccc_vm_connected{vm=\"b\"} 0.0",
        "ccc_vm_weight{vm=\"a\"} 3.0",
        "ccc_vm_coupled_flows{vm=\"a\"} 1.0",
        "ccc_vm_flows_registered_total{vm=\"a\"} 1",
        "ccc_vm_refused_total{vm=\"a\",kind=\"torn\"} 0",
        "# TYPE ccc_group_reductions counter",
        "# TYPE ccc_group_rate_bytes_per_second gauge",
        "# TYPE ccc_group_queue_seconds gauge",
        "ccc_group_coupled{group=\"g\"} 1.0",
        "ccc_vm_device{vm=\"a\"} 1.0",
        &format!("ccc_group_window_bytes{{group=\"g\"}} {window}.0"),
    ] {
        assert!(answer.lines().any(|told| told == line), "{line} is not in\n{answer}");
        assert!(line.starts_with('#') || plain.contains(line), "{line} is not in\n{plain}");
    }
    assert!(answer.ends_with("# EOF\n") && !plain.contains("# EOF"), "{answer}");
}

#[test]
fn floors_and_caps_are_told() {
    let (_daemon, operator, metrics) = start();
    let before = scrape(metrics, "GET /metrics");
    assert!(before.contains("ccc_vm_floor_bytes_per_second{vm=\"b\"} 0.0\n"), "{before}");
    assert!(!before.contains("ccc_vm_cap_bytes_per_second{"), "{before}");
    operator.patch("/v1/vms/b", &json!({"floor_mbit": 2, "cap_mbit": 8}));
    // What was told before may be told again for a moment.
    for line in [
        "ccc_vm_floor_bytes_per_second{vm=\"a\"} 0.0\n",
        "ccc_vm_floor_bytes_per_second{vm=\"b\"} 250000.0\n",
        "ccc_vm_cap_bytes_per_second{vm=\"b\"} 1000000.0\n",
    ] {
        until(line, || scrape(metrics, "GET /metrics").contains(line));
    }
    let b = &operator.get("/v1/groups/g")["vms"][1];
    assert_eq!((&b["floor_mbit"], &b["cap_mbit"]), (&json!(2.0), &json!(8.0)));
    assert_eq!(b["due_permille"], Value::Null, "it sends nothing");
}

#[test]
fn vms_without_the_queue_that_they_are_to_have_are_told() {
    let (daemon, operator, metrics) = start();
    let cgroup = json!({"socket": daemon.socket("c"), "group": "g", "tenant": "cgroup:c.slice"});
    assert_eq!(operator.ask("PUT", "/v1/vms/c", Some(&cgroup)).0, 200);
    let told = || scrape(metrics, "GET /metrics");
    assert!(!told().contains("ccc_group_queued_vms"), "no group is to have queues");
    let uplink = json!({"enforce": "on", "uplink": "nosuch0", "uplink_rate_mbit": 10});
    operator.patch("/v1/groups/g", &uplink);
    for line in [
        "ccc_group_queued_vms{group=\"g\"} 0.0\n",
        "ccc_group_queued_vms_wanted{group=\"g\"} 2.0\n",
    ] {
        until(line, || told().contains(line));
    }
}

#[test]
fn settings_are_no_reductions() {
    let (_daemon, operator, metrics) = start();
    let epoch = || operator.get("/v1/groups/g")["epoch"].as_u64();
    let before = epoch();
    for target_delay_ms in [7, 9] {
        operator.patch("/v1/groups/g", &json!({"target_delay_ms": target_delay_ms}));
    }
    assert_eq!(epoch(), before.map(|before| before + 2));
    let told = scrape(metrics, "GET /metrics");
    for line in
        ["ccc_group_reductions_total{group=\"g\"} 0\n", "ccc_group_floors_unmet{group=\"g\"} 0.0\n"]
    {
        assert!(told.contains(line), "{told}");
    }
}

#[test]
fn over_tcp_there_are_metrics_and_nothing_else() {
    let (_daemon, operator, metrics) = start();
    for (request, status) in [
        ("GET /v1/status", "404"),
        ("PATCH /v1/vms/a", "404"),
        ("DELETE /metrics", "405"),
        ("POST /metrics", "405"),
    ] {
        let answer = scrape(metrics, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert!(body["error"].is_string(), "{request}: {answer}");
    }
    assert_eq!(operator.get("/v1/vms/a")["weight"], 3.0);
}

#[test]
fn who_connects_and_asks_nothing_keeps_no_scraper_waiting() {
    let (_daemon, _operator, metrics) = start();
    scrape(metrics, "GET /metrics");
    until_tried("an answer before they have left by themselves", IDLE_STAYS, || {
        let began = Instant::now();
        let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(metrics).unwrap()).collect();
        assert!(scrape(metrics, "GET /metrics").contains("ccc_build_info"));
        println!("{:?} behind {} idle", began.elapsed(), idle.len());
        (began, began.elapsed() < IDLE_STAYS)
    });
}

#[test]
fn who_asks_again_and_again_keeps_no_scraper_waiting() {
    let (_daemon, _operator, metrics) = start();
    scrape(metrics, "GET /metrics");
    let connect = || {
        let stream = TcpStream::connect(metrics).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let question = "GET / HTTP/1.1\r\nhost: ccc\r\n\r\n";
    let mut asks_twice = TcpStream::connect(metrics).unwrap();
    asks_twice.write_all(question.repeat(2).as_bytes()).unwrap();
    let mut answers = Vec::new();
    let _ = asks_twice.read_to_end(&mut answers);
    assert_eq!(String::from_utf8(answers).unwrap().matches("HTTP/1.1 404").count(), 1);
    let began = Instant::now();
    // More than there are places, and who is closed comes again.
    let mut ask_all = {
        let mut crowd: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
        move || {
            for stream in &mut crowd {
                let _ = stream.read(&mut [0; 4096]);
                if stream.write_all(question.as_bytes()).is_err() {
                    *stream = connect();
                }
            }
        }
    };
    ask_all();
    let told = std::thread::scope(|scope| {
        let scraper = scope.spawn(|| scrape(metrics, "GET /metrics"));
        while !scraper.is_finished() {
            ask_all();
            std::thread::sleep(Duration::from_millis(300));
        }
        scraper.join().unwrap()
    });
    assert!(told.contains("ccc_build_info"));
    assert!(began.elapsed() < ALL_LEAVE, "it waited until they had to leave");
}

#[test]
fn an_address_in_use_costs_nothing_but_the_metrics() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (_daemon, operator) = start_at(address);
    let status = || operator.get("/v1/status");
    assert_eq!(status()["vms"], 2);
    let told = status()["no_metrics"].to_string();
    assert!(told.contains(&format!("cannot listen on {address}")), "{told}");
    drop(taken);
    assert!(scrape(address, "GET /metrics").contains("ccc_build_info"), "when it is free");
    assert_eq!(status()["no_metrics"], Value::Null);
}
