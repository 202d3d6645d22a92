// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The loop: messages of the program go to the daemon as they come; ten times a second,
//! whatever happens, leases are renewed and connections looked after.
use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::Path,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use ccc_proto::wire::Doorbell;
use libbpf_rs::RingBufferBuilder;
use rustix::time::{ClockId, clock_gettime};
use zerocopy::FromBytes;

use crate::{tenants::Tenants, wanted};

/// How often leases are renewed and connections looked after.
const TEND_US: u64 = 100_000;
/// How often the daemon is asked which tenants there are to be.
const ASK_US: u64 = 500_000;
/// Bytes in front of the message itself: `struct ccc_message` in bpf/table.h.
const TENANT_BYTES: usize = 8;

/// The clock by which the program counts.
fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// The tenant's number, and the message.
fn read(bytes: &[u8]) -> Option<(u32, Doorbell)> {
    let (number, message) = bytes.split_at_checked(TENANT_BYTES)?;
    let number = u32::from_ne_bytes(number.get(..4)?.try_into().ok()?);
    Some((number, Doorbell::read_from_prefix(message).ok()?.0))
}

/// Serves until it is to stop.
pub fn run(tenants: Tenants, control: &Path, stop: &Arc<AtomicBool>) -> Result<()> {
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
    let (mut tend_at, mut ask_at, mut told) = (0, 0, false);
    while !stop.load(Ordering::Relaxed) {
        let now = now_us();
        if now >= ask_at {
            ask_at = now + ASK_US;
            match wanted::ask(control) {
                Ok(wanted) => tenants.borrow_mut().follow(wanted),
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        log::warn!("cannot ask {}: {error:#}", control.display());
                    }
                    tenants.borrow_mut().look();
                }
            }
        }
        if now >= tend_at {
            tend_at = now + TEND_US;
            tenants.borrow_mut().tend(now);
        }
        let rest = tend_at.saturating_sub(now_us());
        match ring.poll(Duration::from_micros(rest.max(1000))) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                return Err(error.into());
            }
            _ => {}
        }
        tenants.borrow_mut().flush(&std::mem::take(&mut touched.borrow_mut()));
    }
    tenants.borrow_mut().end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_behind_its_tenant() {
        let mut bytes = [0u8; 24];
        (bytes[0], bytes[8], bytes[12]) = (7, 2, 9);
        let (number, message) = read(&bytes).expect("whole");
        assert_eq!((number, message.op.get(), message.slot.get()), (7, 2, 9));
        assert!(read(&bytes[..20]).is_none());
    }
}
