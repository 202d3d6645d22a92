// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Taps of this host: counted and held by its kernel.
//!
//! What comes in at a tap cannot wait there.  A tap that is held has an ingress qdisc with
//! one filter, which sends all to an intermediate device (ifb) of its own; a shaper
//! there lets it go at its rate, and it comes back in at the tap.  A tap that is not held
//! has nothing of this.  The device's alias says for which tap and by which daemon, so that
//! the next one finds what that has left when it was killed, and leaves another's alone.
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::{Duration, Instant},
};

use rustix::thread::{CapabilitySet, capabilities};

use super::{
    host::{Counter, Hold, HoldError, Host, QueueError, Queued, REMEDY, Unseen},
    htb::{self, HTB},
    link::Link,
    netlink::{Socket, Writer, attributes, flag, kind, u32_at},
    queues::Queues,
    requests::{
        ATTRIBUTE_ALIAS, ATTRIBUTE_LINK_INFO, ATTRIBUTE_NAME, ATTRIBUTE_QDISC, INFO_KIND,
        LINK_BYTES, MARK, PARENT_ROOT, TC_KIND, TC_OPTIONS, U32_SELECTOR, filter_info, link,
        match_all, tc, unless_gone, word,
    },
    uplink::Uplink,
};

/// Whether this process may hold VMs at their taps.
pub fn may_hold() -> bool {
    capabilities(None).map_or(true, |own| own.effective.contains(CapabilitySet::NET_ADMIN))
}

/// What is wrong with a group that is to hold VMs, if this process may not hold any.
pub fn powerless(group: &str) -> Option<String> {
    (!may_hold()).then(|| format!("group {group}: enforce = \"on\" cannot hold any VM: {REMEDY}"))
}

/// What an alias of a device of ours begins with.
const OURS: &str = "ccc-vhost holds ";
/// And what comes between the tap and the daemon's configuration, of which as much is said
/// as there is room for.
const BY: &str = " by ";
const INSTANCE_BYTES: usize = 128;
/// The handle of our filter, that which the kernel gives to the first of a qdisc.
const FILTER: u32 = 0x8000_0800;
/// And what a device's name begins with; the index of its tap comes behind.
const DEVICE: &str = "ccc-ifb";
/// Interfaces get other names: which one has a tap's is asked again after so long.
const NAMED: Duration = Duration::from_secs(1);
/// The queue of a tap that is held, in time at its rate, and its least.
const QUEUE_MS: u64 = 100;
/// What may go at once, in time at its rate, and its least, the largest packet of a guest with
/// what comes before it: so much a timer that is late makes good.
const BURST_MS: u64 = 10;
const BURST_BYTES: u64 = 68_000;
/// Its only class, and the queue of that.
const CLASS: u32 = (MARK as u32) << 16 | 1;
const LEAF: u32 = (MARK as u32 + 1) << 16;

const PARENT_INGRESS: u32 = 0xffff_fff1;
const HANDLE_INGRESS: u32 = 0xffff_0000;

/// The kernel's taps.
#[derive(Debug)]
pub struct Kernel {
    socket: Socket,
    /// Which daemon this is.
    instance: String,
    /// Indices of taps, by name, and since when they are known.
    indices: BTreeMap<String, u32>,
    /// Other names of those interfaces that have some.
    also: BTreeMap<String, Vec<String>>,
    named: Instant,
    /// Those that were looked at since queues were last asked for.
    looked_at: BTreeSet<String>,
    /// Those that are held.
    held: BTreeMap<String, Held>,
    queues: Queues,
}

/// A tap that is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Its index.
    tap: u32,
    /// That of its device.
    device: u32,
}

/// An intermediate device of ours.
#[derive(Debug)]
struct Device {
    index: u32,
    name: String,
    /// The tap it is for.
    tap: String,
}

