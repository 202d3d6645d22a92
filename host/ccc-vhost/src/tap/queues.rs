// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queues of VMs at uplinks of this host, by its kernel: HTB with a class for each VM.
//!
//! A packet belongs to the VM by whose tap it has come into the host: a bridge, or a route,
//! leaves that with it (`skb->skb_iif`), and a filter at the uplink asks for it (`indev`).  So
//! nothing is needed at taps, where somebody else's ingress qdisc or our shaper may be, and no
//! bits of the mark, which firewalls use; a class in `skb->priority` would be lost in routing.
//! All there is hangs below one root qdisc, and goes with it.  Its handle and the tag that it keeps
//! for us say that it is this daemon's: the next one of the same configuration takes away what that
//! has left when it was killed.
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    host::{Leaf, Made, QueueError, Queued},
    htb::{self, HTB},
    link::Link,
    netlink::{Socket, Writer, attributes, flag, kind, u32_at},
    requests::{
        ATTRIBUTE_NAME, LINK_BYTES, PARENT_ROOT, TC_BYTES, TC_KIND, TC_OPTIONS, U32_SELECTOR,
        filter_info, match_all, tc, unless_gone, word,
    },
    uplink::{Part, Uplink},
};

/// A qdisc that has a queue for each flow, and what is there once the kernel has loaded it.
const FQ_CODEL: Discipline = Discipline { kind: "fq_codel", module: "/sys/module/sch_fq_codel" };
/// Minor number of the class of all, of the class of what is no VM's, and of VMs: as many as a
/// table of u32 has filters, whose numbers are the same.
const ALL: u32 = 0xffff;
const REST: u32 = 1;
const VMS: std::ops::RangeInclusive<u32> = 2..=0xfff;
/// The first table of filters of a qdisc.
const TABLE: u32 = 0x8000_0000;
/// Where a filter leads, and for what: `TCA_U32_CLASSID` and `_INDEV`.
const CLASS: u16 = 1;
const COME_IN_AT: u16 = 8;
/// What leads to classes is looked at so often: to tell of hundreds takes the kernel a while.
const LOOK_AT_FILTERS: Duration = Duration::from_secs(1);
/// It is there once the kernel has loaded its filters, if they are a module.
const FILTERS: &str = "/sys/module/cls_u32";
/// What may fail for a reason that has a name of its own.
const FIND: &str = "find the interface";
const SET_FILTER: &str = "set the filter";
const SET_LEAF: &str = "make the queue of a VM";
/// What may go at once, in time at its rate, and its least: a frame.
const BURST_US: u64 = 2000;
const BURST_BYTES: u64 = 1600;

/// A queueing discipline of the kernel's.
#[derive(Clone, Copy, Debug)]
struct Discipline {
    kind: &'static str,
    module: &'static str,
}

