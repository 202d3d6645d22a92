// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether a group can give its VMs the floors that they are to have.
//!
//! Nobody reserves anything for a floor, so more can be promised than there is.  Only VMs that
//! take all they are given want theirs, and only what is congested has no more: a loss is seldom
//! where the path is long and fast, and there is none where a queue is kept at a target, so packets
//! that wait say so as well.  Where neither is seen, nor that there is room, what was said stands.
use ccc_core::{Claims, GroupStatus, Micros, QueueMode};
use ccc_settings::GroupSettings;

use super::Coupling;

/// A group is looked at once in so long; after a longer time what was seen is of the past.
const PERIOD_US: Micros = 1_000_000;
const STALE_US: Micros = 5_000_000;
/// So much longer short than not it has to be before that is told, and what counts of it at the
/// most: so much longer it has to be met then before that is told.
const SHORT_US: Micros = 10_000_000;
const MOST_SHORT_US: Micros = 60_000_000;
/// So long after a reduction there is no more than what is delivered.
const CONGESTED_US: Micros = 60_000_000;
/// Floors above what is delivered by less are met: a percentage.
const TOLERATED_PERCENT: u64 = 110;
/// That floors cannot be met is not in the log again before so long.
const AGAIN_US: Micros = 600_000_000;

/// Floors that are more than what a group delivers, both bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// The floors of all VMs that want them.
    pub floors: u64,
    /// What all VMs have together.
    pub delivered: u64,
}

/// That a group's floors have come to be more than there is, or are so no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// They cannot be met.
    Short(Shortfall),
    /// They are met.
    Met,
    /// They are not, and the path has room.
    Room,
}

/// What a look has found of a group's floors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Found {
    Short,
    Met,
    Room,
    /// They are not met, and whether there is more is not to be seen.
    Unclear,
    /// Nobody wants them, or has reported for long.
    #[default]
    Unwanted,
}

/// What a group's path was like at a look.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// How often the window was reduced.
    reductions: u64,
    /// Packets wait.
    queued: bool,
    /// None does, though some were to.
    idle: bool,
}

impl Look {
    fn of(status: &GroupStatus, settings: &GroupSettings) -> Look {
        let path = status.path;
        // A target may be less than what bursts make wait.
        let half_target_us = settings.target_delay_ms * 1000.0 / 2.0;
        let is_at_target =
            status.mode == Some(QueueMode::Target) && path.queue_us as f64 >= half_target_us;
        let queued = path.queued || is_at_target;
        Look { reductions: status.reductions, queued, idle: path.idle && !queued }
    }
}

/// What is known of a group's floors.
#[derive(Debug, Default)]
pub(super) struct Floors {
    looked_at: Micros,
    delivered_bytes: u64,
    /// How often the group's window was reduced, and when that was last seen to be more.
    reductions: u64,
    reduced_at: Option<Micros>,
    /// For how long they were not met, less how long they were, or could have been.
    short_us: Micros,
    shortfall: Option<Shortfall>,
    found: Found,
    /// When it was last logged that they are not met, and whether that is what was logged last.
    logged_at: Option<Micros>,
    is_logged: bool,
}

impl Floors {
    /// Takes what the path was like, what VMs' floors are, and what their reports say.
    fn look(&mut self, now: Micros, look: Look, vms: impl Iterator<Item = (u64, Claims)>) {
        let time_us = now.saturating_sub(self.looked_at).max(1);
        let is_late = time_us > STALE_US;
        // How long ago those were that nobody looked at is not known.
        let before = std::mem::replace(&mut self.reductions, look.reductions);
        if before != look.reductions && !is_late {
            self.reduced_at = Some(now);
        }
        let (mut floors, mut bytes) = (0_u64, 0_u64);
        for (floor, claims) in vms {
            bytes = bytes.wrapping_add(claims.delivered_bytes);
            floors = floors.saturating_add(if claims.backlogged { floor } else { 0 });
        }
        let delivered =
            bytes.saturating_sub(self.delivered_bytes).saturating_mul(1_000_000) / time_us;
        (self.looked_at, self.delivered_bytes) = (now, bytes);
        let was_reduced = self.reduced_at.is_some_and(|at| now.saturating_sub(at) <= CONGESTED_US);
        self.found = if floors == 0 || is_late {
            Found::Unwanted
        } else if floors <= delivered.saturating_mul(TOLERATED_PERCENT) / 100 {
            Found::Met
        } else if was_reduced || look.queued {
            Found::Short
        } else if look.idle {
            Found::Room
        } else {
            Found::Unclear
        };
        self.short_us = match self.found {
            Found::Short => (self.short_us + time_us).min(MOST_SHORT_US),
            Found::Unclear => self.short_us,
            Found::Met | Found::Room | Found::Unwanted => self.short_us.saturating_sub(time_us),
        };
        let is_short = self.found == Found::Short;
        self.shortfall = match self.shortfall {
            None if is_short && self.short_us >= SHORT_US => Some(Shortfall { floors, delivered }),
            Some(_) if self.short_us == 0 => None,
            Some(_) if is_short => Some(Shortfall { floors, delivered }),
            before => before,
        };
    }

