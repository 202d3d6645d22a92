// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Active flows in the order in which they were last heard: an intrusive
//! list, so that the longest silent flow is known in O(1).
use slab::Slab;

use crate::{fixed::Micros, flow::Flow};

/// A flow's place in the list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    before: Option<usize>,
    after: Option<usize>,
    heard: Option<Micros>,
}

/// The list's ends.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    longest: Option<usize>,
    latest: Option<usize>,
}

impl Quiet {
    /// Moves or adds `key` to the end of the list.
    pub(crate) fn heard(&mut self, flows: &mut Slab<Flow>, key: usize, now: Micros) {
        self.forget(flows, key);
        flows[key].link = Link { before: self.latest, after: None, heard: Some(now) };
        match self.latest {
            Some(latest) => flows[latest].link.after = Some(key),
            None => self.longest = Some(key),
        }
        self.latest = Some(key);
    }

    /// Takes `key` out of the list, if it is in it.
    pub(crate) fn forget(&mut self, flows: &mut Slab<Flow>, key: usize) {
        let Link { before, after, heard } = flows[key].link;
        if heard.is_none() {
            return;
        }
        match before {
            Some(before) => flows[before].link.after = after,
            None => self.longest = after,
        }
        match after {
            Some(after) => flows[after].link.before = before,
            None => self.latest = before,
        }
        flows[key].link = Link::default();
    }

    /// The flow silent for the longest, and when it was heard.
    pub(crate) fn longest(&self, flows: &Slab<Flow>) -> Option<(usize, Micros)> {
        let key = self.longest?;
        flows[key].link.heard.map(|heard| (key, heard))
    }
}