/// What failed, and why.
type Failure = (&'static str, io::Error);

/// The kernel's queues at uplinks.
#[derive(Debug)]
pub struct Queues {
    socket: Socket,
    /// Of our root qdiscs.
    handle: u32,
    /// There are few handles: another daemon's may be the same, and hardly the tag, too.
    tag: u16,
    /// What an earlier daemon has left was looked for.
    is_swept: bool,
    /// The kernel had no filters when they were needed.
    lacks_filters: bool,
    /// What waits in the class of a VM, where the kernel has it.
    discipline: Discipline,
    there: BTreeMap<String, Tree>,
}

/// The queues of an uplink.
#[derive(Debug)]
struct Tree {
    /// The interface's index.
    index: u32,
    /// Rate of all.
    rate: Option<u64>,
    rest: Option<Part>,
    vms: BTreeMap<String, Branch>,
    leaf: Leaf,
    /// Classes of which somebody has taken away what waits in them, or in which it could not be made.
    leafless: BTreeSet<u32>,
    /// Why it could not, of the first of those.
    fault: Option<io::Error>,
    /// When it was last seen what leads to classes.
    filters_seen: Instant,
    /// It was told that there are more VMs than classes.
    is_full: bool,
}

/// The queue of a VM.
#[derive(Clone, Copy, Debug)]
struct Branch {
    /// Minor number of its class.
    minor: u32,
    /// As it is in force.
    part: Part,
    /// Index of the tap whose packets come here, if it is there.
    tap: Option<u32>,
}

impl Queues {
    /// Those in this process's network namespace, of a daemon of this name.
    pub fn new(instance: &str) -> io::Result<Queues> {
        let (handle, tag) = identity_of(instance);
        Ok(Queues {
            socket: Socket::open()?,
            handle,
            tag,
            is_swept: false,
            lacks_filters: false,
            discipline: FQ_CODEL,
            there: BTreeMap::new(),
        })
    }

    /// Makes the queues of these uplinks as they are to be, and takes away all others; `taps` are
    /// the indices of those that are there.
    pub fn set(&mut self, wanted: &[Uplink], taps: &BTreeMap<String, u32>) -> Vec<Queued> {
        for fault in self.sweep().into_iter().filter_map(Result::err) {
            log::warn!("{fault}");
        }
        let is_wanted = |name: &String| wanted.iter().any(|uplink| uplink.interface == *name);
        let gone: Vec<String> =
            self.there.keys().filter(|name| !is_wanted(name)).cloned().collect();
        gone.iter().for_each(|name| self.end(name));
        let follow = |uplink: &Uplink| {
            let outcome = self.follow(uplink, taps);
            if outcome.is_err() {
                // As if nothing had been tried.
                self.end(&uplink.interface);
            }
            Queued { uplink: uplink.interface.clone(), outcome }
        };
        wanted.iter().map(follow).collect()
    }

    /// Takes away all of ours, wherever it is; what came of each that was there.
    pub fn clear(&mut self) -> Vec<Result<(), QueueError>> {
        for tree in std::mem::take(&mut self.there).into_values() {
            // What is left is found below.
            drop(self.delete_root(tree.index));
        }
        self.is_swept = false;
        self.sweep()
    }

    /// Takes away what an earlier daemon has left; what came of each.
    fn sweep(&mut self) -> Vec<Result<(), QueueError>> {
        if self.is_swept {
            return Vec::new();
        }
        let all = match self.socket.ask(kind::GET_QDISC, flag::DUMP, &tc(0, 0, 0, 0)) {
            Ok(all) => all,
            Err(why) => {
                let what = "look for queues at uplinks".to_owned();
                return vec![Err(QueueError::Left { what, why })];
            }
        };
        self.is_swept = true;
        let (handle, tag) = (self.handle, self.tag);
        let is_ours = |body: &&Vec<u8>| {
            u32_at(body, 8) == Some(handle) && is_root_htb(body) && tag_of(body) == Some(tag)
        };
        let ours = all.iter().filter(is_ours).filter_map(|body| u32_at(body, 4));
        let indices: Vec<u32> = ours.collect();
        indices.into_iter().map(|index| self.sweep_one(index)).collect()
    }

    fn sweep_one(&mut self, index: u32) -> Result<(), QueueError> {
        self.delete_root(index).map_err(|why| {
            let what = format!("remove the queues that are left at interface {index}");
            QueueError::Left { what, why }
        })?;
        log::info!("queues that an earlier daemon has left at an uplink are gone");
        Ok(())
    }

    fn follow(
        &mut self,
        wanted: &Uplink,
        taps: &BTreeMap<String, u32>,
    ) -> Result<Made, QueueError> {
        let uplink = &wanted.interface;
        let failed = |failure| error_of(uplink, failure);
        let link = self.link(uplink).map_err(|e| failed((FIND, e)))?;
        let index = index_of(&link).map_err(|e| failed((FIND, e)))?;
        if Link::told(&link).is_ok_and(|link| link.is_bridge()) {
            return Err(QueueError::Bridge { uplink: uplink.clone() });
        }
        let before = self.there.remove(uplink);
        if let Some(tree) = before.as_ref().filter(|tree| tree.index != index) {
            // Another interface has its name now; that one may be there, too.
            self.delete_root(tree.index).map_err(|e| failed(("remove our queues that were", e)))?;
        }
        let mut before = before.filter(|tree| tree.index == index);
        before = before.and_then(|tree| self.still_there(tree));
        let mut tree = before.map_or_else(|| self.begin(uplink, index), Ok)?;
        // Before a class goes with its VM: what cannot be made in one that is not there is no fault.
        let mended = self.mend(&mut tree);
        let done = self.update(&mut tree, wanted, taps);
        let absent = wanted.vms.keys().filter(|tap| !taps.contains_key(*tap)).cloned().collect();
        let fault = tree.fault.take().map(|why| failed((SET_LEAF, why)).to_string());
        let made = Made { vms: tree.led(taps), absent, leaf: tree.leaf, fault, mended };
        self.there.insert(uplink.clone(), tree);
        let done = done.map(|()| made).map_err(failed);
        self.lacks_filters |= matches!(done, Err(QueueError::NoFilters));
        done
    }

    /// What the kernel tells of an interface.
    fn link(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let request = Writer::default().put(&[0; LINK_BYTES]).word(ATTRIBUTE_NAME, name);
        let answer = self.socket.ask(kind::GET_LINK, 0, &request)?;
        answer.into_iter().next().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// A tree without what somebody has taken away of it, so that this is made anew; none where no queues
    /// of ours are: somebody else's may be HTB's, too.  The kernel tells of a class whose it is; of a
    /// qdisc only with those of all interfaces.  What it cannot tell now it tells the next time.
    fn still_there(&mut self, mut tree: Tree) -> Option<Tree> {
        let ours = tc(tree.index, 0, self.handle, 0);
        let Ok(classes) = self.socket.ask(kind::GET_CLASS, flag::DUMP, &ours) else {
            return Some(tree);
        };
        if classes.is_empty() {
            return None;
        }
        tree.forget_classes(&classes.iter().filter_map(|body| leaf_of(body)).collect());
        if tree.filters_seen.elapsed() >= LOOK_AT_FILTERS {
            tree.filters_seen = Instant::now();
            if let Ok(filters) = self.socket.ask(kind::GET_FILTER, flag::DUMP, &ours) {
                self.forget_filters(&mut tree, &filters);
            }
        }
        Some(tree)
    }

    /// The same of what leads to VMs' classes.
    fn forget_filters(&mut self, tree: &mut Tree, filters: &[Vec<u8>]) {
        let led: BTreeMap<u32, &str> = filters.iter().filter_map(|body| led_to(body)).collect();
        for (tap, branch) in &mut tree.vms {
            let come_in_at = led.get(&(self.handle | branch.minor));
            // The kernel has its first name, where an operator may have named another.
            let is_tap = |name: &&&str| {
                **name == tap.as_str()
                    || self.link(name).and_then(|l| index_of(&l)).ok() == branch.tap
            };
            if come_in_at.filter(is_tap).is_none() {
                branch.tap = None;
            }
        }
    }

    /// A root qdisc of ours in place of the kernel's own, and of nobody else's.
    fn begin(&mut self, uplink: &str, index: u32) -> Result<Tree, QueueError> {
        // To find out again would take away what waits there, each time.
        if self.lacks_filters && !Path::new(FILTERS).exists() {
            return Err(QueueError::NoFilters);
        }
        let qdisc = tc(index, self.handle, PARENT_ROOT, 0).word(TC_KIND, HTB);
        let request = qdisc.nest(TC_OPTIONS, htb::tree(u32::from(self.tag) << 16 | REST));
        match self.socket.ask(kind::NEW_QDISC, flag::CREATE | flag::EXCLUSIVE, &request) {
            Ok(_) => Ok(Tree {
                index,
                rate: None,
                rest: None,
                vms: BTreeMap::new(),
                leaf: Leaf::FairQueues,
                leafless: BTreeSet::new(),
                fault: None,
                filters_seen: Instant::now(),
                is_full: false,
            }),
            Err(why) => Err(match why.raw_os_error() {
                Some(libc::EEXIST) => self.whose(uplink.to_owned(), index),
                Some(libc::ENOENT) => QueueError::NoHtb,
                _ => error_of(uplink, ("make the root qdisc", why)),
            }),
        }
    }

    /// Whose root qdisc is there already.
    fn whose(&mut self, uplink: String, index: u32) -> QueueError {
        let ours = self.there.iter().find(|(_, tree)| tree.index == index);
        if let Some((other, _)) = ours {
            return QueueError::AnotherGroups { uplink, other: other.clone() };
        }
        if self.is_a_daemons(index) {
            QueueError::AnotherDaemons { uplink }
        } else {
            QueueError::Others { uplink }
        }
    }

    /// Whether the root qdisc there is such as daemons make.
    fn is_a_daemons(&mut self, index: u32) -> bool {
        let all = self.socket.ask(kind::GET_QDISC, flag::DUMP, &tc(0, 0, 0, 0));
        let is = |body: &Vec<u8>| {
            let is_there = u32_at(body, 4) == Some(index) && is_root_htb(body);
            is_there && u32_at(body, 8).is_some_and(|handle| HANDLES.contains(&(handle >> 16)))
        };
        all.unwrap_or_default().iter().any(is)
    }

    fn update(
        &mut self,
        tree: &mut Tree,
        wanted: &Uplink,
        taps: &BTreeMap<String, u32>,
    ) -> Result<(), Failure> {
        let gone = tree.vms.iter().filter(|(tap, _)| !wanted.vms.contains_key(*tap));
        for (tap, branch) in gone.map(|(tap, branch)| (tap.clone(), *branch)).collect::<Vec<_>>() {
            self.remove(tree.index, &branch).map_err(|e| ("remove the class of a VM", e))?;
            tree.vms.remove(&tap);
        }
        let failed = |e| ("set the rate", e);
        if tree.rate != Some(wanted.rate) {
            let all = Part { rate: wanted.rate, most: wanted.rate, quantum: wanted.rest.quantum };
            self.set_class(tree.index, 0, ALL, &all).map_err(failed)?;
            tree.rate = Some(wanted.rate);
        }
        if tree.rest != Some(wanted.rest) {
            self.set_class(tree.index, ALL, REST, &wanted.rest).map_err(failed)?;
            if tree.rest.is_none() {
                self.set_leaf(tree, REST);
            }
            tree.rest = Some(wanted.rest);
        }
        for (tap, part) in &wanted.vms {
            self.update_vm(tree, tap, *part, taps.get(tap).copied())?;
        }
        if tree.leaf == Leaf::Fifo && Path::new(self.discipline.module).exists() {
            self.replace_leaves(tree);
        }
        Ok(())
    }

    /// Makes anew what waits in classes where it lacks; in how many.
    fn mend(&mut self, tree: &mut Tree) -> usize {
        let lacking = std::mem::take(&mut tree.leafless);
        lacking.iter().for_each(|minor| self.set_leaf(tree, *minor));
        match tree.leaf {
            Leaf::FairQueues => lacking.difference(&tree.leafless).count(),
            Leaf::Fifo => 0,
        }
    }

    /// The kernel has loaded meanwhile what it lacked when the classes were made.
    fn replace_leaves(&mut self, tree: &mut Tree) {
        tree.leaf = Leaf::FairQueues;
        let of_vms: Vec<u32> = tree.vms.values().map(|branch| branch.minor).collect();
        of_vms.into_iter().chain([REST]).for_each(|minor| self.set_leaf(tree, minor));
    }

    fn update_vm(
        &mut self,
        tree: &mut Tree,
        tap: &str,
        part: Part,
        index: Option<u32>,
    ) -> Result<(), Failure> {
        let before = tree.vms.get(tap).copied();
        // More VMs than there are filters share the class of all else.
        let Some(minor) = before.map_or_else(|| tree.free(), |before| Some(before.minor)) else {
            tree.tell_full(tap);
            return Ok(());
        };
        if before.is_none_or(|before| before.part != part) {
            self.set_class(tree.index, ALL, minor, &part).map_err(|e| ("set the rate", e))?;
        }
        let mut branch = Branch { minor, part, tap: before.and_then(|before| before.tap) };
        tree.vms.insert(tap.to_owned(), branch);
        if before.is_none() {
            self.set_leaf(tree, minor);
        }
        if index.is_some() && branch.tap != index {
            match self.set_filter(tree.index, minor, tap) {
                // A tap that has gone just now is looked for the next time.
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {}
                set => {
                    set.map_err(|e| (SET_FILTER, e))?;
                    branch.tap = index;
                    tree.vms.insert(tap.to_owned(), branch);
                }
            }
        }
        Ok(())
    }

    fn set_class(&mut self, index: u32, above: u32, minor: u32, part: &Part) -> io::Result<()> {
        let (parent, class) = (self.handle | above, self.handle | minor);
        let request = tc(index, class, parent, 0).word(TC_KIND, HTB);
        let request = request.nest(TC_OPTIONS, class_of(part).options());
        self.socket.ask(kind::NEW_CLASS, flag::CREATE, &request).map(drop)
    }

    /// What waits in a class: a kernel without `fq_codel` leaves it a FIFO.  Where it cannot be made the
    /// kernel's own does, which is no reason to take all others away: it is tried again at the next look.
    fn set_leaf(&mut self, tree: &mut Tree, minor: u32) {
        if tree.leaf == Leaf::Fifo {
            return;
        }
        let qdisc = tc(tree.index, 0, self.handle | minor, 0);
        let request = qdisc.word(TC_KIND, self.discipline.kind);
        let Err(why) = self.socket.ask(kind::NEW_QDISC, flag::CREATE, &request) else { return };
        // The kernel says the same of a class that has gone just now.
        if why.raw_os_error() == Some(libc::ENOENT) && self.has_class(tree.index, minor) {
            tree.leaf = Leaf::Fifo;
            return;
        }
        tree.leafless.insert(minor);
        tree.fault.get_or_insert(why);
    }

    fn has_class(&mut self, index: u32, minor: u32) -> bool {
        let class = tc(index, self.handle | minor, 0, 0);
        self.socket.ask(kind::GET_CLASS, 0, &class).is_ok()
    }

    /// What has come in at a tap goes to a class; another tap's before does so no more.
    fn set_filter(&mut self, index: u32, minor: u32, tap: &str) -> io::Result<()> {
        let filter = tc(index, TABLE | minor, self.handle, filter_info()).word(TC_KIND, "u32");
        let options = Writer::default()
            .attribute(CLASS, &(self.handle | minor).to_ne_bytes())
            .attribute(U32_SELECTOR, &match_all())
            .word(COME_IN_AT, tap);
        let request = filter.nest(TC_OPTIONS, options);
        self.socket.ask(kind::NEW_FILTER, flag::CREATE, &request).map(drop)
    }

    /// A class goes only after what leads to it, which may be there without its tap.
    fn remove(&mut self, index: u32, branch: &Branch) -> io::Result<()> {
        let filter = tc(index, TABLE | branch.minor, self.handle, filter_info());
        let request = filter.word(TC_KIND, "u32");
        unless_gone(self.socket.ask(kind::DELETE_FILTER, 0, &request))?;
        let class = tc(index, self.handle | branch.minor, self.handle, 0);
        unless_gone(self.socket.ask(kind::DELETE_CLASS, 0, &class)).map(drop)
    }

    /// Takes away all of ours at an uplink, if that is there.
    fn end(&mut self, uplink: &str) {
        let Some(tree) = self.there.remove(uplink) else { return };
        if let Err(why) = self.delete_root(tree.index) {
            log::warn!(
                "cannot remove the queues of VMs at {uplink}: {why}; by hand: tc qdisc del dev \
                 {uplink} root"
            );
        }
    }

    /// The handle makes sure that it is ours.
    fn delete_root(&mut self, index: u32) -> io::Result<()> {
        let request = tc(index, self.handle, PARENT_ROOT, 0);
        unless_gone(self.socket.ask(kind::DELETE_QDISC, 0, &request)).map(drop)
    }
}

impl Tree {
    /// Forgets what has no class any more, and what waits in none but the kernel's own, of these classes
    /// and the handles of what waits in them.
    fn forget_classes(&mut self, leaves: &BTreeMap<u32, u32>) {
        self.vms.retain(|_, branch| leaves.contains_key(&branch.minor));
        self.rest = self.rest.filter(|_| leaves.contains_key(&REST));
        let minors = self.vms.values().map(|branch| branch.minor);
        let minors = minors.chain(self.rest.map(|_| REST));
        // Without `fq_codel` it is to be the kernel's own, which has no handle.
        let is_gone = |minor: &u32| self.leaf == Leaf::FairQueues && leaves[minor] == 0;
        self.leafless = minors.filter(is_gone).collect();
    }

    /// So many VMs have a queue: their taps are there, and what comes in at them is led to it.
    fn led(&self, taps: &BTreeMap<String, u32>) -> usize {
        let is_led = |(tap, branch): &(&String, &Branch)| {
            branch.tap.is_some() && branch.tap == taps.get(*tap).copied()
        };
        self.vms.iter().filter(is_led).count()
    }

    /// Minor number of no class yet.
    fn free(&self) -> Option<u32> {
        let taken: BTreeSet<u32> = self.vms.values().map(|branch| branch.minor).collect();
        VMS.into_iter().find(|minor| !taken.contains(minor))
    }

    /// Says once that a VM has no class of its own.
    fn tell_full(&mut self, tap: &str) {
        if !std::mem::replace(&mut self.is_full, true) {
            let most = self.vms.len();
            log::warn!(
                "an uplink has queues for {most} VMs and no more: that of tap {tap}, and others beyond \
                 that, wait with all that is no VM's"
            );
        }
    }
}

/// Minor number of a class that is told of, and the handle of what waits in it.
fn leaf_of(class: &[u8]) -> Option<(u32, u32)> {
    Some((u32_at(class, 8)? & 0xffff, u32_at(class, 16)?))
}

/// Major numbers of daemons' root qdiscs, below those that the kernel chooses by itself.
const HANDLES: std::ops::Range<u32> = 0x7000..0x8000;

/// The handle of a configuration's root qdiscs, and their tag
/// (FNV-1a, which is the same in all releases).
fn identity_of(instance: &str) -> (u32, u16) {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = instance.bytes().fold(0x811c_9dc5, step);
    ((HANDLES.start | hash >> 20) << 16, (hash & 0xffff) as u16)
}

/// The tag of a qdisc that is told of: HTB keeps all of the class for the rest (`defcls`), and looks
/// at the minor number alone.
fn tag_of(qdisc: &[u8]) -> Option<u16> {
    const DEFAULT_CLASS: usize = 8;
    let options = attributes(qdisc.get(TC_BYTES..)?).find(|(kind, _)| *kind == TC_OPTIONS)?.1;
    let (_, tree) = attributes(options).find(|(kind, _)| *kind == htb::INIT)?;
    Some((u32_at(tree, DEFAULT_CLASS)? >> 16) as u16)
}

/// The index of an interface that is told of.
fn index_of(link: &[u8]) -> io::Result<u32> {
    u32_at(link, 4).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// To which class a filter that is told of leads, and what comes in where.
fn led_to(filter: &[u8]) -> Option<(u32, &str)> {
    let find = |all, wanted| attributes(all).find(|(kind, _)| *kind == wanted).map(|(_, is)| is);
    let options = find(filter.get(TC_BYTES..)?, TC_OPTIONS)?;
    let tap = std::str::from_utf8(find(options, COME_IN_AT)?).ok()?;
    Some((u32_at(find(options, CLASS)?, 0)?, tap.trim_end_matches('\0')))
}

/// Whether a qdisc that is told of is an interface's root, and HTB.
fn is_root_htb(body: &[u8]) -> bool {
    // The attributes of a link begin elsewhere.
    let kind = body.get(TC_BYTES - LINK_BYTES..).and_then(|body| word(body, TC_KIND));
    u32_at(body, 12) == Some(PARENT_ROOT) && kind == Some(HTB)
}

/// What failed, in words that say what to do.
fn error_of(uplink: &str, (what, why): Failure) -> QueueError {
    let uplink = uplink.to_owned();
    match (what, why.raw_os_error()) {
        (FIND, Some(libc::ENODEV)) => QueueError::NoInterface { uplink },
        (SET_FILTER, Some(libc::ENOENT)) => QueueError::NoFilters,
        _ => QueueError::Kernel { what, uplink, why },
    }
}

/// What the class of a part may send.
fn class_of(part: &Part) -> htb::Class {
    let burst = |rate: u64| (rate.saturating_mul(BURST_US) / 1_000_000).max(BURST_BYTES);
    let Part { rate, most, quantum } = *part;
    htb::Class { rate, most, bursts: [burst(rate), burst(most)], quantum }
}

#[cfg(test)]
mod tests;
