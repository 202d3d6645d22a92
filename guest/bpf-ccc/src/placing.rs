// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Under which place the program finds a tenant.
use anyhow::Result;
use log::Level;

use crate::{
    log_limit::Limited,
    places::{Found, Place},
};

/// Whose places are, as the program has it: numbers of tenants.
pub trait Owners {
    /// Whose a place is.
    fn owner(&self, found: Found) -> Result<Option<u32>>;
    /// It is a tenant's from now on.
    fn note(&self, found: Found, number: u32) -> Result<()>;
    /// It is nobody's from now on.
    fn forget(&self, found: Found) -> Result<()>;
}

/// Where a tenant is.
#[derive(Debug)]
pub struct Placing {
    name: String,
    number: u32,
    /// Where it is to be; none until somebody says so to a loader that has just started.
    wanted: Option<Place>,
    /// The place under which the program finds it.
    found: Option<Found>,
    /// It was found there: until then there is nothing of it that the daemon could couple.
    is_placed: bool,
    /// It was said that the place is another tenant's.
    is_taken: bool,
    /// Why it could not be looked there, which is said once.
    told: Option<String>,
    said: Limited,
}

impl Placing {
    /// A tenant by its name and number, and where an earlier loader has found it.
    pub fn new(name: String, number: u32, found: Option<Found>) -> Placing {
        Placing {
            name,
            number,
            wanted: None,
            found,
            is_placed: false,
            is_taken: false,
            told: None,
            said: Limited::default(),
        }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where it is to be.
    pub fn wanted(&self) -> Option<&Place> {
        self.wanted.as_ref()
    }

    /// Whether it was found there.
    pub fn is_placed(&self) -> bool {
        self.is_placed
    }

    /// Whether this is no place of its: who is to be there is another tenant, if of the same name.
    pub fn is_elsewhere(
        &self,
        wanted: &Place,
        find: impl FnOnce(&Place) -> Result<Option<Found>>,
    ) -> bool {
        if self.wanted.as_ref() == Some(wanted) {
            return false;
        }
        // One place may be written in two ways, and an earlier loader has left no more than where it
        // found it.
        match (find(wanted), &self.wanted) {
            (Ok(found), None) => found != self.found,
            (Ok(found), Some(_)) => found.is_none() || found != self.found,
            (Err(_), before) => before.is_some(),
        }
    }

    /// Has it where it is to be from now on.
    pub fn follow(
        &mut self,
        owners: &impl Owners,
        wanted: &Place,
        find: impl FnOnce(&Place) -> Result<Option<Found>>,
    ) {
        if self.wanted.as_ref() != Some(wanted) {
            self.is_taken = false;
            self.place(owners, wanted, find(wanted));
        }
    }

    /// Looks again.
    pub fn look(
        &mut self,
        owners: &impl Owners,
        find: impl FnOnce(&Place) -> Result<Option<Found>>,
    ) {
        if let Some(wanted) = self.wanted.clone() {
            self.place(owners, &wanted, find(&wanted));
        }
    }

    /// Whether it is to be looked again though nothing tells of a change: the place was another
    /// tenant's, or could not be looked for.
    pub fn is_waiting(&self) -> bool {
        self.is_taken || self.told.is_some()
    }

    /// Makes sure that the program finds it where it is to be, which was looked for just now.
    fn place(&mut self, owners: &impl Owners, wanted: &Place, looked: Result<Option<Found>>) {
        let is_new = self.wanted.as_ref() != Some(wanted);
        // Where an earlier loader has found it is where it is, for all that is known.
        let may_stay = !is_new || self.wanted.is_none();
        if let Some(error) = self.news(&looked) {
            let what = format_args!("tenant {}: cannot look for its place: {error}", self.name);
            self.said.say(Level::Error, what);
        }
        let found = looked.unwrap_or(self.found.filter(|_| may_stay));
        self.wanted = Some(wanted.clone());
        // A place that never was there is told of once.
        if found != self.found || (is_new && found.is_none()) {
            if let Err(error) = self.change(owners, wanted, found) {
                let what = format_args!("tenant {}: {error:#}", self.name);
                self.said.say(Level::Error, what);
            }
        }
        self.is_placed = self.found.is_some() || (self.is_placed && !is_new);
    }

    /// Why it could not be looked there, if that is to be told.
    fn news(&mut self, looked: &Result<Option<Found>>) -> Option<String> {
        let error = looked.as_ref().err().map(|error| format!("{error:#}"));
        let news = error.clone().filter(|error| self.told.as_ref() != Some(error));
        self.told = error;
        news
    }

    /// One place is one tenant's: who has it first.  Others have it once it is free.
    fn change(&mut self, owners: &impl Owners, wanted: &Place, found: Option<Found>) -> Result<()> {
        self.leave(owners)?;
        let name = &self.name;
        let Some(new) = found else {
            log::info!("tenant {name}: is not there: {wanted:?}");
            return Ok(());
        };
        if owners.owner(new)?.is_some_and(|owner| owner != self.number) {
            if !std::mem::replace(&mut self.is_taken, true) {
                log::warn!("tenant {name}: {wanted:?} is another tenant's; expected one each");
            }
            return Ok(());
        }
        owners.note(new, self.number)?;
        log::info!("tenant {name}: is {new:x?}");
        (self.found, self.is_taken) = (found, false);
        Ok(())
    }

    /// The program finds it no more; where that fails it does, and it is tried again.
    pub fn leave(&mut self, owners: &impl Owners) -> Result<()> {
        let Some(old) = self.found else { return Ok(()) };
        if owners.owner(old)? == Some(self.number) {
            owners.forget(old)?;
        }
        self.found = None;
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::{
        cell::{Cell, RefCell, RefMut},
        collections::BTreeMap,
    };

    use anyhow::{anyhow, ensure};

    use super::*;

    /// Without a kernel.
    #[derive(Default)]
    pub struct Fake {
        owners: RefCell<BTreeMap<u64, u32>>,
        /// It takes no change.
        pub is_full: Cell<bool>,
    }

    impl Fake {
        fn writable(&self) -> Result<RefMut<'_, BTreeMap<u64, u32>>> {
            ensure!(!self.is_full.get(), "no memory");
            Ok(self.owners.borrow_mut())
        }
    }

    fn id(found: Found) -> u64 {
        match found {
            Found::Cgroup(id) | Found::Netns(id) => id,
        }
    }

    impl Owners for Fake {
        fn owner(&self, found: Found) -> Result<Option<u32>> {
            Ok(self.owners.borrow().get(&id(found)).copied())
        }

        fn note(&self, found: Found, number: u32) -> Result<()> {
            self.writable()?.insert(id(found), number);
            Ok(())
        }

        fn forget(&self, found: Found) -> Result<()> {
            self.writable()?.remove(&id(found));
            Ok(())
        }
    }

    pub const THERE: Found = Found::Netns(7);

    pub fn web() -> Place {
        Place::Netns("web".to_owned())
    }

    fn no_descriptors() -> Result<Option<Found>> {
        Err(anyhow!("Too many open files"))
    }

    #[test]
    fn a_place_that_cannot_be_looked_for_stays_also_for_a_loader_that_has_just_started() {
        let owners = Fake::default();
        owners.note(THERE, 3).expect("noted");
        let mut tenant = Placing::new("web".to_owned(), 3, Some(THERE));
        for _ in 0..2 {
            tenant.place(&owners, &web(), no_descriptors());
            assert_eq!(owners.owner(THERE).expect("known"), Some(3));
            assert!(tenant.is_placed(), "so that it connects");
        }
        // One that is to be elsewhere is not there any more, wherever it is.
        tenant.place(&owners, &Place::Netns("other".to_owned()), no_descriptors());
        assert_eq!(owners.owner(THERE).expect("known"), None);
        assert!(!tenant.is_placed());
    }

    #[test]
    fn what_is_followed_is_looked_for_once_unless_it_is_another() {
        let (owners, mut looks) = (Fake::default(), 0);
        let mut tenant = Placing::new("web".to_owned(), 3, None);
        let follow = |wanted: &Place| {
            tenant.follow(&owners, wanted, |_| {
                looks += 1;
                Ok(Some(THERE))
            });
        };
        let other = Place::Netns("other".to_owned());
        [&web(), &web(), &web(), &other, &other].into_iter().for_each(follow);
        assert_eq!(looks, 2);
        tenant.look(&owners, |_| no_descriptors());
        assert!(tenant.is_waiting());
        tenant.look(&owners, |_| Ok(Some(THERE)));
        assert!(!tenant.is_waiting());
    }

    #[test]
    fn why_it_cannot_be_looked_there_is_told_once_until_it_can() {
        let mut tenant = Placing::new("web".to_owned(), 3, None);
        let mut is_told = |looked| tenant.news(&looked).is_some();
        assert!(is_told(no_descriptors()) && !is_told(no_descriptors()));
        assert!(!is_told(Ok(Some(THERE))) && is_told(no_descriptors()));
        assert!(is_told(Err(anyhow!("no thread"))));
    }

    #[test]
    fn a_place_is_who_has_it_first_and_anothers_once_that_has_left() {
        let owners = Fake::default();
        let [mut first, mut second] =
            [1, 2].map(|number| Placing::new(format!("t{number}"), number, None));
        first.place(&owners, &web(), Ok(Some(THERE)));
        second.place(&owners, &web(), Ok(Some(THERE)));
        assert!(first.is_placed() && !second.is_placed());
        first.leave(&owners).expect("left");
        second.place(&owners, &web(), Ok(Some(THERE)));
        assert_eq!(owners.owner(THERE).expect("known"), Some(2));
        // It has gone, and the connection stays, as if it came back.
        second.place(&owners, &web(), Ok(None));
        assert!(second.is_placed() && owners.owner(THERE).expect("known").is_none());
    }

    #[test]
    fn a_place_that_cannot_be_left_is_left_later_and_told_of_now_and_then() {
        let owners = Fake::default();
        let mut tenant = Placing::new("web".to_owned(), 3, None);
        tenant.place(&owners, &web(), Ok(Some(THERE)));
        owners.is_full.set(true);
        for _ in 0..100 {
            tenant.place(&owners, &web(), Ok(Some(Found::Netns(8))));
        }
        assert!(!tenant.said.say(Level::Error, format_args!("")), "all lines are said");
        assert!(tenant.leave(&owners).is_err());
        owners.is_full.set(false);
        tenant.leave(&owners).expect("left");
        assert_eq!(owners.owner(THERE).expect("known"), None);
    }

    #[test]
    fn after_a_restart_a_place_is_another_if_it_is_found_elsewhere() {
        let tenant = Placing::new("web".to_owned(), 3, Some(THERE));
        let is_elsewhere = |looked| tenant.is_elsewhere(&web(), |_| looked);
        assert!(!is_elsewhere(Ok(Some(THERE))) && !is_elsewhere(no_descriptors()));
        assert!(is_elsewhere(Ok(Some(Found::Cgroup(7)))) && is_elsewhere(Ok(None)));
    }
}
