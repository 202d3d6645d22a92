// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of operators, one after the other, as they come from a socket: a
//! line with method and target, a line with the body.  What was changed is the
//! same after it went through the state file.
#![no_main]
use std::sync::LazyLock;

use ccc_settings::LogLevel;
use ccc_vhost::{
    fuzzing::{
        Counts, Coupling, Executor, Guest, Guests, Histogram, Peer, Request, Settings, State,
        config,
    },
    logging,
};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = "[group.g]\n[vm.a]\nsocket = \"/a\"\ngroup = \"g\"\n[vm.b]\nsocket = \"/b\"\n";

/// Read once; each input begins with a copy.
static CONFIGURED: LazyLock<Settings> =
    LazyLock::new(|| config::parse("fuzz.toml", CONFIG).expect("right"));

/// No VM has a front end.
struct Nobody;

impl Guests for Nobody {
    fn guest(&self, _: usize) -> Option<Guest<'_>> {
        None
    }
}

fuzz_target!(|text: &str| {
    // An input before may have set it.
    logging::set_level(LogLevel::Info);
    let mut settings = CONFIGURED.clone();
    let mut coupling = Coupling::new(settings.clone());
    let mut state = State::default();
    let by = Peer { uid: 0, pid: 1, groups: Vec::new() };
    let latency = Histogram::new([1.0]);
    let mut lines = text.lines();
    while let (Some(head), body) = (lines.next(), lines.next().unwrap_or_default()) {
        let (method, target) = head.split_once(' ').unwrap_or((head, ""));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request =
            Request { method, path, query: Some(query), json: true, body: body.as_bytes() };
        let mut executor = Executor {
            coupling: &mut coupling,
            now: 0,
            guests: &Nobody,
            by: &by,
            not_kept: None,
            latency: &latency,
            polls: Counts::default(),
            polling: None,
        };
        match request.command().and_then(|command| executor.execute(&command)) {
            Ok((_, Some(change))) => drop(state.note(&change)),
            Ok((_, None)) => {}
            Err(error) => {
                assert!((400..=599).contains(&error.status()));
                assert!(error.body()["error"].is_string());
            }
        }
    }
    let mut kept = State::from_json(state.json()).expect("what is written can be read");
    assert_eq!(kept, state);
    kept.apply(&mut settings);
    assert_eq!(&settings, coupling.settings());
});
