// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernel's taps in a thread of their own.
//!
//! Others may hold the kernel's lock of interfaces for long, as where many domains start
//! at once.  The event loop sends orders and goes on.
use std::{collections::BTreeMap, io, os::fd::BorrowedFd, time::Duration};

use ccc_core::Micros;

use super::{
    host::{Counter, Hold, HoldError, Host, Queued},
    uplink::Uplink,
};
use crate::{
    event_loop::clock,
    event_loop::threads::{
        mpsc::{self, Receiver, Sender},
        thread,
    },
    event_loop::wake::Wake,
};

/// Time to take away what is ours when the daemon ends.
const PARTING: Duration = Duration::from_secs(2);

/// What the thread is to do: first hold, then look.
#[derive(Debug, Default)]
pub struct Order {
    /// What changes.
    pub holds: Vec<Hold>,
    /// Taps to look at, by the number of the VM.
    pub taps: Vec<(usize, String)>,
    /// All uplinks that are to have queues; `None` for as they are.
    pub uplinks: Option<Vec<Uplink>>,
}

/// What has come in at a tap so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// When the kernel had told it: it may have kept us waiting before.
    pub at: Micros,
    /// The tap: an operator may have named another meanwhile.
    pub tap: String,
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
    /// Taps that are not there.
    pub missing: Vec<(usize, String)>,
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
        for (vm, tap) in &self.taps {
            match host.received(tap) {
                Some(counter) => {
                    let received = Received { at: clock(), tap: tap.clone(), counter };
                    done.received.insert(*vm, received);
                }
                None => done.missing.push((*vm, tap.clone())),
            }
        }
        done.lost = host.lost();
        done.uplinks = self.uplinks.as_ref().map(|all| host.queue(all));
        done.at = clock();
        done
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
    for tap in host.left_over() {
        if let Err(error) = host.hold(&Hold { tap, rate: None }) {
            log::warn!("{error}");
        }
    }
    for fault in host.unqueue() {
        log::warn!("{fault}");
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
        fn received(&mut self, _: &str) -> Option<Counter> {
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

        fn unqueue(&mut self) -> Vec<QueueError> {
            Vec::new()
        }

        fn left_over(&mut self) -> Vec<String> {
            vec!["tap".to_owned()]
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
