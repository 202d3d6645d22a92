// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How many of the places each client's kind, and each user, may take.
//!
//! Where there are readers anybody can connect.  Whoever may not change anything must not keep
//! those waiting who do: hooks wait but seconds.
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::admin::{ApiError, authorization::Access};

/// The parts into which the places are divided.
const PARTS: usize = 256;

/// Clients that are there.
#[derive(Debug)]
pub struct Crowd {
    places: usize,
    there: Mutex<BTreeMap<Whose, usize>>,
}

/// Clients that are counted together: all who may as much, or one user of them.
pub type Whose = (Rank, Option<u32>);

/// Why there is no place for a client, and who could make room for it.
#[derive(Debug)]
pub struct NoPlace {
    pub why: ApiError,
    pub alike: Whose,
}

/// What a client may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Everything, as root and the daemon's own user.
    Owner,
    /// Everything, as a member of the operators' group.
    Operator,
    /// Look.
    Reader,
    /// Nothing but to be told why.
    Stranger,
}

/// A client that is there, until it is dropped.
#[derive(Debug)]
pub struct Present {
    keys: [Whose; 2],
    crowd: Arc<Crowd>,
}

impl Rank {
    /// That of a client who may so much, if anything.
    pub fn of(access: Option<Access>, is_owner: bool) -> Rank {
        match access {
            Some(Access::Change) if is_owner => Rank::Owner,
            Some(Access::Change) => Rank::Operator,
            Some(Access::Read) => Rank::Reader,
            None => Rank::Stranger,
        }
    }

    /// It waits for a place if there is none.
    pub fn waits(self) -> bool {
        matches!(self, Rank::Owner | Rank::Operator)
    }

    /// How many [`PARTS`] of the places all of them, and each of their users, may take, where
    /// there is a bound.  Those of all leave owners some.
    fn parts(self) -> [Option<usize>; 2] {
        match self {
            Rank::Owner => [None, None],
            Rank::Operator => [Some(160), Some(128)],
            Rank::Reader => [Some(64), Some(16)],
            Rank::Stranger => [Some(4), Some(1)],
        }
    }
}

impl Crowd {
    /// For so many places.
    pub fn new(places: usize) -> Arc<Crowd> {
        Arc::new(Crowd { places, there: Mutex::default() })
    }

    /// Lets a client in, if its kind and its user have not what they may have.
    pub fn enter(self: &Arc<Crowd>, rank: Rank, uid: u32) -> Result<Present, NoPlace> {
        let keys = [(rank, None), (rank, Some(uid))];
        let mut there = self.there();
        for (key, part) in keys.iter().zip(rank.parts()) {
            let Some(part) = part else { continue };
            let most = (self.places * part / PARTS).max(1);
            if there.get(key).is_some_and(|count| *count >= most) {
                let why = ApiError::NoPlace { uid, own: key.1.is_some(), most };
                return Err(NoPlace { why, alike: *key });
            }
        }
        for key in keys {
            *there.entry(key).or_default() += 1;
        }
        Ok(Present { keys, crowd: Arc::clone(self) })
    }

    fn there(&self) -> MutexGuard<'_, BTreeMap<Whose, usize>> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut there = self.crowd.there();
        for key in &self.keys {
            if let Some(count) = there.get_mut(key) {
                *count -= 1;
            }
        }
        there.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(crowd: &Arc<Crowd>, rank: Rank, uid: u32) -> Vec<Present> {
        std::iter::from_fn(|| crowd.enter(rank, uid).ok()).take(1000).collect()
    }

    #[test]
    fn places_are_kept_for_those_who_may_more() {
        let crowd = Crowd::new(256);
        assert_eq!(enter(&crowd, Rank::Owner, 0).len(), 1000, "they wait for places");
        let operators = [1000, 1001, 1002].map(|uid| enter(&crowd, Rank::Operator, uid));
        let readers: Vec<_> = (1..7).map(|uid| enter(&crowd, Rank::Reader, uid)).collect();
        let counts: Vec<usize> = readers.iter().map(Vec::len).collect();
        assert_eq!(operators.each_ref().map(Vec::len), [128, 32, 0], "some are left for owners");
        assert_eq!(counts, [16, 16, 16, 16, 0, 0]);
        let strangers: Vec<_> = (1..7).map(|uid| enter(&crowd, Rank::Stranger, uid)).collect();
        assert_eq!(strangers.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1, 0, 0]);
        drop(readers);
        assert_eq!(enter(&crowd, Rank::Reader, 9).len(), 16, "who has left makes room");
        drop((operators, strangers));
        assert!(crowd.there().is_empty());
        assert_eq!(enter(&Crowd::new(1), Rank::Stranger, 1).len(), 1);
    }
}