impl Kernel {
    /// Those in this process's network namespace, for the daemon of this configuration.
    pub fn new(configuration: &Path) -> io::Result<Kernel> {
        // However it was typed this time.
        let path = configuration.canonicalize().unwrap_or_else(|_| configuration.to_owned());
        let (socket, instance) = (Socket::open()?, instance_of(&path));
        let queues = Queues::new(&instance)?;
        Ok(Kernel {
            socket,
            instance,
            indices: BTreeMap::new(),
            also: BTreeMap::new(),
            named: Instant::now(),
            looked_at: BTreeSet::new(),
            held: BTreeMap::new(),
            queues,
        })
    }

    fn index(&mut self, name: &str) -> io::Result<u32> {
        Ok(Link::ask(&mut self.socket, name)?.index)
    }

    /// The same of a tap, if what comes in there is what its VM sends.
    fn index_of_tap(&mut self, tap: &str) -> Result<u32, Unseen> {
        let link = Link::ask(&mut self.socket, tap);
        let link = link.map_err(|_| Unseen::Missing { tap: tap.to_owned() })?;
        self.also.remove(tap);
        let also = link.names_beside(tap);
        if !also.is_empty() {
            self.also.insert(tap.to_owned(), also);
        }
        link.as_tap(tap)
    }

    /// The same without asking again, if the tap was looked at just now, as that of each VM with a queue
    /// is unless it was named since.
    fn index_now(&mut self, tap: &str) -> Option<u32> {
        let known = self.indices.get(tap).filter(|_| self.looked_at.contains(tap)).copied();
        known.or_else(|| self.index_of_tap(tap).ok())
    }

    /// Indices of taps that are there, and each a VM's own.
    fn own_taps(&mut self, uplinks: &[Uplink]) -> BTreeMap<String, u32> {
        let mut indices = BTreeMap::new();
        for uplink in uplinks {
            let of_uplink = self.index(&uplink.interface).ok();
            let taps =
                uplink.vms.keys().filter_map(|tap| Some((tap.clone(), self.index_now(tap)?)));
            let taps: Vec<_> = taps.filter(|(_, index)| Some(*index) != of_uplink).collect();
            let is_a_vms = |name: &String| uplink.is_a_vms(name);
            let is_own = |tap: &str| !self.also_named(tap).iter().any(is_a_vms);
            indices.extend(taps.into_iter().filter(|(tap, _)| is_own(tap)));
        }
        indices
    }

    /// Whether an interface is there, and none of its names is the tap's any more.
    fn is_renamed(&mut self, index: u32, tap: &str) -> io::Result<bool> {
        let answer = unless_gone(self.socket.ask(kind::GET_LINK, 0, &link(index, 0)))?;
        let bodies = answer.unwrap_or_default();
        let link = bodies.first().map(|body| Link::told(body)).transpose()?;
        Ok(link.is_some_and(|link| !link.has_name(tap)))
    }