    /// What is to be logged, if something is: that they are short, and what is seen to be so
    /// afterwards.
    fn news(&mut self, now: Micros) -> Option<News> {
        let is_soon = |at: Micros| now.saturating_sub(at) < AGAIN_US;
        let news = match (self.shortfall, self.found) {
            (Some(shortfall), _) => News::Short(shortfall),
            (None, Found::Met) => News::Met,
            (None, Found::Room) => News::Room,
            (None, _) => return None,
        };
        let is_short = self.shortfall.is_some();
        if is_short == self.is_logged || is_short && self.logged_at.is_some_and(is_soon) {
            return None;
        }
        self.is_logged = is_short;
        if is_short {
            self.logged_at = Some(now);
        }
        Some(news)
    }
}

impl Coupling {
    /// Looks at the floors of all groups, if it is time to: names of groups, and what is new of
    /// their floors.
    pub fn take_floors(&mut self, now: Micros) -> Vec<(String, News)> {
        if now.saturating_sub(self.floors_at) < PERIOD_US {
            return Vec::new();
        }
        self.floors_at = now;
        let mut news = Vec::new();
        for (group, named) in self.groups.iter_mut().zip(&self.settings.groups) {
            let floor = |number: &usize| {
                let vm = self.settings.vms.get(number)?;
                Some(ccc_settings::bytes_of_mbit(vm.settings.floor_mbit))
            };
            // Most groups have no floor, and what their VMs say need not be looked at.
            let has_floors = group.vms.keys().filter_map(floor).any(|floor| floor > 0);
            if !has_floors && group.floors.shortfall.is_none() {
                continue;
            }
            let vms = group.vms.iter().filter_map(|(number, id)| {
                Some((floor(number)?, self.engine.claims(*id, group.id)))
            });
            let status = self.engine.status(group.id);
            let look = status.map(|status| Look::of(&status, &named.settings)).unwrap_or_default();
            group.floors.look(now, look, vms);
            news.extend(group.floors.news(now).map(|news| (named.name.clone(), news)));
        }
        news
    }

    /// By how much the floors of a group are more than what it delivers, if they are.
    pub fn shortfall(&self, now: Micros, group: usize) -> Option<Shortfall> {
        let floors = &self.groups[group].floors;
        // Where nobody reports any more nobody wants anything.
        let is_of_now = now.saturating_sub(floors.looked_at) <= STALE_US;
        floors.shortfall.filter(|_| is_of_now)
    }
}

#[cfg(test)]
mod tests {
    use ccc_core::PathState;

    use super::*;

    /// Floors of which two are wanted, 6 MB/s each, and one is not; what was delivered, and logged.
    #[derive(Default)]
    struct Group {
        floors: Floors,
        now: Micros,
        delivered_bytes: u64,
        look: Look,
        logged: Vec<News>,
    }

    impl Group {
        /// So many seconds in which it is congested.
        fn go(&mut self, seconds: u64, rate: u64) {
            for _ in 0..seconds {
                self.look.reductions += 1;
                self.pass(1, rate);
            }
        }

        /// So many seconds in which it is not reduced.
        fn pass(&mut self, seconds: u64, rate: u64) {
            for _ in 0..seconds {
                self.now += PERIOD_US;
                self.delivered_bytes += rate;
                let wants = |backlogged, delivered_bytes| {
                    (6_000_000, Claims { backlogged, delivered_bytes, ..Claims::default() })
                };
                let vms = [wants(true, self.delivered_bytes), wants(true, 0), wants(false, 0)];
                self.floors.look(self.now, self.look, vms.into_iter());
                self.logged.extend(self.floors.news(self.now));
            }
        }
    }

