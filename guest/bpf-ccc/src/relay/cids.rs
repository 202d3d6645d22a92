// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Where agents of all VMs come in that the kernel's vhost-vsock serves.
//!
//! One queue of the kernel has the connections of all guests, so it is emptied at once, whoever
//! fills it: nobody waits behind another.  A connection that is not of a tenant, or not of a
//! privileged process of its guest, is closed; each VM has room for a few more.
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use log::Level;
use vsock::{VMADDR_CID_ANY, VsockListener};

use super::door::Sender;
use crate::{log_limit::Limited, wait::wait};

/// How often it is looked whether to go on.
const LOOK: Duration = Duration::from_millis(100);
/// Connections that may wait in the kernel, and that are taken at a time.
const BACKLOG: i32 = 1024;
/// What comes sooner after what came before waits, so that a flood takes little of this host.
const PACE: Duration = Duration::from_millis(1);
/// The first port that any process of a guest may have.
const UNPRIVILEGED: u32 = 1024;
/// CIDs of which it is known how much was said.
const SAID_MAX: usize = 4096;

/// Where each CID's connections go.
#[derive(Clone, Debug, Default)]
pub struct Doors(Arc<Mutex<BTreeMap<u32, Sender>>>);

impl Doors {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Sender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A CID's go there from now on.
    pub fn open(&self, cid: u32, door: Sender) {
        self.all().insert(cid, door);
    }

    /// A CID is no tenant's any more.
    pub fn close(&self, cid: u32) {
        self.all().remove(&cid);
    }
}

/// Passes connections on until it is to stop.
pub fn serve(port: u32, doors: &Doors, stop: &AtomicBool) {
    let mut cids = Cids { port, listener: None, said: BTreeMap::new(), told: Limited::default() };
    while !stop.load(Ordering::Relaxed) {
        // Where nobody is known by a CID, the port is left to others.
        if doors.all().is_empty() {
            thread::sleep(LOOK);
            continue;
        }
        if let Err(error) = cids.pass_on(doors) {
            cids.told.say(Level::Warn, format_args!("{error:#}"));
            thread::sleep(LOOK);
        }
    }
}

/// A connection, and the CID and port that it comes from.
type Arrival = (OwnedFd, u32, u32);

struct Cids {
    port: u32,
    listener: Option<VsockListener>,
    /// Who comes that is sent away; each CID has a limit of its own.
    said: BTreeMap<u32, Limited>,
    told: Limited,
}

impl Cids {
    fn pass_on(&mut self, doors: &Doors) -> Result<()> {
        let listener = match self.listener.take() {
            Some(listener) => listener,
            None => listen(self.port)?,
        };
        let listener = self.listener.insert(listener);
        wait(std::iter::once(listener.as_fd()), LOOK)?;
        let mut waiting = std::iter::from_fn(|| accept(listener).ok());
        take(&mut waiting, doors, &mut self.said);
        thread::sleep(PACE);
        Ok(())
    }
}

fn listen(port: u32) -> Result<VsockListener> {
    let cannot = || format!("cannot listen at port {port} of vsock");
    let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port).with_context(cannot)?;
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG).with_context(cannot)?;
    log::info!("listening at port {port} of vsock");
    Ok(listener)
}

fn accept(listener: &VsockListener) -> io::Result<Arrival> {
    let (stream, peer) = listener.accept()?;
    Ok((stream.into(), peer.cid(), peer.port()))
}

/// Takes what waits, whosever it is, and passes it on.
fn take(
    waiting: &mut impl Iterator<Item = Arrival>,
    doors: &Doors,
    said: &mut BTreeMap<u32, Limited>,
) {
    let doors = doors.all();
    for (stream, cid, port) in waiting.take(BACKLOG as usize) {
        let mut say = |what: std::fmt::Arguments<'_>| {
            if said.len() == SAID_MAX {
                said.clear();
            }
            said.entry(cid).or_default().say(Level::Warn, what);
        };
        match doors.get(&cid) {
            None => {
                say(format_args!("CID {cid} is no tenant: cccctl tenant add NAME --vsock {cid}"))
            }
            Some(_) if port >= UNPRIVILEGED => say(format_args!(
                "CID {cid}: a connection from port {port} is refused: expected one below \
                 {UNPRIVILEGED}, which only a privileged process of the guest has (an agent of \
                 this version)"
            )),
            // It is closed if there is no room.
            Some(door) => door.pass(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::relay::door::{self, Door};

    fn arrival(cid: u32, port: u32) -> Arrival {
        (UnixStream::pair().expect("a pair").0.into(), cid, port)
    }

    fn doors(cids: &[u32]) -> (Doors, Vec<Door>) {
        let doors = Doors::default();
        let open = |cid: &u32| {
            let (sender, door) = door::passed().expect("a door");
            doors.open(*cid, sender);
            door
        };
        let all = cids.iter().map(open).collect();
        (doors, all)
    }

    fn came(door: &Door) -> usize {
        std::iter::from_fn(|| door.next()).count()
    }

    #[test]
    fn a_flood_of_one_cid_neither_delays_another_nor_takes_more_than_its_room() {
        let (doors, open) = doors(&[3, 4]);
        let flood = (0..500).map(|_| arrival(3, 700));
        take(&mut flood.chain([arrival(4, 700)]), &doors, &mut BTreeMap::new());
        assert_eq!(came(&open[1]), 1, "behind 500 of another");
        assert_eq!(came(&open[0]), crate::relay::lobby::ROOM);
    }

    #[test]
    fn only_a_privileged_process_of_a_known_guest_is_passed_on() {
        let (doors, open) = doors(&[3]);
        let mut said = BTreeMap::new();
        take(&mut [arrival(3, 1024), arrival(5, 700)].into_iter(), &doors, &mut said);
        assert_eq!((came(&open[0]), said.len()), (0, 2));
        take(&mut [arrival(3, 1023)].into_iter(), &doors, &mut said);
        assert_eq!(came(&open[0]), 1);
        doors.close(3);
        take(&mut [arrival(3, 1023)].into_iter(), &doors, &mut said);
        assert_eq!(came(&open[0]), 0);
    }
}
