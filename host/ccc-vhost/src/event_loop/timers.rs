// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the event loop does later, of its own accord.
//!
//! Always in real time: front ends live in it, whatever time their guests are
//! told.  One timer for each token is enough, for whoever is woken looks at
//! what is due and may ask again.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccc_core::Micros;

use crate::event_loop::poll::Token;

/// Tokens that are to be woken.
#[derive(Debug, Default)]
pub struct Timers {
    order: BTreeSet<(Micros, Token)>,
    times: BTreeMap<Token, Micros>,
}

impl Timers {
    /// Wakes `token` at a time, or before.
    pub fn wake(&mut self, token: Token, at: Micros) {
        if let Some(earlier) = self.times.get(&token).copied() {
            if earlier <= at {
                return;
            }
            self.order.remove(&(earlier, token));
        }
        self.times.insert(token, at);
        self.order.insert((at, token));
    }

    /// Time until the first is due.
    pub fn rest(&self, now: Micros) -> Option<Duration> {
        let (at, _) = self.order.first()?;
        Some(Duration::from_micros(at.saturating_sub(now)))
    }

    /// Takes those that are due.
    pub fn take(&mut self, now: Micros) -> Vec<Token> {
        let mut due = Vec::new();
        while let Some((_, token)) = self.order.first().filter(|(at, _)| *at <= now).copied() {
            self.order.pop_first();
            self.times.remove(&token);
            due.push(token);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_of_a_token_counts() {
        let mut timers = Timers::default();
        assert_eq!(timers.rest(0), None);
        let (first, second) = (Token::Listener(1), Token::Kick(1, 2));
        timers.wake(first, 50);
        timers.wake(second, 40);
        timers.wake(first, 30);
        timers.wake(first, 90);
        assert_eq!(timers.rest(10), Some(Duration::from_micros(20)));
        assert_eq!(timers.take(29), []);
        assert_eq!(timers.take(60), [first, second]);
        assert_eq!((timers.rest(60), timers.take(100)), (None, Vec::new()));
    }
}
