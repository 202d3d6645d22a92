# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Seeds of runs: those that score, and how others are asked for.

Whoever tunes a rule takes seeds below `FIRST`. Those that score no tuning has seen.
"""

import re

FIRST = 101
MOST = 1000
_EXPECTED = "how many (3) or which (101..110)"


class BadSeeds(ValueError):
    """SEEDS does not name any."""


def scoring(count: int) -> tuple[int, ...]:
    """The first of those that score."""
    return tuple(range(FIRST, FIRST + count))


def parse(text: str) -> tuple[int, ...]:
    """`3`: the first three that score; `1..50`: these."""
    found = re.fullmatch(r"(?:(\d{1,9})\.\.)?(\d{1,9})", text, re.ASCII)
    if not found:
        raise BadSeeds(f"invalid SEEDS: expected {_EXPECTED}, got '{text}'")
    first, last = found.groups()
    chosen = scoring(int(last)) if first is None else tuple(range(int(first), int(last) + 1))
    if not 0 < len(chosen) <= MOST:
        raise BadSeeds(f"invalid SEEDS: expected {_EXPECTED}, 1 to {MOST} of them, got '{text}'")
    return chosen


def text(seeds: tuple[int, ...]) -> str:
    """These seeds as `parse` takes them."""
    return f"{seeds[0]}..{seeds[-1]}"
