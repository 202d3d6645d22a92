// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Keys in the order in which they were last used: an intrusive list, so that
//! the least recently used one is known in O(1).

/// No key.
const NONE: u32 = u32::MAX;

/// Neighbours in the list.
#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

impl Link {
    /// That of a key which is not in the list: no other is older and newer.
    const OUT: Link = Link { older: NONE - 1, newer: NONE - 1 };

    fn is_in(self) -> bool {
        self.older != Link::OUT.older
    }
}

/// The list, with a link for each key up to the largest.
#[derive(Debug)]
pub(crate) struct LruList {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Default for LruList {
    fn default() -> LruList {
        LruList { links: Vec::new(), oldest: NONE, newest: NONE }
    }
}

impl LruList {
    /// Moves or adds `key` to the end of the list.
    pub(crate) fn touch(&mut self, key: usize) {
        if self.newest as usize == key {
            return;
        }
        self.remove(key);
        if key >= self.links.len() {
            self.links.resize(key + 1, Link::OUT);
        }
        self.links[key] = Link { older: self.newest, newer: NONE };
        let key = key as u32;
        match self.newest {
            NONE => self.oldest = key,
            newest => self.links[newest as usize].newer = key,
        }
        self.newest = key;
    }

    /// Takes `key` out of the list, if it is in it.
    pub(crate) fn remove(&mut self, key: usize) {
        let Some(link) = self.links.get_mut(key).filter(|link| link.is_in()) else { return };
        let Link { older, newer } = std::mem::replace(link, Link::OUT);
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }

    /// The least recently used key.
    pub(crate) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest as usize)
    }

    /// Gives back the memory for keys from this one on, of which none is in the list.
    pub(crate) fn shrink_to(&mut self, keys: usize) {
        self.links.truncate(keys);
        self.links.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_the_order_of_their_last_use() {
        let mut list = LruList::default();
        for key in [4, 1, 2, 0, 3, 1, 4, 4] {
            list.touch(key);
        }
        for gone in [0, 3, 4, 9] {
            list.remove(gone);
        }
        list.touch(5);
        for expected in [2, 1, 5] {
            assert_eq!(list.oldest(), Some(expected));
            list.remove(expected);
        }
        assert_eq!((list.oldest(), list.newest), (None, NONE));
    }
}
