// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernel's taps in a thread of their own.
//!
//! Others may hold the kernel's lock of interfaces for long, as where many domains start
//! at once.  The event loop sends orders and goes on.
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::BorrowedFd,
    time::Duration,
};

use ccc_core::Micros;

use super::{
    host::{Counter, Hold, HoldError, Host, Queued, Unseen},
    uplink::Uplink,
};
use crate::{
    event_loop::clock,
    event_loop::threads::{
        mpsc::{self, Receiver, Sender},
        thread,
    },
    event_loop::wake::Wake,
    settings::Settings,
};

/// Time to take away what is ours when the daemon ends.
const PARTING: Duration = Duration::from_secs(2);

/// What the thread is to do: first hold, then look.
#[derive(Debug, Default)]
pub struct Order {
    /// What changes.
    pub holds: Vec<Hold>,
    /// Taps to look at.
    pub taps: Vec<Look>,
    /// All uplinks that are to have queues; `None` for as they are.
    pub uplinks: Option<Vec<Uplink>>,
}

/// A tap that is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The number of the VM.
    pub vm: usize,
    /// The interface.
    pub tap: String,
    /// That of its group, which is no VM's.
    pub uplink: Option<String>,
}

/// What has come in at a tap so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// When the kernel had told it: it may have kept us waiting before.
    pub at: Micros,
    /// The tap: an operator may have named another meanwhile.
    pub tap: String,
    /// The other names of that interface.
    pub also: Vec<String>,
    /// What it has counted.
    pub counter: Counter,
}

/// What came of an order.
#[derive(Debug, Default)]
pub struct Done {
    /// When it was carried out.
    pub at: Micros,
    /// What has come in so far, by the number of the VM.
    pub received: BTreeMap<usize, Received>,
    /// Who cannot be looked at, and why.
    pub unseen: Vec<(usize, Unseen)>,
    /// What came of each hold.
    pub holds: Vec<(Hold, Result<(), HoldError>)>,
    /// Taps that are held no more, though they are to be.
    pub lost: Vec<String>,
    /// What came of the queues of each uplink, if any were ordered.
    pub uplinks: Option<Vec<Queued>>,
}

impl Order {
    /// Carries it out; `clock` tells the time.
    pub fn carry_out(&self, clock: impl Fn() -> Micros, host: &mut dyn Host) -> Done {
        let hold = |hold: &Hold| (hold.clone(), host.hold(hold));
        let mut done = Done { holds: self.holds.iter().map(hold).collect(), ..Done::default() };
        let uplinks: BTreeSet<&str> =
            self.taps.iter().filter_map(|look| look.uplink.as_deref()).collect();
        let uplinks = uplinks.into_iter().filter_map(|name| Some((name, host.index_of(name)?)));
        let uplinks: BTreeMap<&str, u32> = uplinks.collect();
        for look in &self.taps {
            match look.received(host, &uplinks) {
                Ok(counter) => {
                    let (at, also) = (clock(), host.also_named(&look.tap));
                    let received = Received { at, tap: look.tap.clone(), also, counter };
                    done.received.insert(look.vm, received);
                }
                Err(unseen) => done.unseen.push((look.vm, unseen)),
            }
        }
        done.lost = host.lost();
        done.uplinks = self.uplinks.as_ref().map(|all| host.queue(all));
        done.at = clock();
        done
    }
}

impl Look {
    /// What has come in there so far; `uplinks` are the indices of those.
    fn received(
        &self,
        host: &mut dyn Host,
        uplinks: &BTreeMap<&str, u32>,
    ) -> Result<Counter, Unseen> {
        let counter = host.received(&self.tap)?;
        let is_it = |uplink: &&String| uplinks.get(uplink.as_str()) == Some(&counter.interface);
        let uplink = self.uplink.as_ref().filter(is_it);
        let unseen =
            uplink.map(|uplink| Unseen::Uplink { tap: self.tap.clone(), uplink: uplink.clone() });
        unseen.map_or(Ok(counter), Err)
    }
}

impl Done {
    /// What comes in at a tap that two VMs name, by two of its names, is held against neither, whether
    /// the other one is looked at or not.
    pub fn leave_out_shared(&mut self, settings: &Settings) {
        // Few interfaces have more names than one.
        if self.received.values().all(|received| received.also.is_empty()) {
            return;
        }
        let vms = settings.vms.iter();
        let named: BTreeMap<&str, usize> =
            vms.filter_map(|(vm, of)| Some((of.settings.tap.as_deref()?, *vm))).collect();
        let unseen = self.received.iter().filter_map(|(vm, Received { tap, also, .. })| {
            let is_anothers =
                |name: &&String| named.get(name.as_str()).is_some_and(|other| other != vm);
            let other = also.iter().find(is_anothers)?.clone();
            Some((*vm, Unseen::Shared { tap: tap.clone(), other }))
        });
        let unseen: Vec<_> = unseen.collect();
        self.received.retain(|vm, _| unseen.iter().all(|(unseen, _)| unseen != vm));
        self.unseen.extend(unseen);
    }
}

/// The event loop's end.
#[derive(Debug)]
pub struct Thread {
    orders: Option<Sender<Order>>,
    /// Orders that are not done.
    pending: usize,
    done: Receiver<Done>,
    ended: Receiver<()>,
    wake: Wake,
}