    /// `RTM_GETSTATS`, which tells nothing but the counters.
    fn received_at(&mut self, index: u32) -> io::Result<Counter> {
        const LINK_64: u16 = 1;
        const RECEIVED_BYTES: usize = 2 * 8;
        let request = Writer::default().u32(0).u32(index).u32(1 << (LINK_64 - 1));
        let answer = self.socket.ask(kind::GET_STATS, 0, &request)?;
        let body = answer.first().and_then(|body| body.get(12..)).unwrap_or_default();
        let stats = attributes(body).find(|(kind, _)| *kind == LINK_64);
        let bytes = stats.and_then(|(_, stats)| stats.get(RECEIVED_BYTES..RECEIVED_BYTES + 8));
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        let counter = bytes.map(|bytes| Counter { interface: index, bytes });
        counter.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Our devices.
    fn devices(&mut self) -> io::Result<Vec<Device>> {
        let instance = self.instance.clone();
        self.devices_by(|alias| tap_of(alias, &instance))
    }

    /// Devices of which the alias says for which tap.
    fn devices_by(&mut self, tap: impl Fn(&str) -> Option<&str>) -> io::Result<Vec<Device>> {
        let request = Writer::default().put(&[0; LINK_BYTES]);
        let links = self.socket.ask(kind::GET_LINK, flag::DUMP, &request)?;
        let ours = links.iter().filter_map(|body| {
            let tap = tap(word(body, ATTRIBUTE_ALIAS)?)?.to_owned();
            let name = word(body, ATTRIBUTE_NAME)?.to_owned();
            Some(Device { index: u32_at(body, 4)?, name, tap })
        });
        Ok(ours.collect())
    }

    fn device_of(&mut self, tap: &str) -> io::Result<Option<Device>> {
        Ok(self.devices()?.into_iter().find(|device| device.tap == tap))
    }

    /// Whether a daemon of another configuration holds a tap.
    fn is_anothers(&mut self, tap: &str) -> io::Result<bool> {
        let instance = self.instance.clone();
        let others = self.devices_by(|alias| tap_of_another(alias, &instance))?;
        Ok(others.iter().any(|device| device.tap == tap))
    }

    fn make_device(&mut self, tap: &str, of: u32) -> io::Result<u32> {
        const UP: u32 = 1;
        let name = format!("{DEVICE}{of}");
        let request = link(0, UP)
            .word(ATTRIBUTE_NAME, &name)
            .nest(ATTRIBUTE_LINK_INFO, Writer::default().word(INFO_KIND, "ifb"));
        match self.socket.ask(kind::NEW_LINK, flag::CREATE | flag::EXCLUSIVE, &request) {
            // A daemon was killed before it could say whose it is.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            made => drop(made?),
        }
        let device = self.index(&name)?;
        // The kernel takes an alias only of a device that is there.
        let alias = link(device, UP).word(ATTRIBUTE_ALIAS, &alias(tap, &self.instance));
        self.socket.ask(kind::NEW_LINK, 0, &alias)?;
        Ok(device)
    }

    fn delete_device(&mut self, index: u32) -> io::Result<()> {
        self.socket.ask(kind::DELETE_LINK, 0, &link(index, 0)).map(drop)
    }

    /// A shaper without a rate, in place of what an earlier daemon has left.
    fn make_shaper(&mut self, device: u32) -> io::Result<()> {
        let root = |handle| tc(device, handle, PARENT_ROOT, 0);
        unless_gone(self.socket.ask(kind::DELETE_QDISC, 0, &root(0)))?;
        let qdisc = root(u32::from(MARK) << 16).word(TC_KIND, HTB);
        let request = qdisc.nest(TC_OPTIONS, htb::tree(CLASS & 0xffff));
        self.socket.ask(kind::NEW_QDISC, flag::CREATE | flag::EXCLUSIVE, &request).map(drop)
    }

    /// Its rate.  HTB keeps the tokens it has; TBF would fill its bucket at each change.
    fn set_rate(&mut self, device: u32, rate: u64) -> io::Result<()> {
        let (class, queue) = shape_of(rate);
        let request = tc(device, CLASS, u32::from(MARK) << 16, 0).word(TC_KIND, HTB);
        let request = request.nest(TC_OPTIONS, class.options());
        self.socket.ask(kind::NEW_CLASS, flag::CREATE | flag::REPLACE, &request)?;
        let request = tc(device, LEAF, CLASS, 0).word(TC_KIND, "bfifo");
        let request = request.attribute(TC_OPTIONS, &queue.to_ne_bytes());
        self.socket.ask(kind::NEW_QDISC, flag::CREATE | flag::REPLACE, &request).map(drop)
    }

    /// Whether a device is there with a shaper.  The interface tells: a `RTM_GETQDISC` has
    /// no answer without `NLM_F_ECHO`, but goes to all who listen for changes of qdiscs.
    fn has_shaper(&mut self, device: u32) -> io::Result<bool> {
        let answer = unless_gone(self.socket.ask(kind::GET_LINK, 0, &link(device, 0)))?;
        let bodies = answer.unwrap_or_default();
        let qdisc = bodies.first().and_then(|body| word(body, ATTRIBUTE_QDISC));
        Ok(qdisc == Some(HTB))
    }

    fn make_ingress(&mut self, tap: u32) -> io::Result<()> {
        let request = tc(tap, HANDLE_INGRESS, PARENT_INGRESS, 0).word(TC_KIND, "ingress");
        self.socket.ask(kind::NEW_QDISC, flag::CREATE | flag::EXCLUSIVE, &request).map(drop)
    }

    fn delete_ingress(&mut self, tap: u32) -> io::Result<()> {
        let request = tc(tap, HANDLE_INGRESS, PARENT_INGRESS, 0);
        self.socket.ask(kind::DELETE_QDISC, 0, &request).map(drop)
    }

    /// Whether each filter of a tap's ingress qdisc is ours.
    fn are_filters_ours(&mut self, tap: u32) -> io::Result<Vec<bool>> {
        let request = tc(tap, 0, HANDLE_INGRESS, 0);
        let filters = self.socket.ask(kind::GET_FILTER, flag::DUMP, &request)?;
        let preference = |body: &Vec<u8>| u32_at(body, 16).map(|info| info >> 16);
        Ok(filters.iter().map(|body| preference(body) == Some(MARK.into())).collect())
    }

    /// Whether its ingress qdisc has filters of ours and no other: an empty one may be anybody's.
    fn is_ingress_ours(&mut self, tap: u32) -> io::Result<bool> {
        let ours = self.are_filters_ours(tap)?;
        Ok(!ours.is_empty() && ours.into_iter().all(|ours| ours))
    }

    /// Takes away an ingress qdisc of ours whose device is gone: what comes in there is lost.
    fn clear_ingress(&mut self, tap: u32) -> io::Result<()> {
        match unless_gone(self.is_ingress_ours(tap))?.unwrap_or_default() {
            true => unless_gone(self.delete_ingress(tap)).map(drop),
            false => Ok(()),
        }
    }

    /// Whether a tap that was held is so no more; one that is not there comes back, or not.
    fn is_lost(&mut self, tap: &str, held: Held) -> bool {
        let Some(index) = self.indices.get(tap).copied() else { return false };
        if index != held.tap {
            return true;
        }
        let leads = unless_gone(self.are_filters_ours(index));
        // What cannot be told now is told the next time.
        leads.is_ok_and(|ours| !ours.unwrap_or_default().contains(&true))
            || self.has_shaper(held.device).is_ok_and(|has| !has)
    }

    fn set_filter(&mut self, tap: u32, device: u32) -> io::Result<()> {
        let filter = tc(tap, FILTER, HANDLE_INGRESS, filter_info()).word(TC_KIND, "u32");
        let request = filter.nest(TC_OPTIONS, all_to(device));
        // One that is there leads to this device from now on.
        self.socket.ask(kind::NEW_FILTER, flag::CREATE, &request).map(drop)
    }

    fn begin(&mut self, tap: &str, rate: u64) -> Result<(), HoldError> {
        let failed = |what| move |why| HoldError::Kernel { what, tap: tap.to_owned(), why };
        let link = Link::ask(&mut self.socket, tap).map_err(failed("find the interface"))?;
        let index = link.as_tap(tap)?;
        let mut left = self.device_of(tap).map_err(failed("look for the device"))?;
        // The tap was made anew, or its name was another's.
        if left.as_ref().is_some_and(|device| device.leads_from() != Some(index)) {
            self.end(tap)?;
            left = None;
        }
        let is_left = left.is_some();
        if !is_left {
            if self.is_anothers(tap).map_err(failed("look for the device"))? {
                return Err(HoldError::Others { tap: tap.to_owned() });
            }
            self.clear_ingress(index).map_err(failed("clear the ingress qdisc"))?;
        }
        // First: a qdisc without a device that says whose it is would be taken for another's.
        let device = match left {
            Some(device) => device.index,
            None => self.make_device(tap, index).map_err(failed("make the device"))?,
        };
        let made = match self.make_ingress(index) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            made => made.map(|()| true),
        };
        let ours = made.map(|made| made || is_left && self.is_ingress_ours(index).unwrap_or(false));
        if !is_left && !matches!(ours, Ok(true)) {
            drop(self.delete_device(device));
        }
        if !ours.map_err(failed("make the ingress qdisc"))? {
            return Err(HoldError::Others { tap: tap.to_owned() });
        }
        let done = self.lead_through(tap, index, device, rate);
        if done.is_err() {
            // As if nothing had been tried.
            drop(self.end(tap));
            drop(self.delete_ingress(index));
        }
        done.map_err(|(what, why)| failed(what)(why))
    }

