// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The tenants of this machine: each has a table in the program, a place by which the program
//! finds it, and a way to the daemon.
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use ccc_proto::wire::Doorbell;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use log::Level;

use crate::{
    back_off::BackOff,
    front::Front,
    front_end::FrontEnd,
    lent::Lent,
    log_limit::Limited,
    places::{Found, Place},
    placing::{Owners, Placing},
    program::{self, Program},
    remote::{Address, Remote},
    round::{self, Tended},
    serve,
    table::Table,
    watch::{Changed, Watch},
    watchdog::Watchdog,
};

/// Where the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// On this machine: where it listens for the tenant.
    Here(PathBuf),
    /// Behind a relay, as a rule on this guest's host.
    Relay(Address),
}

impl Daemon {
    fn connect(&self, table: &Lent, now_us: u64) -> Result<Box<dyn Front>> {
        Ok(match self {
            Daemon::Here(socket) => Box::new(FrontEnd::connect(socket, table, now_us)?),
            Daemon::Relay(address) => Box::new(Remote::connect(address, table, now_us)?),
        })
    }
}

/// A tenant as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What of this machine it is.
    pub place: Place,
    /// Where its daemon is.
    pub daemon: Daemon,
}

/// A tenant as it is.
#[derive(Debug)]
struct Served {
    table: Table,
    /// Where its daemon is, once somebody has said so.
    daemon: Option<Daemon>,
    placing: Placing,
    front: Option<Box<dyn Front>>,
    back_off: BackOff,
    /// What whoever is connected to can have said.
    said: Limited,
    /// What went wrong last, which is said once.
    told: Option<String>,
}

/// All of them, by their names.
#[derive(Debug)]
pub struct Tenants {
    program: Program,
    cgroup_root: PathBuf,
    tenants: BTreeMap<String, Served>,
    names: BTreeMap<u32, String>,
    /// Of tenants that are no more, but that the program could not be told to forget.
    leaving: Vec<Placing>,
    watch: Watch,
    /// Of tenants that have no table.
    said: Limited,
    /// Who has the first turn to connect.
    first: usize,
}

impl Tenants {
    /// Those that an earlier one of us has left.
    pub fn new(program: Program, cgroup_root: PathBuf) -> Result<Tenants> {
        let left = Table::left(&program.tables)?;
        let mut places = places_of(&program, &left)?;
        let mut tenants = Tenants {
            program,
            cgroup_root,
            tenants: BTreeMap::new(),
            names: BTreeMap::new(),
            leaving: Vec::new(),
            watch: Watch::new(),
            said: Limited::default(),
            first: 0,
        };
        for (name, table) in left {
            log::info!("tenant {name}: has table {} of before", table.number);
            let found = places.remove(&table.number);
            tenants.insert(name, table, found);
        }
        Ok(tenants)
    }

    /// What tells that places may be others.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Makes sure that new connections of the tenants are coupled.
    pub fn check_pinned(&self) -> Result<()> {
        self.program.check_pinned()
    }

    /// Where the program's messages are.
    pub fn messages(&self) -> Result<MapHandle> {
        Ok(MapHandle::try_from(&self.program.messages)?)
    }

    fn insert(&mut self, name: String, table: Table, found: Option<Found>) {
        self.names.insert(table.number, name.clone());
        let tenant = Served {
            placing: Placing::new(name.clone(), table.number, found),
            table,
            daemon: None,
            front: None,
            back_off: BackOff::default(),
            said: Limited::default(),
            told: None,
        };
        self.tenants.insert(name, tenant);
    }

    /// Has these tenants and no others.
    pub fn follow(&mut self, wanted: Vec<Tenant>) {
        let (names, program) = (&mut self.names, &self.program);
        self.leaving.retain_mut(|placing| release(names, placing, program).is_err());
        self.watch_parents(wanted.iter().map(|tenant| &tenant.place));
        let known = self.tenants.iter().map(|(name, tenant)| (name, &tenant.placing));
        for name in gone(known, &wanted, |place| place.find(&self.cgroup_root)) {
            self.remove(&name);
        }
        for wanted in wanted {
            let name = wanted.name.clone();
            if !self.tenants.contains_key(&name) {
                match self.create(&name) {
                    Ok(table) => self.insert(name.clone(), table, None),
                    Err(error) => {
                        self.said.say(Level::Error, format_args!("tenant {name}: {error:#}"));
                        continue;
                    }
                }
            }
            if let Some(tenant) = self.tenants.get_mut(&name) {
                tenant.follow(&self.program, &self.cgroup_root, wanted);
            }
        }
    }

    fn create(&self, name: &str) -> Result<Table> {
        let free = (0..self.program.tables.tenants).find(|n| !self.names.contains_key(n));
        let most = self.program.tables.tenants;
        let number =
            free.with_context(|| format!("there are {most} tenants, and no more can be"))?;
        let table = Table::create(&self.program.tables, number, name)?;
        log::info!("tenant {name}: has table {number}");
        Ok(table)
    }