impl Thread {
    /// Starts it; what is held when this ends is held no more, unless it is to be kept.
    pub fn start(mut host: Box<dyn Host + Send>, keep: bool) -> io::Result<Thread> {
        let wake = Wake::new()?;
        let (orders, taken) = mpsc::channel::<Order>();
        let (tell, done) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let theirs = wake.clone();
        let run = move || {
            let _end: Sender<()> = end;
            for order in taken {
                if tell.send(order.carry_out(clock::monotonic, host.as_mut())).is_ok() {
                    theirs.notify();
                }
            }
            if !keep {
                release_all(host.as_mut());
            }
        };
        thread::Builder::new().name("taps".to_owned()).spawn(run)?;
        Ok(Thread { orders: Some(orders), pending: 0, done, ended, wake })
    }

    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// Whether all orders are done: while the kernel keeps one waiting, no more are needed.
    pub fn is_idle(&self) -> bool {
        self.pending == 0
    }

    /// Hands an order over; never waits.
    pub fn order(&mut self, order: Order) {
        if let Some(orders) = &self.orders {
            self.pending += usize::from(orders.send(order).is_ok());
        }
    }

    /// What has been done.
    pub fn take(&mut self) -> Vec<Done> {
        self.wake.clear();
        let done: Vec<Done> = self.done.try_iter().collect();
        self.pending -= done.len();
        done
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.orders.take());
        if self.ended.recv_timeout(PARTING) == Err(mpsc::RecvTimeoutError::Timeout) {
            log::warn!("taps cannot be let go in time; the next daemon takes them over");
        }
    }
}

fn release_all(host: &mut dyn Host) {
    let held = host.left_over().unwrap_or_else(|error| {
        log::warn!("cannot look for taps that are held: {error}");
        Vec::new()
    });
    for tap in held {
        if let Err(error) = host.hold(&Hold { tap, rate: None }) {
            log::warn!("{error}");
        }
    }
    for fault in host.unqueue().into_iter().filter_map(Result::err) {
        log::warn!("{fault}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::config;

    const CONFIG: &str = "[group.on]\nenforce = \"on\"\n[group.off]\n\
                          [vm.a]\nsocket = \"/a\"\ngroup = \"on\"\ntap = \"vnet0\"\n\
                          [vm.b]\nsocket = \"/b\"\ngroup = \"on\"\ntap = \"vnet1\"\n\
                          [vm.c]\nsocket = \"/c\"\ngroup = \"off\"\ntap = \"alt0\"\n";

    #[test]
    fn a_tap_that_is_also_one_of_a_vm_that_nobody_looks_at_is_held_against_neither() {
        let settings = config::parse("ccc.toml", CONFIG).expect("right");
        let received = |tap: &str, also: &[&str]| Received {
            at: 1,
            tap: tap.to_owned(),
            also: also.iter().map(|name| (*name).to_owned()).collect(),
            counter: Counter { interface: 7, bytes: 1 },
        };
        let taps =
            [(0, received("vnet0", &["third0", "alt0"])), (1, received("vnet1", &["host1"]))];
        let mut done = Done { received: taps.into(), ..Done::default() };
        done.leave_out_shared(&settings);
        assert_eq!(done.received.into_keys().collect::<Vec<_>>(), [1]);
        let shared = Unseen::Shared { tap: "vnet0".to_owned(), other: "alt0".to_owned() };
        assert_eq!(done.unseen, [(0, shared)]);
        // What it was called before it was looked at.
        let taps = [(0, received("before0", &["vnet0"]))];
        let mut done = Done { received: taps.into(), ..Done::default() };
        done.leave_out_shared(&settings);
        assert!(done.unseen.is_empty(), "{:?}", done.unseen);
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings {
    use std::sync::Arc;

    use shuttle::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::event_loop::wake::interleavings::{RUNS, wait};
    use crate::tap::host::QueueError;

    /// A tap that an earlier daemon has held.
    struct Left(Arc<AtomicBool>);

    impl Host for Left {
        fn received(&mut self, tap: &str) -> Result<Counter, Unseen> {
            Err(Unseen::Missing { tap: tap.to_owned() })
        }

        fn index_of(&mut self, _: &str) -> Option<u32> {
            None
        }

        fn hold(&mut self, hold: &Hold) -> Result<(), HoldError> {
            self.0.store(hold.rate.is_some(), Ordering::SeqCst);
            Ok(())
        }

        fn lost(&mut self) -> Vec<String> {
            Vec::new()
        }

        fn queue(&mut self, _: &[Uplink]) -> Vec<Queued> {
            Vec::new()
        }

        fn unqueue(&mut self) -> Vec<Result<(), QueueError>> {
            Vec::new()
        }

        fn left_over(&mut self) -> io::Result<Vec<String>> {
            Ok(vec!["tap".to_owned()])
        }
    }

    #[test]
    fn whatever_is_done_wakes_the_loop_and_all_is_let_go_at_the_end() {
        let run = || {
            let held = Arc::new(AtomicBool::new(true));
            let host = Box::new(Left(Arc::clone(&held)));
            let mut thread = Thread::start(host, false).expect("started");
            let mut done = 0;
            for orders in [2, 1] {
                (0..orders).for_each(|_| thread.order(Order::default()));
                while !thread.is_idle() {
                    wait(thread.fd());
                    done += thread.take().len();
                }
            }
            assert_eq!(done, 3);
            drop(thread);
            assert!(!held.load(Ordering::SeqCst), "still held");
        };
        shuttle::check_random(run, RUNS);
    }
}