    fn lead_through(
        &mut self,
        tap: &str,
        index: u32,
        device: u32,
        rate: u64,
    ) -> Result<(), (&'static str, io::Error)> {
        self.make_shaper(device).map_err(|e| ("make the shaper", e))?;
        self.set_rate(device, rate).map_err(|e| ("set the rate", e))?;
        self.set_filter(index, device).map_err(|e| ("set the filter", e))?;
        self.held.insert(tap.to_owned(), Held { tap: index, device });
        self.indices.insert(tap.to_owned(), index);
        Ok(())
    }

    /// Takes away all that is ours; a tap that is gone has taken its own along.
    fn end(&mut self, tap: &str) -> Result<(), HoldError> {
        self.held.remove(tap);
        let failed = |why| HoldError::Kernel { what: "look for the device", tap: tap.into(), why };
        let Some(device) = self.device_of(tap).map_err(failed)? else {
            let what = "look for the interface";
            let failed = |why| HoldError::Kernel { what, tap: tap.into(), why };
            if self.is_anothers(tap).map_err(failed)? {
                return Ok(());
            }
            let index = unless_gone(self.index(tap)).map_err(failed)?;
            return index.map_or(Ok(()), |index| self.clear_ingress(index)).map_err(failed);
        };
        let left = |what| {
            let (tap, device) = (tap.to_owned(), device.name.clone());
            move |why| HoldError::Left { what, tap, device, why }
        };
        let named = unless_gone(self.index(tap)).map_err(left("find the interface"))?;
        // The one that it leads from may have another name now; releases before this one kept the
        // device of a tap that was made anew.
        for index in device.leads_from().into_iter().chain(named) {
            let ours = unless_gone(self.is_ingress_ours(index));
            if ours.map_err(left("look at its filters"))? == Some(true) {
                let deleted = unless_gone(self.delete_ingress(index));
                deleted.map_err(left("remove the ingress qdisc"))?;
                break;
            }
        }
        unless_gone(self.delete_device(device.index)).map_err(left("remove the device"))?;
        Ok(())
    }
}

