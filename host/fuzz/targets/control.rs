// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of operators, one after the other, as they come from a socket: a
//! line with method and target, a line with the body.  What was changed is the
//! same after it went through the state file.
#![no_main]
use ccc_vhost::{
    api::routes::Request,
    config::Config,
    counters::Counters,
    coupling::{Coupling, Turn},
    operate::{Guest, Operation},
    state::State,
};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = "[group.g]\n[vm.a]\nsocket = \"a\"\ngroup = \"g\"\n[vm.b]\nsocket = \"b\"\n";

fuzz_target!(|text: &str| {
    let Ok(config) = Config::parse("fuzz.toml", CONFIG) else { return };
    let mut coupling = Coupling::new(config.settings.clone());
    let (mut state, counters) = (State::default(), Counters::default());
    let mut lines = text.lines();
    while let (Some(head), body) = (lines.next(), lines.next().unwrap_or_default()) {
        let (method, target) = head.split_once(' ').unwrap_or((head, ""));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request =
            Request { method, path, query: Some(query), json: true, body: body.as_bytes() };
        let guests = (0..2).map(|vm| (vm, Guest { connection: None, counters: &counters })).collect();
        let turn = Turn { coupling: &mut coupling, now: 0 };
        let mut operation = Operation { turn, state: &mut state, guests };
        let answered = request.command().and_then(|command| operation.execute(&command));
        if let Err(error) = answered {
            assert!((400..=599).contains(&error.status()));
            assert!(error.body()["error"].is_string());
        }
    }
    let kept = State::from_json(state.json()).expect("what is written can be read");
    let kept = kept.expect("of this version");
    assert_eq!(kept, state);
    let mut again = Coupling::new(config.settings);
    kept.apply(&mut again);
    assert_eq!(again.settings(), coupling.settings());
});
