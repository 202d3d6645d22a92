// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The loop: messages of the program go to the daemon as they come, and what comes from it goes
//! into the tables; ten times a second, whatever happens, leases are renewed and connections
//! looked after.
use std::{
    cell::RefCell,
    collections::BTreeSet,
    os::fd::BorrowedFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Result, ensure};
use ccc_proto::wire::Doorbell;
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    time::{ClockId, clock_gettime},
};
use zerocopy::FromBytes;

use crate::{
    tenants::{Tenant, Tenants},
    watch::Changed,
    watchdog::Watchdog,
};

/// How often leases are renewed and connections looked after.
const TEND_US: u64 = 100_000;
/// How often it is looked where the tenants' places are, if nothing tells of a change.
const LOOK_US: u64 = 500_000;
/// How often that is with namespaces, if mounts tell of a change.
const LOOK_MOUNTED_US: u64 = 5_000_000;
/// How often at most, whatever is made and removed beside them.
const LOOK_LEAST_US: u64 = 1000;
/// How often it is looked for messages that wake nobody, while there are messages at all.
const POLL_US: u64 = 1000;
/// After so long without one there are none: for longer than `CCC_POLLED_US` of bpf/report.h, in which
/// the program wakes nobody for a flow that has told something.
const QUIET_US: u64 = 1_000_000;
/// Messages that are passed on before anything else is looked at.
const BATCH: usize = 1024;
/// Bytes in front of the message itself: `struct ccc_message` in bpf/table.h.
const TENANT_BYTES: usize = 8;

/// The clock by which the program counts.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// The tenant's number, and the message.
fn read(bytes: &[u8]) -> Option<(u32, Doorbell)> {
    let (number, message) = bytes.split_at_checked(TENANT_BYTES)?;
    let number = u32::from_ne_bytes(number.get(..4)?.try_into().ok()?);
    Some((number, Doorbell::read_from_prefix(message).ok()?.0))
}

/// Waits until there are messages, something has come, or so long; which places may be others.
fn wait(ring: &RingBuffer<'_>, tenants: &Tenants, most_us: u64) -> Result<Changed> {
    // SAFETY: the ring keeps it open, and is borrowed for as long.
    let messages = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    let wakes = std::iter::once(messages).chain(tenants.wakes());
    let mut all = tenants.watch().polled();
    let watched = all.len();
    all.extend(wakes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    let most = Timespec { tv_sec: 0, tv_nsec: (most_us.clamp(1, TEND_US) * 1000) as _ };
    match poll(&mut all, Some(&most)) {
        Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
        _ => {}
    }
    let changed = tenants.watch().changed(&all[..watched]);
    if changed.any() {
        tenants.watch().drain();
    }
    Ok(changed)
}

/// When it is looked for places of a kind.
struct Looks {
    every_us: u64,
    ended_us: u64,
    took_us: u64,
}

impl Looks {
    fn new(every_us: u64) -> Looks {
        Looks { every_us, ended_us: 0, took_us: 0 }
    }

    /// When the next one is: not before as long has passed as the last one took, for leases are
    /// renewed and messages passed on meanwhile.
    fn at_us(&self, is_changed: bool) -> u64 {
        let wait_us = if is_changed { LOOK_LEAST_US } else { self.every_us };
        self.ended_us + wait_us.max(self.took_us)
    }

    fn ended(&mut self, began_us: u64, now_us: u64) {
        (self.ended_us, self.took_us) = (now_us, now_us - began_us);
    }
}

/// Serves until it is to stop; `wanted` gives the tenants that there are to be, if they may be
/// others than before.
pub fn run(
    tenants: Tenants,
    mut wanted: impl FnMut() -> Option<Vec<Tenant>>,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let messages = tenants.messages()?;
    let tenants = Rc::new(RefCell::new(tenants));
    let touched = Rc::new(RefCell::new(BTreeSet::new()));
    let mut builder = RingBufferBuilder::new();
    let (to, sent) = (Rc::clone(&tenants), Rc::clone(&touched));
    builder.add(&messages, move |bytes| {
        if let Some((number, message)) = read(bytes) {
            to.borrow_mut().send(now_us(), number, &message);
            sent.borrow_mut().insert(number);
        }
        0
    })?;
    let ring = builder.build()?;
    let mut watchdog = Watchdog::start();
    let (mut tend_at, mut quiet_at) = (0, 0);
    let mut changed = Changed::default();
    let mounted_us = if tenants.borrow().watch().sees_mounts() { LOOK_MOUNTED_US } else { LOOK_US };
    let (mut cgroups, mut namespaces) = (Looks::new(LOOK_US), Looks::new(mounted_us));
    while !stop.load(Ordering::Relaxed) {
        let now = now_us();
        if now >= cgroups.at_us(changed.cgroups) {
            changed.cgroups = false;
            tenants.borrow_mut().look(Changed { cgroups: true, ..Changed::default() });
            cgroups.ended(now, now_us());
        }
        let now = now_us();
        if now >= namespaces.at_us(changed.namespaces) {
            changed.namespaces = false;
            tenants.borrow_mut().look(Changed { namespaces: true, ..Changed::default() });
            namespaces.ended(now, now_us());
        }
        let now = now_us();
        if now >= tend_at {
            tend_at = now + TEND_US;
            tenants.borrow().check_pinned()?;
            if let Some(wanted) = wanted() {
                tenants.borrow_mut().follow(wanted);
            }
            tenants.borrow_mut().tend(&mut watchdog);
        }
        let look_at = cgroups.at_us(changed.cgroups).min(namespaces.at_us(changed.namespaces));
        let next = tend_at.min(look_at);
        let rest_us = next.saturating_sub(now_us());
        let most_us = if now < quiet_at { rest_us.min(POLL_US) } else { rest_us };
        changed = changed.and(wait(&ring, &tenants.borrow(), most_us)?);
        let taken = ring.consume_raw_n(BATCH);
        ensure!(
            taken >= 0,
            "messages cannot be read: {}",
            std::io::Error::from_raw_os_error(-taken)
        );
        if taken > 0 {
            quiet_at = now_us() + QUIET_US;
        }
        let mut tenants = tenants.borrow_mut();
        tenants.receive(now_us());
        tenants.flush(&std::mem::take(&mut touched.borrow_mut()));
    }
    tenants.borrow_mut().end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_waits_as_long_as_the_last_one_took() {
        let mut looks = Looks::new(LOOK_US);
        looks.ended(7, 7);
        assert_eq!((looks.at_us(true), looks.at_us(false)), (7 + LOOK_LEAST_US, 7 + LOOK_US));
        looks.ended(7, 7 + 2 * LOOK_US);
        assert_eq!(looks.at_us(true), 7 + 4 * LOOK_US);
        assert_eq!(looks.at_us(false), looks.at_us(true));
    }

    #[test]
    fn a_message_is_read_behind_its_tenant() {
        let mut bytes = [0u8; 24];
        (bytes[0], bytes[8], bytes[12]) = (7, 2, 9);
        let (number, message) = read(&bytes).expect("whole");
        assert_eq!((number, message.op.get(), message.slot.get()), (7, 2, 9));
        assert!(read(&bytes[..20]).is_none());
    }
}