    fn remove(&mut self, name: &str) {
        let Some(Served { mut placing, table, .. }) = self.tenants.remove(name) else { return };
        let left = release(&mut self.names, &mut placing, &self.program);
        if left.is_err() {
            self.leaving.push(placing);
        }
        if let Err(error) = left.and(table.remove(&self.program.tables)) {
            log::error!("tenant {name}: cannot be removed from the program: {error:#}");
        }
        log::info!("tenant {name}: removed; its flows go on alone");
    }

    /// Looks for places of these kinds that are there no more, or are there again; each namespace
    /// takes a thread that enters it.
    pub fn look(&mut self, kinds: Changed) {
        self.program.alone.look();
        let wanted = |tenant: &Served| tenant.placing.wanted().cloned();
        let known: Vec<Place> = self.tenants.values().filter_map(wanted).collect();
        self.watch_parents(known.iter());
        for tenant in self.tenants.values_mut() {
            if kinds.has(tenant.placing.wanted()) || tenant.placing.is_waiting() {
                tenant.placing.look(&self.program, |place| place.find(&self.cgroup_root));
            }
        }
    }

    /// Before it is looked there: what is made meanwhile is told.
    fn watch_parents<'a>(&mut self, places: impl Iterator<Item = &'a Place>) {
        let parents = places.flat_map(|place| place.parents(&self.cgroup_root)).collect();
        self.watch.follow(&parents);
    }

    /// Passes a message of the program on.
    pub fn send(&mut self, now_us: u64, number: u32, message: &Doorbell) {
        let name = self.names.get(&number);
        let tenant = name.and_then(|name| self.tenants.get_mut(name));
        if let Some(Served { front: Some(front), table, .. }) = tenant {
            front.send(now_us, table.lent(), message);
        }
    }

    /// What is readable when something comes.
    pub fn wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tenants.values().filter_map(|tenant| tenant.front.as_ref()?.wakes())
    }

    /// Takes what has come, from those that do not write into the tables themselves.
    pub fn receive(&mut self, now_us: u64) {
        let fronts = self.tenants.iter_mut().filter(|(_, tenant)| {
            tenant.front.as_ref().is_some_and(|front| front.wakes().is_some())
        });
        fronts.for_each(|(name, tenant)| tenant.receive(name, now_us));
    }

    /// Tells the daemon of what was passed on.
    pub fn flush(&mut self, numbers: &BTreeSet<u32>) {
        for number in numbers {
            let name = self.names.get(number);
            let tenant = name.and_then(|name| self.tenants.get_mut(name));
            if let Some(front) = tenant.and_then(|tenant| tenant.front.as_mut()) {
                front.flush();
            }
        }
    }

    /// Connects whoever is not connected, and says until when grants hold.
    pub fn tend(&mut self, watchdog: &mut Watchdog) {
        let mut all: Vec<_> = self.tenants.iter_mut().collect();
        round::tend(&mut all, &mut self.first, serve::now_us, || watchdog.turn(serve::now_us()));
    }

    /// Grants hold no longer: this process ends.
    pub fn end(&mut self) {
        self.tenants.values().for_each(|tenant| tenant.table.lease(0));
    }
}

impl Served {
    /// It is to be so from now on.
    fn follow(&mut self, program: &Program, cgroup_root: &Path, wanted: Tenant) {
        let find = |place: &Place| place.find(cgroup_root);
        self.placing.follow(program, &wanted.place, find);
        if self.daemon.as_ref() != Some(&wanted.daemon) {
            self.front = None;
        }
        self.daemon = Some(wanted.daemon);
    }

    fn receive(&mut self, name: &str, now_us: u64) {
        let Some(front) = &mut self.front else { return };
        if let Err(error) = front.receive(now_us, self.table.lent()) {
            let what = format_args!("tenant {name}: {error:#}; its flows go on alone");
            self.said.say(Level::Warn, what);
            self.table.lease(0);
            self.front = None;
            self.back_off.ended(now_us);
        }
    }

    /// Whether it has tried.
    fn connect(&mut self, name: &str, now_us: u64) -> bool {
        if self.front.is_some() || !self.placing.is_placed() || !self.back_off.is_over(now_us) {
            return false;
        }
        let Some(daemon) = &self.daemon else { return false };
        match daemon.connect(self.table.lent(), now_us) {
            Ok(front) => {
                self.said.say(Level::Info, format_args!("tenant {name}: connected"));
                (self.front, self.told) = (Some(front), None);
            }
            Err(error) => {
                let said = format!("{error:#}");
                if self.told.as_ref() != Some(&said) {
                    let what = format_args!("tenant {name}: cannot connect to the daemon: {said}");
                    self.said.say(Level::Warn, what);
                }
                self.told = Some(said);
            }
        }
        true
    }

    fn renew(&mut self, name: &str, now_us: u64) {
        self.receive(name, now_us);
        let Some(front) = &mut self.front else { return };
        if self.table.take_lost() {
            front.rescan(now_us, self.table.lent());
        }
        front.flush();
        let until_us = front.lease(now_us);
        let is_accepted = self.table.lent().is_accepted();
        if is_accepted {
            self.back_off.served();
        }
        self.table.lease(if is_accepted { until_us } else { 0 });
    }
}

