// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which uplinks have queues, and what is told of that.
use std::collections::BTreeMap;

use ccc_core::Micros;

use super::{
    host::{Leaf, Made, Queued},
    uplink::Uplink,
};

/// What failed is tried again after so long, and told again after so long.
const FAILED_US: Micros = 5_000_000;
const TOLD_US: Micros = 600_000_000;

/// The uplinks of all groups.
#[derive(Debug, Default)]
pub struct Uplinks {
    /// Whether the latest order was for any; before the first one an earlier daemon's may be there.
    ordered: Option<bool>,
    there: BTreeMap<String, Made>,
    failed: BTreeMap<String, Failed>,
}

/// Queues that could not be made.
#[derive(Debug)]
struct Failed {
    at: Micros,
    told: Micros,
    why: String,
}

/// What an operator is to know of an uplink.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// It has queues now, or others than before.
    Queued(String, Leaf),
    /// It has none any more.
    Gone(String),
    /// It is to have some, and has none.
    Failed(String, String),
    /// So many of them were made anew.
    Mended(String, usize),
    /// It has them, but for one.
    Lacking(String, String),
}

impl Uplinks {
    /// What is to be ordered, if anything: all that are to have queues, but for those that could
    /// not be made lately.  What an earlier daemon has left goes with the first order.
    pub fn order(&mut self, now: Micros, wanted: Vec<Uplink>) -> Option<Vec<Uplink>> {
        let is_wanted = |name: &String| wanted.iter().any(|uplink| uplink.interface == *name);
        self.failed.retain(|name, _| is_wanted(name));
        let rests = |uplink: &Uplink| {
            let failed = self.failed.get(&uplink.interface);
            failed.is_some_and(|failed| now.saturating_sub(failed.at) < FAILED_US)
        };
        let due: Vec<Uplink> = wanted.into_iter().filter(|uplink| !rests(uplink)).collect();
        let is_needed = self.any() || !due.is_empty();
        self.ordered = Some(!due.is_empty());
        is_needed.then_some(due)
    }

    /// Whether the kernel may have queues of ours.
    pub fn any(&self) -> bool {
        self.ordered != Some(false)
    }

    /// Takes what came of an order; what of that is new.
    pub fn take(&mut self, now: Micros, done: &[Queued]) -> Vec<News> {
        let mut news = Vec::new();
        let is_there = |name: &String| {
            done.iter().any(|queued| queued.uplink == *name && queued.outcome.is_ok())
        };
        let gone: Vec<String> = self.there.keys().filter(|name| !is_there(name)).cloned().collect();
        self.there.retain(|name, _| is_there(name));
        for Queued { uplink, outcome } in done {
            match outcome {
                Ok(made) => {
                    self.failed.remove(uplink);
                    let before = self.there.insert(uplink.clone(), made.clone());
                    if before.as_ref().is_none_or(|before| before.leaf != made.leaf) {
                        news.push(News::Queued(uplink.clone(), made.leaf));
                    }
                    if made.mended > 0 {
                        news.push(News::Mended(uplink.clone(), made.mended));
                    }
                    let told = before.and_then(|before| before.fault);
                    let fault = made.fault.clone().filter(|fault| told.as_ref() != Some(fault));
                    news.extend(fault.map(|fault| News::Lacking(uplink.clone(), fault)));
                }
                Err(error) => news.extend(self.fail(now, uplink, error.to_string())),
            }
        }
        let is_told = |name: &&String| !self.failed.contains_key(*name);
        news.extend(gone.iter().filter(is_told).cloned().map(News::Gone));
        news
    }

    fn fail(&mut self, now: Micros, uplink: &str, why: String) -> Option<News> {
        let before = self
            .failed
            .get(uplink)
            .filter(|before| before.why == why && now.saturating_sub(before.told) < TOLD_US);
        let told = before.map(|before| before.told);
        let news = told.is_none().then(|| News::Failed(uplink.to_owned(), why.clone()));
        let failed = Failed { at: now, told: told.unwrap_or(now), why };
        self.failed.insert(uplink.to_owned(), failed);
        news
    }

    /// Why an uplink has no queues, or lacks one of them, if it is to have some.
    pub fn trouble(&self, uplink: &str) -> Option<&str> {
        let fault = || self.made(uplink)?.fault.as_deref();
        self.failed.get(uplink).map(|failed| failed.why.as_str()).or_else(fault)
    }

