// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of operators, one after the other, as they come from a socket: a
//! line with method and target, a line with the body.  What was changed is the
//! same after it went through the state file.
#![no_main]
use ccc_vhost::{admin::access::Peer, admin::api::routes::Request, settings::config::Config, coupling::{Coupling, Turn}, admin::operate::{Guest, Guests, Operation}, settings::state::State};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = "[group.g]\n[vm.a]\nsocket = \"/a\"\ngroup = \"g\"\n[vm.b]\nsocket = \"/b\"\n";

/// No VM has a front end.
struct Nobody;

impl Guests for Nobody {
    fn guest(&self, _: usize) -> Option<Guest<'_>> {
        None
    }
}

fuzz_target!(|text: &str| {
    let Ok(config) = Config::parse("fuzz.toml", CONFIG) else { return };
    let mut coupling = Coupling::new(config.settings.clone());
    let mut state = State::default();
    let by = Peer { uid: 0, pid: 1, groups: Vec::new() };
    let mut lines = text.lines();
    while let (Some(head), body) = (lines.next(), lines.next().unwrap_or_default()) {
        let (method, target) = head.split_once(' ').unwrap_or((head, ""));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request =
            Request { method, path, query: Some(query), json: true, body: body.as_bytes() };
        let turn = Turn { coupling: &mut coupling, now: 0 };
        let mut operation = Operation { turn, guests: &Nobody, by: &by };
        match request.command().and_then(|command| operation.execute(&command)) {
            Ok((_, Some(change))) => drop(state.note(&change)),
            Ok((_, None)) => {}
            Err(error) => {
                assert!((400..=599).contains(&error.status()));
                assert!(error.body()["error"].is_string());
            }
        }
    }
    let kept = State::from_json(state.json()).expect("what is written can be read");
    let kept = kept.expect("of this version");
    assert_eq!(kept, state);
    let mut again = Coupling::new(config.settings);
    kept.apply(&mut again);
    assert_eq!(again.settings(), coupling.settings());
});
