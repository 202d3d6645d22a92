# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The engine's arithmetic as formulas: each function is named after the one it models.

They take whole numbers and give whole numbers, rounded as the engine rounds; points.py
compares each with what the engine itself computes, so that a change there is found here.
"""

from dataclasses import dataclass

U64 = 2**64 - 1
WINDOW_MAX = 2**56
# host/ccc-core/src/fixed.rs: parts keep so many bits beside a window's 57.
PART_BITS = 71


def mul_div(a: int, b: int, c: int) -> int:
    """`fixed::mul_div`"""
    return a if c == 0 else min(a * b // c, U64)


def times(window: int, part: int, whole: int) -> int:
    """`fixed::Window::times`, of raw windows."""
    if whole == 0 or part == whole:
        return window
    shift = max(max(part, whole).bit_length() - PART_BITS, 0)
    part, whole = part >> shift, max(whole >> shift, 1)
    return min(window * part // whole, U64, WINDOW_MAX)


@dataclass(frozen=True)
class Vm:
    """`members::Member` with backlogged flows alone, which claim what is believed."""

    weight: int
    priorities: int
    units: int

    @property
    def effective(self) -> int:
        """`Member::effective_of`"""
        return max(mul_div(self.weight, self.units, self.priorities), 1)

    def part(self, units: int) -> int:
        """`Member::part`"""
        return mul_div(self.effective << 16, units, self.units)


def rate(window: int, vms: list[Vm]) -> int:
    """`Members::equal_level`"""
    weight, effective = sum(vm.weight for vm in vms), sum(vm.effective for vm in vms)
    return (window << 16) * weight // max(effective, 1)


def level(window: int, vms: list[Vm], number: int) -> int:
    """`Members::grant_level`"""
    weight = sum(vm.weight for vm in vms)
    vm = vms[number]
    part = rate(window, vms) * vm.weight // max(weight, 1)
    return min(part // vm.priorities, U64 - 1)


def cwnd_bytes(granted: int, units: int) -> int:
    """`Grant::cwnd_bytes`"""
    return min((granted * units) >> 32, U64)


def segments(fraction: int, offset: int, slots: int) -> int:
    """Whole segments of so many flows, each of `fraction`/2^16 of one (docs/virtio-ccc.md).

    Flows add the bit-reversed number of their slot before they round down; `slots` is a
    power of two, so these are multiples of 2^16 / slots."""
    return sum((fraction + (offset + (i << 16) // slots) % 2**16) >> 16 for i in range(slots))