    /// The queues that an uplink has.
    pub fn made(&self, uplink: &str) -> Option<&Made> {
        self.there.get(uplink)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tap::{host::QueueError, uplink::Part};

    fn uplink() -> Vec<Uplink> {
        let rest = Part { rate: 1, most: 1, quantum: 1 };
        let vms = BTreeMap::new();
        let (interface, elsewhere) = ("eth0".to_owned(), BTreeSet::new());
        vec![Uplink { interface, rate: 1, vms, rest, elsewhere }]
    }

    fn done(outcome: Result<Made, QueueError>) -> [Queued; 1] {
        [Queued { uplink: "eth0".to_owned(), outcome }]
    }

    #[test]
    fn what_failed_is_told_once_and_tried_again_after_a_while() {
        let mut uplinks = Uplinks::default();
        assert_eq!(uplinks.order(0, uplink()).map(|order| order.len()), Some(1));
        let told = uplinks.take(0, &done(Err(QueueError::NoHtb)));
        assert!(
            matches!(&told[..], [News::Failed(name, why)] if name == "eth0" && why.contains("modprobe sch_htb"))
        );
        assert_eq!(uplinks.order(1000, uplink()), Some(Vec::new()), "not at once");
        assert_eq!(uplinks.order(2000, uplink()), None);
        assert_eq!(uplinks.order(FAILED_US, uplink()).map(|order| order.len()), Some(1));
        assert_eq!(uplinks.take(FAILED_US, &done(Err(QueueError::NoHtb))), []);
        assert!(uplinks.trouble("eth0").is_some());
        let made =
            Made { vms: 2, absent: BTreeSet::new(), leaf: Leaf::Fifo, fault: None, mended: 0 };
        let told = uplinks.take(2 * FAILED_US, &done(Ok(made.clone())));
        assert_eq!(told, [News::Queued("eth0".to_owned(), Leaf::Fifo)]);
        assert!(uplinks.trouble("eth0").is_none() && uplinks.made("eth0") == Some(&made));
        let made = Made { vms: 3, ..made };
        assert_eq!(
            uplinks.take(2 * FAILED_US, &done(Ok(made.clone()))),
            [],
            "that another VM has come"
        );
        let fair = Made { leaf: Leaf::FairQueues, ..made };
        let told = uplinks.take(2 * FAILED_US, &done(Ok(fair)));
        assert_eq!(told, [News::Queued("eth0".to_owned(), Leaf::FairQueues)]);
        assert_eq!(uplinks.take(2 * FAILED_US, &[]), [News::Gone("eth0".to_owned())]);
    }

    #[test]
    fn an_uplink_that_fails_is_not_told_to_be_gone_as_well() {
        let mut uplinks = Uplinks::default();
        let made =
            Made { vms: 2, absent: BTreeSet::new(), leaf: Leaf::Fifo, fault: None, mended: 0 };
        uplinks.take(0, &done(Ok(made)));
        let told = uplinks.take(0, &done(Err(QueueError::NoHtb)));
        assert!(matches!(&told[..], [News::Failed(..)]), "{told:?}");
        assert_eq!(uplinks.made("eth0"), None);
    }

    #[test]
    fn an_uplink_that_lacks_one_queue_is_told_once_and_has_the_others() {
        let mut uplinks = Uplinks::default();
        let (absent, leaf) = (BTreeSet::new(), Leaf::FairQueues);
        let made = Made { vms: 2, absent, leaf, fault: None, mended: 0 };
        let lacking = Made { fault: Some("no memory".to_owned()), ..made.clone() };
        uplinks.take(0, &done(Ok(made.clone())));
        let told = [News::Lacking("eth0".to_owned(), "no memory".to_owned())];
        for _ in 0..2 {
            assert_eq!(uplinks.take(1, &done(Ok(lacking.clone()))), told);
            assert_eq!(uplinks.take(2, &done(Ok(lacking.clone()))), [], "told before");
            assert_eq!(uplinks.trouble("eth0"), Some("no memory"));
            assert_eq!(uplinks.made("eth0").map(|made| made.vms), Some(2));
            assert_eq!(uplinks.order(3, uplink()).map(|due| due.len()), Some(1), "at once");
            assert_eq!(uplinks.take(3, &done(Ok(made.clone()))), []);
            assert_eq!(uplinks.trouble("eth0"), None);
        }
    }

    #[test]
    fn queues_that_are_made_anew_are_told_each_time() {
        let mut uplinks = Uplinks::default();
        let (absent, leaf) = (BTreeSet::new(), Leaf::FairQueues);
        let made = Made { vms: 2, absent, leaf, fault: None, mended: 0 };
        uplinks.take(0, &done(Ok(made.clone())));
        for mended in [2, 1] {
            let told = uplinks.take(1, &done(Ok(Made { mended, ..made.clone() })));
            assert_eq!(told, [News::Mended("eth0".to_owned(), mended)]);
            assert_eq!(uplinks.take(2, &done(Ok(made.clone()))), []);
        }
    }

    #[test]
    fn the_first_order_takes_away_what_was_left_and_then_nothing_is_asked() {
        let mut uplinks = Uplinks::default();
        assert_eq!(uplinks.order(0, Vec::new()), Some(Vec::new()));
        assert!(!uplinks.any() && uplinks.order(0, Vec::new()).is_none());
        assert!(uplinks.order(0, uplink()).is_some());
        assert_eq!(uplinks.order(0, Vec::new()), Some(Vec::new()), "the last one has gone");
        assert_eq!(uplinks.order(0, Vec::new()), None);
    }
}
