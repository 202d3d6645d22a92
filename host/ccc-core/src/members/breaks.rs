// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs take of a group at any level, in the order of the levels at which one ceases to
//! share by weight.
//!
//! A VM takes its floor until its part by weight is more, and from what it wants at the most
//! on no more.  So what all take is a sum of straight lines that bends where one of them does.
//! A treap keeps the bends in order, each with the sum of what is below it: the level at which
//! all is taken is found in O(log n), and so is the place of a VM that wants something else.
use std::{cmp::Ordering, mem};

use crate::fixed::div_wide;

/// Fraction bits of a bend's level.
const FRACTION: u32 = 8;
/// No bend.
const NONE: usize = usize::MAX;

/// What some take at a level: a sum, and so much more for each of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) takes: i128,
    pub(super) weight: i128,
}

impl Line {
    fn plus(self, other: Line) -> Line {
        Line { takes: self.takes + other.takes, weight: self.weight + other.weight }
    }

    fn minus(self, other: Line) -> Line {
        Line { takes: self.takes - other.takes, weight: self.weight - other.weight }
    }

    fn at(self, level: i128) -> i128 {
        self.takes.saturating_add(self.weight.saturating_mul(level) >> FRACTION)
    }
}

/// What a VM wants that does not take its weight's part whatever that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) weight: u64,
    pub(super) floor: u128,
    /// At least its floor; `u128::MAX`: all that it is given.
    pub(super) most: u128,
}

impl Wish {
    /// Its line at a level of 0, as it differs from one by weight.
    fn begin(&self) -> Line {
        let weight = if self.floor > 0 || self.floor == self.most { self.weight } else { 0 };
        Line { takes: signed(self.floor), weight: -i128::from(weight) }
    }

    /// Where it shares by weight from, and up to where.
    fn bends(&self) -> [Option<Bend>; 2] {
        let weight = i128::from(self.weight);
        let at =
            |value: u128| signed(div_wide(value.saturating_mul(1 << FRACTION), self.weight.max(1)));
        let bend = |value: u128, takes: i128, weight: i128| Bend {
            at: at(value),
            line: Line { takes, weight },
        };
        let (floor, most) = (self.floor, self.most);
        let shares = floor < most;
        [
            (shares && floor > 0).then(|| bend(floor, -signed(floor), weight)),
            (shares && most < u128::MAX).then(|| bend(most, signed(most), -weight)),
        ]
    }
}

fn signed(value: u128) -> i128 {
    i128::try_from(value).unwrap_or(i128::MAX)
}

/// A level at which somebody's line bends, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bend {
    at: i128,
    line: Line,
}

/// A bend in its place.
#[derive(Clone, Copy, Debug)]
struct Node {
    bend: Bend,
    /// That of all below it in the tree, with its own.
    sum: Line,
    left: usize,
    right: usize,
}

impl Default for Node {
    fn default() -> Node {
        Node { bend: Bend::default(), sum: Line::default(), left: NONE, right: NONE }
    }
}

/// The bends of all.
#[derive(Clone, Debug)]
pub(super) struct Breaks {
    /// Two of each VM: 2v and 2v + 1.
    nodes: Vec<Node>,
    root: usize,
    wishes: Vec<Option<Wish>>,
    /// The VMs whose wishes may have changed since, each once.
    stale: Vec<usize>,
    is_stale: Vec<bool>,
    /// What all differ by at a level of 0.
    begin: Line,
    floors: u128,
}

impl Default for Breaks {
    fn default() -> Breaks {
        Breaks {
            nodes: Vec::new(),
            root: NONE,
            wishes: Vec::new(),
            stale: Vec::new(),
            is_stale: Vec::new(),
            begin: Line::default(),
            floors: 0,
        }
    }
}

impl Breaks {
    /// A VM's wish may be another: it is asked for when somebody looks.
    pub(super) fn touch(&mut self, vm: usize) {
        if vm >= self.wishes.len() {
            self.wishes.resize(vm + 1, None);
            self.is_stale.resize(vm + 1, false);
            self.nodes.resize(2 * vm + 2, Node::default());
        }
        if !mem::replace(&mut self.is_stale[vm], true) {
            self.stale.push(vm);
        }
    }

    /// Has what is wished now.
    pub(super) fn refresh(&mut self, wish: impl Fn(usize) -> Option<Wish>) {
        while let Some(vm) = self.stale.pop() {
            self.is_stale[vm] = false;
            self.set(vm, wish(vm));
        }
    }

    fn set(&mut self, vm: usize, wish: Option<Wish>) {
        let old = mem::replace(&mut self.wishes[vm], wish);
        if old == wish {
            return;
        }
        let parts = |wish: Option<Wish>| match wish {
            Some(wish) => (wish.begin(), wish.floor, wish.bends()),
            None => (Line::default(), 0, [None; 2]),
        };
        let ((begin, floor, from), (new_begin, new_floor, to)) = (parts(old), parts(wish));
        self.begin = self.begin.minus(begin).plus(new_begin);
        self.floors = self.floors - floor + new_floor;
        for (i, (from, to)) in from.into_iter().zip(to).enumerate() {
            if from == to {
                continue;
            }
            if from.is_some() {
                self.root = self.without(self.root, 2 * vm + i);
            }
            if let Some(bend) = to {
                self.insert(2 * vm + i, bend);
            }
        }
    }

    /// What all wish of their floors.
    pub(super) fn floors(&self) -> u128 {
        self.floors
    }

