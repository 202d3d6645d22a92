# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Bounds that do not hold so far, each with what was measured and a floor."""

from collections.abc import Iterator

from ccc_experiments.scores import Known

from .attacker import ATTACKS
from .figure import KEPT, WHAT

LIES = "the engine believes what a VM says"
BYTES = "nothing holds a VM to what it is granted"

# What was measured, in the order of `WHAT`; none: the bound holds.
MEASURED: dict[str, tuple[float | None, ...]] = {}


def floor(what: str, measured: float) -> float:
    """As much worse as runs with other seeds are at the most."""
    return measured / 2 if what == KEPT else measured * 2


def known() -> Iterator[tuple[str, Known]]:
    for attack in ATTACKS:
        for what, measured in zip(WHAT, MEASURED.get(attack.name, ())):
            if measured is not None:
                reason = f"{LIES if attack.obeys else BYTES}: {measured:g} was measured"
                yield f"{attack.name}: {what}", Known(reason, floor(what, measured))


KNOWN = dict(known())
