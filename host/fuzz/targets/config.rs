// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A configuration is read or its faults are told; what is read can be used.
#![no_main]
use ccc_vhost::fuzzing::{Coupling, config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match config::parse("fuzz.toml", text) {
        Ok(settings) => {
            for vm in settings.vms.keys() {
                let group = settings.route(*vm, [10, 0, 0, 1].into());
                assert!(group.is_none_or(|group| group < settings.groups.len()));
            }
            Coupling::new(settings);
        }
        Err(error) => {
            let lines = text.lines().count() + 1;
            assert!(!error.faults().is_empty());
            assert!(error.faults().iter().all(|fault| (1..=lines).contains(&fault.line)));
            assert!(!error.to_string().is_empty());
        }
    }
});
