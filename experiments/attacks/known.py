# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Bounds that do not hold so far, each with what was measured and a floor."""

from collections.abc import Iterator

from ccc_experiments.scores import Known

from .attacker import ATTACKS
from .figure import KEPT, WHAT

LIES = "no rule of the engine holds this lie"
BYTES = "nothing holds a VM to what it is granted"

# What was measured, in the order of `WHAT`; none: the bound holds.
MEASURED: dict[str, tuple[float | None, ...]] = {
    "loss 150 ms, deaf": (0.228, 3.55, 0.496, 1.31),
    "deaf": (0.217, 3.68, 0.326, 1.26),
    "mute, deaf": (0.326, 3.39, 0.348, 1.31),
    "returns with 1 GB": (None, None, 0.0891, None),
    "segments of 65535": (None, None, 0.171, None),
    "loss and undo": (None, None, None, 1.07),
    "device reset": (0.394, 1.27, 0.139, None),
    "extent released": (0.88, 1.3, 0.286, None),
    "acknowledges x 10": (None, None, 0.0883, None),
    "limited slots, deaf": (0.318, 3.21, 0.334, 1.29),
    "reno 1": (0.701, 2.3, None, None),
    "reno 4": (0.318, 3.4, 0.38, 1.3),
    "reno 16": (0.121, 3.79, 2.7, 1.51),
    "cubic 4": (0.227, 3.64, 0.411, 1.56),
    "cubic 16": (0.107, 3.8, 2.58, 1.73),
    "bbr 1": (0.143, 3.65, 1.15, 1.33),
    "bbr 4": (0.0977, 3.73, 10.5, 1.77),
    "bbr 16": (0.0745, 3.83, 16.6, 1.8),
    "UDP 20 Mbit/s": (0.00124, 4.05, 50.1, 1.91),
}


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
