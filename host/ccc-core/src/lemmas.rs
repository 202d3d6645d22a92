// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the lemmas of `proofs/` are of: the engine's own numbers at random points, which
//! `make proofs` compares with the model that the lemmas are proved for.
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::{
    fixed::{Fraction, Weight, Window, mul_div},
    flow::Contribution,
    grant::Grant,
    members::Members,
};

/// Of each function.
const POINTS: usize = 1_000;

/// A number of any magnitude up to so many bits.
fn any(random: &mut TestRng, bits: u32) -> u128 {
    use proptest::prelude::RngCore;
    let wide = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let kept = random.next_u32() % bits + 1;
    wide >> (128 - kept)
}

fn small(random: &mut TestRng, bits: u32) -> u64 {
    any(random, bits) as u64
}

fn print_fixed(random: &mut TestRng) {
    let [a, b, c] = [(); 3].map(|()| small(random, 64));
    println!("mul_div {a} {b} {c} = {}", mul_div(a, b, c));
    let bytes = small(random, 40);
    let (part, whole) = (any(random, 128), any(random, 128));
    let window = Window::from_bytes(bytes);
    let times = window.times(Fraction::new(part, whole)).raw();
    println!("times {} {part} {whole} = {times}", window.raw());
}

fn print_grants(random: &mut TestRng) {
    let level = small(random, 64);
    let units = small(random, 43);
    let grant = Grant { level, ..Grant::default() };
    println!("cwnd_bytes {level} {units} = {}", grant.cwnd_bytes(units));
    let (fraction, offset) = (small(random, 16), small(random, 16));
    let slots = 1u32 << (small(random, 8) % 7);
    // The guest's part, as docs/virtio-ccc.md gives it: the slot's number is bit-reversed.
    let sum: u64 = (0..slots)
        .map(|slot| (fraction + ((u64::from(slot.reverse_bits() >> 16) + offset) & 0xffff)) >> 16)
        .sum();
    println!("segments {fraction} {offset} {slots} = {sum}");
}

/// One to eight VMs with a flow each, all of them backlogged.
fn print_members(random: &mut TestRng) {
    let count = small(random, 8) as usize % 8 + 1;
    let mut members = Members::default();
    let mut told = String::new();
    let mut flows = Vec::new();
    for vm in 0..count {
        let weight = Weight::from_f64(small(random, 16) as f64 % 999.0 + 0.5).expect("in range");
        members.add(weight);
        let (priority, srtt_us) = (small(random, 15) + 1, small(random, 20) + 1);
        let units = priority * srtt_us;
        let flow = Contribution {
            priority,
            units,
            claimed: units,
            active: true,
            growing: true,
            ..Contribution::default()
        };
        members.count(vm, &Contribution::default(), &flow);
        told += &format!(" {} {priority} {units}", weight.raw());
        flows.push((weight.raw(), flow));
    }
    let window = Window::from_bytes(small(random, 40));
    let equal = members.equal_level(window);
    for (vm, (weight, flow)) in flows.iter().enumerate() {
        let level = members.grant_level(vm, equal, || members.max_min_level(equal));
        println!("level {} {vm}{told} = {}", window.raw(), level.expect("active"));
        let own = Contribution { units: flow.units / 3 + 1, ..*flow };
        let part = members.weight(vm, &own);
        println!("part {weight} {} {} {} = {part}", flow.priority, flow.units, own.units);
    }
}

#[test]
#[ignore = "prints points for `make proofs`"]
fn points_for_the_lemmas() {
    // Begins a line: the harness has one of its own before.
    println!();
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for _ in 0..POINTS {
        print_fixed(&mut random);
        print_grants(&mut random);
        print_members(&mut random);
    }
}