impl Device {
    /// The index of the interface that leads through it.
    fn leads_from(&self) -> Option<u32> {
        self.name.strip_prefix(DEVICE)?.parse().ok()
    }
}

/// A configuration's path, or the end of it.
fn instance_of(configuration: &Path) -> String {
    let path = configuration.to_string_lossy();
    let begin = path.len().saturating_sub(INSTANCE_BYTES);
    let begin = (begin..path.len()).find(|at| path.is_char_boundary(*at)).unwrap_or(0);
    path[begin..].to_owned()
}

fn alias(tap: &str, instance: &str) -> String {
    format!("{OURS}{tap}{BY}{instance}")
}

/// The tap of which an alias tells, if it is of that daemon.
fn tap_of<'a>(alias: &'a str, instance: &str) -> Option<&'a str> {
    // No name of an interface has a space.
    let rest = alias.strip_prefix(OURS)?;
    match rest.split_once(BY) {
        Some((tap, by)) => (by == instance).then_some(tap),
        // Earlier daemons wrote no name of theirs.
        None => Some(rest),
    }
}

/// The same, if it is of another daemon.
fn tap_of_another<'a>(alias: &'a str, instance: &str) -> Option<&'a str> {
    let (tap, by) = alias.strip_prefix(OURS)?.split_once(BY)?;
    (by != instance).then_some(tap)
}

