// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Keys in the order in which they were last used: an intrusive list, so that
//! the least recently used one is known in O(1).
use crate::fixed::Micros;

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    older: Option<usize>,
    newer: Option<usize>,
    /// `None` if the key is not in the list.
    used: Option<Micros>,
}

/// The list, with a link for each key up to the largest.
#[derive(Debug, Default)]
pub(crate) struct LruList {
    links: Vec<Link>,
    oldest: Option<usize>,
    newest: Option<usize>,
}

impl LruList {
    /// Moves or adds `key` to the end of the list.
    pub(crate) fn touch(&mut self, key: usize, now: Micros) {
        self.remove(key);
        if key >= self.links.len() {
            self.links.resize(key + 1, Link::default());
        }
        self.links[key] = Link { older: self.newest, newer: None, used: Some(now) };
        match self.newest {
            Some(newest) => self.links[newest].newer = Some(key),
            None => self.oldest = Some(key),
        }
        self.newest = Some(key);
    }

    /// Takes `key` out of the list, if it is in it.
    pub(crate) fn remove(&mut self, key: usize) {
        let Some(link) = self.links.get_mut(key) else { return };
        let Link { older, newer, used: Some(_) } = std::mem::take(link) else { return };
        match older {
            Some(older) => self.links[older].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.links[newer].older = older,
            None => self.newest = older,
        }
    }

    /// The least recently used key, and when that was.
    pub(crate) fn oldest(&self) -> Option<(usize, Micros)> {
        let key = self.oldest?;
        self.links[key].used.map(|used| (key, used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_the_order_of_their_last_use() {
        let mut list = LruList::default();
        for (now, key) in [4, 1, 2, 0, 3, 1, 4].into_iter().enumerate() {
            list.touch(key, now as Micros);
        }
        for gone in [0, 3, 4, 9] {
            list.remove(gone);
        }
        list.touch(5, 7);
        for expected in [(2, 2), (1, 5), (5, 7)] {
            assert_eq!(list.oldest(), Some(expected));
            list.remove(expected.0);
        }
        assert_eq!((list.oldest(), list.newest), (None, None));
    }
}
