// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Network namespaces of a test's own, and what goes on in them.
use std::{
    fs,
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs a program, and tells what it says.
pub fn run(words: &str) -> (bool, String) {
    let words: Vec<&str> = words.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

pub fn must(words: &str) -> String {
    let (done, said) = run(words);
    assert!(done, "{words}: {said}");
    said
}

/// Runs something in a namespace, in a thread of its own.
pub fn within<T: Send>(space: &str, what: impl FnOnce() -> T + Send) -> T {
    let file = fs::File::open(format!("/run/netns/{space}")).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).unwrap();
            what()
        });
        inside.join().unwrap()
    })
}

/// Says so when it goes, also where a test fails: else it would wait for its threads for ever.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