impl Host for Kernel {
    fn received(&mut self, tap: &str) -> Result<Counter, Unseen> {
        if self.named.elapsed() >= NAMED {
            self.indices.clear();
            self.also.clear();
            self.looked_at.clear();
            self.named = Instant::now();
        }
        self.looked_at.insert(tap.to_owned());
        let known = self.indices.get(tap).copied();
        if let Some(counter) = known.and_then(|index| self.received_at(index).ok()) {
            return Ok(counter);
        }
        // A domain that starts again has another tap of the same name.
        self.indices.remove(tap);
        let index = self.index_of_tap(tap)?;
        self.indices.insert(tap.to_owned(), index);
        self.received_at(index).map_err(|_| Unseen::Missing { tap: tap.to_owned() })
    }

    fn also_named(&self, tap: &str) -> Vec<String> {
        self.also.get(tap).cloned().unwrap_or_default()
    }

    fn index_of(&mut self, interface: &str) -> Option<u32> {
        self.index(interface).ok()
    }

    fn hold(&mut self, Hold { tap, rate }: &Hold) -> Result<(), HoldError> {
        let Some(rate) = *rate else {
            return self.end(tap);
        };
        // Another rate is all that changes most of the time.
        let device = self.held.get(tap).map(|held| held.device);
        if device.is_some_and(|device| self.set_rate(device, rate).is_ok()) {
            return Ok(());
        }
        self.begin(tap, rate)
    }

    fn lost(&mut self) -> Vec<String> {
        let held: Vec<_> = self.held.iter().map(|(tap, held)| (tap.clone(), *held)).collect();
        let lost = held.into_iter().filter(|(tap, held)| {
            let is_renamed = self.is_renamed(held.tap, tap).unwrap_or(false);
            if is_renamed {
                // What cannot be taken away now is when the tap is held again, or let go.
                drop(self.clear_ingress(held.tap));
                drop(self.delete_device(held.device));
            }
            is_renamed || self.is_lost(tap, *held)
        });
        let lost: Vec<_> = lost.map(|(tap, _)| tap).collect();
        self.held.retain(|tap, _| !lost.contains(tap));
        lost
    }

    fn queue(&mut self, uplinks: &[Uplink]) -> Vec<Queued> {
        let indices = self.own_taps(uplinks);
        self.looked_at.clear();
        self.queues.set(uplinks, &indices)
    }

    fn unqueue(&mut self) -> Vec<Result<(), QueueError>> {
        self.queues.clear()
    }

    fn left_over(&mut self) -> io::Result<Vec<String>> {
        Ok(self.devices()?.into_iter().map(|device| device.tap).collect())
    }
}

/// What a rate makes of the shaper's class, and of its queue, in bytes.
fn shape_of(rate: u64) -> (htb::Class, u32) {
    const QUANTUM: u32 = 1 << 16;
    let rate = rate.max(1);
    let burst = (rate.saturating_mul(BURST_MS) / 1000).max(BURST_BYTES);
    // A packet that may go has room there, too.
    let queue = (rate.saturating_mul(QUEUE_MS) / 1000).max(2 * burst);
    let class = htb::Class { rate, most: rate, bursts: [burst; 2], quantum: QUANTUM };
    (class, u32::try_from(queue).unwrap_or(u32::MAX))
}

/// A u32 filter that matches all, and sends it out at a device.
fn all_to(device: u32) -> Writer {
    const ACTIONS: u16 = 7;
    const ACTION_KIND: u16 = 1;
    const ACTION_OPTIONS: u16 = 2;
    const MIRRED_PARAMETERS: u16 = 2;
    const STOLEN: u32 = 4;
    const EGRESS_REDIRECT: u32 = 1;
    // `struct tc_mirred`.
    let mirred = Writer::default().u32(0).u32(0).u32(STOLEN).u32(0).u32(0).u32(EGRESS_REDIRECT);
    let options = Writer::default().attribute(MIRRED_PARAMETERS, &mirred.u32(device).into_bytes());
    let action = Writer::default().word(ACTION_KIND, "mirred").nest(ACTION_OPTIONS, options);
    Writer::default()
        .attribute(U32_SELECTOR, &match_all())
        .nest(ACTIONS, Writer::default().nest(1, action))
}