    #[test]
    fn floors_that_are_more_than_there_is_are_told_after_a_while() {
        let mut group = Group::default();
        group.go(100, 11_500_000);
        assert_eq!(
            group.floors.shortfall, None,
            "what is not wanted, and headers, count for nothing"
        );
        group.go(9, 5_000_000);
        assert_eq!(group.floors.shortfall, None, "a loss is over by then");
        group.go(1, 5_000_000);
        let short = Shortfall { floors: 12_000_000, delivered: 5_000_000 };
        assert_eq!(group.floors.shortfall, Some(short));
        group.go(60, 5_000_000);
        group.go(59, 12_000_000);
        assert_eq!(group.floors.shortfall, Some(short), "it may be chance");
        group.go(1, 12_000_000);
        assert_eq!(group.floors.shortfall, None);
        assert_eq!(group.logged, [News::Short(short), News::Met]);
    }

    #[test]
    fn nothing_is_told_of_a_path_that_nothing_is_known_of() {
        let look = Look { reductions: 7, ..Look::default() };
        let mut group = Group { now: 2 * STALE_US, look, ..Group::default() };
        group.pass(100, 5_000_000);
        assert_eq!(group.floors.shortfall, None, "those may have been long ago");
    }

    #[test]
    fn what_was_told_stands_until_they_are_met_or_there_is_room() {
        let mut group = Group::default();
        group.go(20, 5_000_000);
        group.pass(400, 5_000_000);
        assert!(group.floors.shortfall.is_some(), "fast and long paths lose seldom");
        assert_eq!(group.logged.len(), 1);
        group.look.idle = true;
        group.pass(60, 5_000_000);
        assert_eq!(group.floors.shortfall, None);
        assert_eq!(group.logged[1..], [News::Room]);
    }

    #[test]
    fn packets_that_wait_say_that_there_is_no_more() {
        let mut group = Group::default();
        group.look.queued = true;
        group.pass(20, 5_000_000);
        assert!(group.floors.shortfall.is_some());
    }

    #[test]
    fn a_queue_that_is_kept_at_its_target_waits_on_however_long_a_path() {
        let settings = GroupSettings { target_delay_ms: 5.0, ..GroupSettings::default() };
        let look = |mode, queue_us| {
            let path = PathState { queue_us, idle: true, ..PathState::default() };
            let status = GroupStatus {
                cwnd_bytes: 1,
                ssthresh_bytes: None,
                epoch: 0,
                reductions: 0,
                active_flows: 1,
                path,
                mode,
            };
            let Look { queued, idle, .. } = Look::of(&status, &settings);
            (queued, idle)
        };
        assert_eq!(look(Some(QueueMode::Target), 3_000), (true, false));
        assert_eq!(look(Some(QueueMode::Target), 2_000), (false, true));
        assert_eq!(look(None, 3_000), (false, true));
    }

    #[test]
    fn floors_that_are_met_now_and_then_are_logged_once_in_a_while() {
        let mut group = Group::default();
        for _ in 0..20 {
            group.go(15, 5_000_000);
            group.go(15, 12_000_000);
        }
        assert_eq!(group.logged.len(), 2, "{:?}", group.logged);
        group.go(600, 5_000_000);
        assert_eq!(group.logged.len(), 3);
    }

    #[test]
    fn a_tenth_is_tolerated_and_what_is_of_the_past_says_nothing() {
        let mut group = Group::default();
        group.go(20, 11_000_000);
        assert_eq!(group.floors.shortfall, None, "headers, say");
        group.go(10, 10_800_000);
        assert!(group.floors.shortfall.is_some());
        for _ in 0..2 {
            group.now += STALE_US;
            group.go(1, 0);
        }
        assert_eq!(group.floors.shortfall, None);
        assert_eq!(group.logged.len(), 1, "whether they are met now is not known");
        group.go(1, 12_000_000);
        assert_eq!(group.logged[1..], [News::Met]);
    }

    #[test]
    fn a_vm_that_has_gone_takes_no_floor_along() {
        let mut group = Group::default();
        group.go(100, 12_000_000);
        group.delivered_bytes = 0;
        group.go(5, 12_000_000);
        assert_eq!(group.floors.shortfall, None);
    }
}