impl Tended for (&String, &mut Served) {
    fn renew(&mut self, now_us: u64) {
        let (name, tenant) = self;
        tenant.renew(name, now_us);
    }

    fn connect(&mut self, now_us: u64) -> bool {
        let (name, tenant) = self;
        tenant.connect(name, now_us)
    }

    fn put_off(&mut self, now_us: u64) {
        let (_, tenant) = self;
        if tenant.front.is_none() {
            tenant.back_off.ended(now_us);
        }
    }
}

/// Those of these that are not wanted.  A name that has another place now is another tenant's: the
/// flows of the old place go on alone, and do not become the new tenant's.
fn gone<'a>(
    known: impl Iterator<Item = (&'a String, &'a Placing)>,
    wanted: &[Tenant],
    find: impl Fn(&Place) -> Result<Option<Found>>,
) -> Vec<String> {
    let places: BTreeMap<&str, &Place> =
        wanted.iter().map(|tenant| (tenant.name.as_str(), &tenant.place)).collect();
    let is_wanted = |name: &str, placing: &Placing| {
        places.get(name).is_some_and(|place| !placing.is_elsewhere(place, &find))
    };
    let gone = known.filter(|(name, placing)| !is_wanted(name, placing));
    gone.map(|(name, _)| name.clone()).collect()
}

/// Has the program find it no more, and frees its number then: who had that sooner would have its
/// place, too.
fn release(
    names: &mut BTreeMap<u32, String>,
    placing: &mut Placing,
    owners: &impl Owners,
) -> Result<()> {
    placing.leave(owners)?;
    names.remove(&placing.number());
    Ok(())
}

/// Where these are, as an earlier one of us has noted: so they stay until the daemon says
/// otherwise.  Places of others would be in the way.
fn places_of(program: &Program, left: &[(String, Table)]) -> Result<BTreeMap<u32, Found>> {
    let maps =
        [(&program.cgroups, Found::Cgroup as fn(u64) -> Found), (&program.netns, Found::Netns)];
    let mut places = BTreeMap::new();
    for (map, found) in maps {
        for key in map.keys().collect::<Vec<_>>() {
            let number = program::number(map, &key)?;
            let owner = left.iter().map(|(_, table)| table.number).find(|n| Some(*n) == number);
            match owner.filter(|owner| !places.contains_key(owner)) {
                Some(owner) => {
                    places.insert(owner, found(u64::from_ne_bytes(key[..].try_into()?)));
                }
                None => map.delete(&key)?,
            }
        }
    }
    Ok(places)
}

/// The map in which the program looks for a place, and the key there.
fn key(program: &Program, found: Found) -> (&MapHandle, [u8; 8]) {
    match found {
        Found::Cgroup(id) => (&program.cgroups, id.to_ne_bytes()),
        Found::Netns(cookie) => (&program.netns, cookie.to_ne_bytes()),
    }
}

impl Owners for Program {
    fn owner(&self, found: Found) -> Result<Option<u32>> {
        let (map, key) = key(self, found);
        program::number(map, &key)
    }

    fn note(&self, found: Found, number: u32) -> Result<()> {
        let (map, key) = key(self, found);
        Ok(map.update(&key, &number.to_ne_bytes(), MapFlags::ANY)?)
    }

    fn forget(&self, found: Found) -> Result<()> {
        let (map, key) = key(self, found);
        Ok(map.delete(&key)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placing::tests::{Fake, THERE, web};

    #[test]
    fn a_number_is_nobody_elses_while_the_program_finds_its_tenant() {
        let owners = Fake::default();
        let mut names = BTreeMap::from([(3, "web".to_owned())]);
        let mut tenant = Placing::new("web".to_owned(), 3, None);
        tenant.follow(&owners, &web(), |_| Ok(Some(THERE)));
        owners.is_full.set(true);
        assert!(release(&mut names, &mut tenant, &owners).is_err() && names.contains_key(&3));
        owners.is_full.set(false);
        release(&mut names, &mut tenant, &owners).expect("left");
        assert!(names.is_empty());
    }

    #[test]
    fn a_name_that_has_another_place_is_another_tenants() {
        let tenant = |place| {
            let daemon = Daemon::Here("/run/web".into());
            Tenant { name: "web".to_owned(), place, daemon }
        };
        let mut placing = Placing::new("web".to_owned(), 3, None);
        placing.follow(&Fake::default(), &web(), |_| Ok(Some(THERE)));
        let name = "web".to_owned();
        let gone = |wanted: &[Tenant]| {
            let find = |place: &Place| match place {
                Place::Netns(_) => Ok(Some(THERE)),
                _ => Ok(None),
            };
            super::gone([(&name, &placing)].into_iter(), wanted, find)
        };
        assert!(gone(&[tenant(web())]).is_empty());
        let same = Place::Netns("/run/netns/web".to_owned());
        assert!(gone(&[tenant(same)]).is_empty(), "written otherwise");
        let other = Place::Cgroup("other".to_owned());
        assert_eq!(gone(&[tenant(other)]), [name.as_str()], "it has a new table");
        assert_eq!(gone(&[]), [name.as_str()]);
    }
}