#[cfg(test)]
mod tests {
    use rustix::thread::UnshareFlags;

    use super::*;
    use crate::tap::uplink::Part;

    /// Runs `ip` in this thread's own namespace; whether it worked.
    fn ip(words: &str) -> bool {
        let done = std::process::Command::new("ip").args(words.split(' ')).output();
        done.is_ok_and(|done| done.status.success())
    }

    fn counts_and_holds_only_at_what_is_a_vms_own() {
        let mut kernel = Kernel::new(Path::new("/a.toml")).expect("sockets");
        for (name, kind) in [("mv0", "macvtap"), ("mv1", "macvlan")] {
            if !ip(&format!("link add link up0 name {name} type {kind}")) {
                eprintln!("left out: no {kind} here");
                continue;
            }
            let backwards = Unseen::Backwards { tap: name.to_owned(), kind: kind.to_owned() };
            assert_eq!(kernel.received(name), Err(backwards.clone()));
            let refused = kernel.hold(&Hold { tap: name.to_owned(), rate: Some(1_000_000) });
            assert_eq!(refused.expect_err("not what it sends").to_string(), backwards.to_string());
        }
        let part = Part { rate: 1_000_000, most: 2_000_000, quantum: 1600 };
        let taps = ["mv0", "mv1", "tap1", "also1", "tap2", "up0", "gone0"];
        let vms = taps.map(|tap| (tap.to_owned(), part)).into();
        let (interface, elsewhere) = ("also0".to_owned(), BTreeSet::new());
        let mut uplink = Uplink { interface, rate: 1, vms, rest: part, elsewhere };
        let mut own = |uplink: &Uplink| -> Vec<String> {
            kernel.own_taps(std::slice::from_ref(uplink)).into_keys().collect()
        };
        assert_eq!(own(&uplink), ["tap2"], "by whichever of its names");
        uplink.vms.remove("also1");
        assert_eq!(own(&uplink), ["tap1", "tap2"]);
        uplink.elsewhere.insert("also1".to_owned());
        assert_eq!(own(&uplink), ["tap2"], "nor one of a VM that has no queue");
    }

    #[test]
    fn a_tap_is_what_counts_what_one_vm_sends() {
        std::thread::spawn(|| {
            // SAFETY: only this thread leaves its network namespace, and shares no files by that.
            let alone = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
            let made =
                ["up0", "tap1", "tap2"].map(|name| ip(&format!("link add {name} type veth")));
            let named = [("up0", "also0"), ("tap1", "also1")]
                .map(|(name, also)| ip(&format!("link property add dev {name} altname {also}")));
            if alone.is_err() || made.contains(&false) || named.contains(&false) {
                eprintln!("left out: no namespaces here, or interfaces have one name");
                return;
            }
            counts_and_holds_only_at_what_is_a_vms_own();
        })
        .join()
        .expect("no fault");
    }

    #[test]
    fn an_alias_tells_which_daemon_holds_which_tap() {
        let told = alias("vnet0", "/etc/ccc/a.toml");
        assert_eq!(told, "ccc-vhost holds vnet0 by /etc/ccc/a.toml");
        assert_eq!(tap_of(&told, "/etc/ccc/a.toml"), Some("vnet0"));
        assert_eq!(tap_of(&told, "/etc/ccc/b.toml"), None, "another daemon's");
        assert_eq!(tap_of_another(&told, "/etc/ccc/b.toml"), Some("vnet0"));
        assert_eq!(tap_of_another(&told, "/etc/ccc/a.toml"), None);
        assert_eq!(tap_of("somebody's", "/etc/ccc/a.toml"), None);
        assert_eq!(tap_of("ccc-vhost holds vnet0", "/etc/ccc/a.toml"), Some("vnet0"), "of before");
        let long = instance_of(Path::new(&format!("/{}/a.toml", "ä".repeat(100))));
        assert!(long.len() <= INSTANCE_BYTES && long.ends_with("/a.toml"), "{long}");
    }
}
