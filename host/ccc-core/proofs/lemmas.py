# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Lemmas of the engine's arithmetic, proved by z3 for all numbers of the ranges they name.

A quotient q = ⌊a / c⌋ is what the lemma's facts say of it: c·q ≤ a < c·(q + 1).  Long
products are proved step by step, each from what the one before has shown.
"""

from collections.abc import Callable

import z3

# The most there may be: VMs of weight 1000, whose flows are a second away.
VMS = 10_000
WEIGHT = 1000 * 256
UNIT = 2**20
# The largest priority, and that of all flows of a VM.
PRIORITY = 2560
PRIORITIES = 4096 * PRIORITY
# 400 Gbit/s for a second, with 16 fraction bits; any window is at most WINDOW.
PATH = 50 * 10**9 << 16
WINDOW = 2**56
U64 = 2**64
U128 = 2**128

LEMMAS: dict[str, Callable[[], list[tuple[z3.BoolRef, z3.BoolRef]]]] = {}


def lemma(name: str):
    def add(steps: Callable[[], list[tuple[z3.BoolRef, z3.BoolRef]]]):
        LEMMAS[name] = steps
        return steps

    return add


def quotient(q: z3.ArithRef, a: z3.ArithRef, c: z3.ArithRef) -> z3.BoolRef:
    """q is ⌊a / c⌋ for c > 0."""
    return z3.And(q >= 0, c * q <= a, a < c * (q + 1))


def within(value: z3.ArithRef, least: int, most: int) -> z3.BoolRef:
    return z3.And(least <= value, value <= most)


@lemma("Window::times: no product exceeds 128 bits, whatever the fraction")
def _():
    window, part, kept = z3.Ints("window part kept")
    steps = []
    for shift in range(128 - 71 + 1):
        bits = 71 + shift
        facts = [within(window, 0, WINDOW), within(part, 0, 2**bits - 1), quotient(kept, part, z3.IntVal(2**shift))]
        steps.append((z3.And(facts), kept < 2**71))
    return [*steps, (z3.And(within(window, 0, WINDOW), within(kept, 0, 2**71 - 1)), window * kept < U128)]


@lemma("Window::times: a part of the whole is at most the window")
def _():
    window, part, whole, got = z3.Reals("window part whole got")
    # The shift keeps the order: ⌊p / 2^s⌋ ≤ ⌊w / 2^s⌋ for p ≤ w.
    facts = z3.And(window >= 0, part >= 0, part <= whole, whole >= 1, got * whole <= window * part)
    ordered = window * part <= window * whole
    return [(facts, ordered), (z3.And(facts, ordered), got <= window)]


@lemma("Members: no sum over 10,000 VMs of weight 1000 at a second exceeds 64 bits")
def _():
    vms, weight, each, effective = z3.Ints("vms weight each effective")
    units, priorities = z3.Ints("units priorities")
    # A unit is a priority times at most UNIT microseconds (ShareOf::units).
    facts = z3.And(
        within(vms, 1, VMS), within(weight, 1, WEIGHT), within(priorities, 1, PRIORITIES),
        priorities <= units, units <= UNIT * priorities, quotient(effective, weight * units, priorities),
    )  # fmt: skip
    top = effective <= UNIT * weight
    product = weight * units <= UNIT * weight * priorities
    return [
        (facts, product),
        (z3.And(facts, product), top),
        # `effective << 16` in Member::part.
        (z3.And(top, within(weight, 1, WEIGHT)), effective * 2**16 < U64),
        # Sums::effective, and its `growing`, which has 16 bits more and needs the 128.
        (z3.And(within(each, 0, UNIT * WEIGHT), within(vms, 1, VMS)), vms * each < U64),
        (z3.And(within(each, 0, UNIT * WEIGHT), within(vms, 1, VMS)), vms * each * 2**16 < U128),
        # A VM's units.
        (z3.And(within(priorities, 1, PRIORITIES), units <= UNIT * priorities), units < U64),
    ]


@lemma("Members::equal_level, MaxMinLevel::part: no product exceeds 128 bits")
def _():
    window, weight, effective, rate, own = z3.Ints("window weight effective rate own")
    facts = z3.And(within(window, 0, WINDOW), within(weight, 1, VMS * WEIGHT), weight <= effective)
    quotients = z3.And(facts, quotient(rate, window * 2**16 * weight, effective))
    # As many units as priorities, or more: so the rate is at most the window.
    bound = window * weight <= window * effective
    low = rate <= window * 2**16
    return [
        (facts, window * 2**16 * weight < U128),
        (facts, bound),
        (z3.And(quotients, bound), low),
        (z3.And(within(rate, 0, WINDOW * 2**16), within(own, 1, WEIGHT)), rate * own < U128),
    ]


@lemma("400 Gbit/s at a second is a window that the engine can have")
def _():
    return [(z3.BoolVal(True), z3.IntVal(PATH) < WINDOW)]


def _shares():
    """A VM's weight w, its flows' priorities and units, and those of all; what it is granted."""
    return z3.Reals("window weights effectives rate w part priorities units e level sent")


def _rounded():
    """What the engine computes, in the order it does: all but `sent` are whole numbers."""
    window, weights, effectives, rate, w, part, priorities, units, e, level, sent = _shares()
    return z3.And(
        window >= 0, weights >= w, w >= 1, priorities >= 1, units >= priorities, effectives >= e, e >= w,
        # Members::equal_level; MaxMinLevel::part; grant_level; effective_of; cwnd_bytes of all units.
        rate >= 0, rate * effectives <= window * weights, window * weights < (rate + 1) * effectives,
        part >= 0, part * weights <= rate * w, rate * w < (part + 1) * weights,
        level >= 0, level * priorities <= part, part < (level + 1) * priorities,
        e * priorities <= w * units, w * units < (e + 1) * priorities,
        sent == level * units,
    )  # fmt: skip


@lemma("grant_level: a VM is granted at most its part and a rounding of its weight: so all get the window")
def _():
    window, weights, effectives, rate, w, part, priorities, units, e, level, sent = _shares()
    # part · weights · effectives ≤ rate · effectives · w ≤ window · weights · w
    a = part * weights * effectives <= rate * effectives * w
    b = rate * effectives * w <= window * weights * w
    c = part * effectives <= window * w
    d = sent * priorities <= part * units
    f = part * units * effectives <= window * w * units
    g = window * (w * units) <= window * ((e + 1) * priorities)
    h = sent * effectives <= window * (e + 1)
    product = [part >= 0, weights > 0, effectives > 0, w > 0, units > 0, priorities > 0, window >= 0]
    return [
        (z3.And(part * weights <= rate * w, effectives > 0), a),
        (z3.And(rate * effectives <= window * weights, w > 0), b),
        (z3.And(a, b, weights > 0), c),
        (z3.And(level * priorities <= part, sent == level * units, units > 0), d),
        (z3.And(c, units > 0), f),
        (z3.And(w * units < (e + 1) * priorities, window >= 0), g),
        (z3.And(sent * priorities * effectives <= part * units * effectives, f, g, *product), h),
        # Where shares are windows a unit is a priority, and nothing is rounded: exactly its part.
        (z3.And(c, units == priorities, sent * priorities <= part * units, *product), sent * effectives <= window * w),
        # What the steps take from it is all of what the engine computes.
        (_rounded(), z3.And(part * weights <= rate * w, level * priorities <= part, w * units < (e + 1) * priorities)),
    ]


@lemma("grant_level: a VM is granted its part less a byte for each of its flows")
def _():
    window, weights, effectives, rate, w, part, priorities, units, _, level, sent = _shares()
    flows = z3.Real("flows")
    positive = [weights >= w, w >= 1, effectives >= 1, window >= 0, part >= 0, priorities >= 1, rate >= 0, units >= 1]
    # In units of 2^-32 bytes, what each rounding loses is less than one of its own.
    a = (rate + 1) * effectives > window * weights
    b = (part + 1) * weights > rate * w
    c = level * priorities > part - priorities
    from_b = (part + 1) * weights * effectives > rate * effectives * w
    from_a = rate * effectives * w > window * weights * w - effectives * w
    of_all = (part + 2) * effectives * weights > window * weights * w
    of_one = (part + 2) * effectives > window * w
    granted = sent * priorities > (part - priorities) * units
    return [
        (z3.And(b, *positive), from_b),
        (z3.And(a, w >= 1), from_a),
        # A VM's weight is at most that of all.
        (z3.And(from_b, from_a, effectives * w <= effectives * weights), of_all),
        (z3.And(w <= weights, effectives >= 1), effectives * w <= effectives * weights),
        (z3.And(of_all, *positive), of_one),
        (z3.And(level * priorities <= part, part < (level + 1) * priorities), c),
        (z3.And(c, sent == level * units, units >= 1), granted),
        (
            z3.And(granted, of_one, *positive),
            sent * priorities * effectives > (window * w - (2 + priorities) * effectives) * units,
        ),
        # What that is less than window * w * units / (priorities * effectives), its part.
        (
            z3.And(flows >= 1, priorities >= 1, priorities <= PRIORITY * flows, units <= UNIT * priorities),
            (2 + priorities) * UNIT <= 2**32 * flows,
        ),
        (
            z3.And((2 + priorities) * UNIT <= 2**32 * flows, units <= UNIT * priorities, priorities >= 1),
            (2 + priorities) * units <= 2**32 * flows * priorities,
        ),
    ]


@lemma("rounding to segments: flows in a block of slots have together what they are granted, within one")
def _():
    steps = []
    for slots in (2, 4, 8, 16):
        fraction, offset = z3.BitVecs("fraction offset", 32)
        wide = z3.BitVecVal(0xFFFF, 32)
        each = [
            z3.LShR((fraction & wide) + ((offset + z3.BitVecVal((i << 16) // slots, 32)) & wide), 16)
            for i in range(slots)
        ]
        total = sum(each[1:], each[0]) << 16
        exact = (fraction & wide) * slots
        holds = z3.And(z3.ULE(total, exact + 0xFFFF + slots), z3.ULT(exact, total + 0x10000))
        steps.append((z3.And(z3.ULE(fraction, wide), z3.ULE(offset, wide)), holds))
    return steps