    /// What all of this weight take at the level at which that is all there is, as a line
    /// that does not bend from there to the next higher bend: who has its floor and no more wants
    /// its part by weight, too.
    pub(super) fn line_at(&self, all: u128, weight: u64) -> Line {
        let all = signed(all);
        let mut line = self.begin.plus(Line { takes: 0, weight: weight.into() });
        let mut next = self.root;
        while let Some(node) = self.nodes.get(next) {
            let before = line.plus(self.sum(node.left));
            if before.at(node.bend.at) <= all {
                (line, next) = (before.plus(node.bend.line), node.right);
            } else {
                next = node.left;
            }
        }
        line
    }

    /// All sums together, to compare.
    pub(super) fn total(&self) -> (Line, u128, Line) {
        (self.begin, self.floors, self.sum(self.root))
    }

    fn sum(&self, node: usize) -> Line {
        self.nodes.get(node).map_or(Line::default(), |node| node.sum)
    }

    fn add_up(&mut self, node: usize) {
        let Node { bend, left, right, .. } = self.nodes[node];
        self.nodes[node].sum = bend.line.plus(self.sum(left)).plus(self.sum(right));
    }

    fn order(&self, a: usize, b: usize) -> Ordering {
        (self.nodes[a].bend.at, a).cmp(&(self.nodes[b].bend.at, b))
    }

    fn insert(&mut self, node: usize, bend: Bend) {
        self.nodes[node] = Node { bend, sum: bend.line, ..Node::default() };
        let (lower, higher) = self.split(self.root, node);
        let lower = self.join(lower, node);
        self.root = self.join(lower, higher);
    }

    /// Those below a bend, and those above it.
    fn split(&mut self, tree: usize, at: usize) -> (usize, usize) {
        if tree == NONE {
            return (NONE, NONE);
        }
        if self.order(tree, at) == Ordering::Less {
            let (lower, higher) = self.split(self.nodes[tree].right, at);
            self.nodes[tree].right = lower;
            self.add_up(tree);
            (tree, higher)
        } else {
            let (lower, higher) = self.split(self.nodes[tree].left, at);
            self.nodes[tree].left = higher;
            self.add_up(tree);
            (lower, tree)
        }
    }

    /// Both in one tree, of which all of one are below all of the other.
    fn join(&mut self, lower: usize, higher: usize) -> usize {
        if lower == NONE || higher == NONE {
            return if lower == NONE { higher } else { lower };
        }
        if rank(lower) > rank(higher) {
            self.nodes[lower].right = self.join(self.nodes[lower].right, higher);
            self.add_up(lower);
            lower
        } else {
            self.nodes[higher].left = self.join(lower, self.nodes[higher].left);
            self.add_up(higher);
            higher
        }
    }

    /// A tree without one of its bends.
    fn without(&mut self, tree: usize, node: usize) -> usize {
        if tree == node {
            let Node { left, right, .. } = self.nodes[node];
            return self.join(left, right);
        }
        match self.order(node, tree) {
            Ordering::Less => {
                self.nodes[tree].left = self.without(self.nodes[tree].left, node);
            }
            _ => self.nodes[tree].right = self.without(self.nodes[tree].right, node),
        }
        self.add_up(tree);
        tree
    }
}

/// A node's place above others: as by chance, which nobody's wishes have a part in.
fn rank(node: usize) -> u64 {
    let mixed = (node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(weight: u64, floor: u128, most: u128) -> Option<Wish> {
        Some(Wish { weight, floor, most })
    }

    fn breaks(wishes: &[Option<Wish>]) -> Breaks {
        let mut breaks = Breaks::default();
        (0..wishes.len()).for_each(|vm| breaks.touch(vm));
        breaks.refresh(|vm| wishes[vm]);
        breaks
    }

    #[test]
    fn who_is_beyond_a_bend_shares_no_more() {
        let there = breaks(&[wish(1, 0, 100), wish(1, 400, u128::MAX), None]);
        // The first has 100, the second 400, and what is left is the third's.
        assert_eq!(there.line_at(899, 3), Line { takes: 500, weight: 1 });
        assert_eq!(there.line_at(900, 3), Line { takes: 100, weight: 2 }, "400 is its part, too");
        assert_eq!(there.line_at(2_000, 3), Line { takes: 100, weight: 2 });
        assert_eq!(there.line_at(450, 3), Line { takes: 400, weight: 2 });
    }

    #[test]
    fn what_came_and_went_leaves_nothing() {
        let mut there = breaks(&[]);
        for turn in 0..2_000_usize {
            let vm = turn * 7_919 % 97;
            there.touch(vm);
            let turn = turn as u128;
            there.refresh(|_| wish(1 + turn as u64 % 5, turn % 3 * 7, 21 + turn * 31 % 101));
        }
        (0..97).for_each(|vm| there.touch(vm));
        there.refresh(|_| None);
        assert_eq!(there.total(), (Line::default(), 0, Line::default()));
        assert_eq!(there.root, NONE);
    }

    #[test]
    fn a_thousand_are_a_few_deep() {
        fn depth(there: &Breaks, node: usize) -> u32 {
            let Some(node) = there.nodes.get(node) else { return 0 };
            1 + depth(there, node.left).max(depth(there, node.right))
        }
        let all: Vec<_> = (0..1_000).map(|vm| wish(1, 1 + vm, 2_000 + vm)).collect();
        let there = breaks(&all);
        assert!(depth(&there, there.root) < 40, "{} deep", depth(&there, there.root));
    }
}
