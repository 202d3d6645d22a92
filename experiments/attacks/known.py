# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Bounds that do not hold so far, each with what was measured and a floor."""

from collections.abc import Iterator

from ccc_experiments.scores import Known

from .attacker import ATTACKS
from .figure import KEPT, LOSS, MOST, QUEUE, WHAT

# What was measured, in the order of `WHAT`; none: the bound holds.  With `enforce = "off"` (720da8df,
# seeds 101 to 105, taps that only look), and with "on" (a86f1a4d, seeds 541 to 545; what
# `cubic 16`, `bbr 4` have at most and `device reset` loses: 3c4460fb, seeds 101 to 105).
MEASURED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "off": {
        "loss 150 ms, deaf": (0.235, 3.51, 0.342, 1.24),
        "deaf": (0.261, 3.47, 0.332, None),
        "mute, deaf": (0.342, 3.33, 0.377, 1.21),
        "returns with 1 GB": (None, None, 0.0964, None),
        "segments of 65535": (None, None, 0.295, None),
        "growth 1 GB": (None, None, 0.15, None),
        "device reset": (None, 1.15, 0.116, None),
        "extent released": (None, 1.24, 0.297, None),
        "RTT 1 s, growth 1 GB": (None, None, 0.139, None),
        "limited slots, deaf": (0.31, 3.22, 0.341, 1.29),
        "acknowledges x 10": (None, None, 0.0974, None),
        "reno 1": (0.717, 2.4, None, None),
        "reno 4": (0.297, 3.45, 0.388, 1.22),
        "reno 16": (0.115, 3.71, 2.93, 1.46),
        "cubic 4": (0.219, 3.63, 0.405, 1.45),
        "cubic 16": (0.107, 3.71, 2.79, 1.63),
        "bbr 1": (0.139, 3.66, 2.42, 1.42),
        "bbr 4": (0.0991, 3.73, 10.8, 1.65),
        "bbr 16": (0.0747, 3.81, 16.3, 1.68),
        "UDP 20 Mbit/s": (0.0, 4.04, 50.1, 1.78),
    },
    "on": {
        "loss 150 ms, deaf": (None, None, 0.219, None),
        "deaf": (None, None, 0.175, None),
        "mute, deaf": (None, 1.08, 0.169, None),
        "returns with 1 GB": (None, None, 0.0904, None),
        "segments of 65535": (None, None, 0.276, None),
        "growth 1 GB": (None, None, 0.138, None),
        "device reset": (None, 1.07, 0.112, None),
        "extent released": (None, None, 0.0954, None),
        "RTT 1 s, growth 1 GB": (None, None, 0.121, None),
        "limited slots, deaf": (None, None, 0.147, None),
        "acknowledges x 10": (None, None, 0.0902, None),
        "reno 4": (None, None, 0.107, None),
        "reno 16": (None, None, 0.429, None),
        "cubic 4": (None, None, 0.0964, None),
        "cubic 16": (None, 1.07, 0.419, None),
        "bbr 4": (None, 1.09, 0.102, None),
        "bbr 16": (None, None, 0.446, None),
        "UDP 20 Mbit/s": (None, 1.14, 1.55, None),
    },
}
LIES = "no rule of the engine holds this lie"
REASONS = {"off": "nothing holds a VM to what it is granted", "on": "who is held is held after some seconds"}
# What an attacker has that has all, and a queue that is always full; of the way there a run may go a part.
ALL = {MOST: 4.1, QUEUE: 1.85}
WAY = 0.3


def floor(what: str, measured: float) -> float:
    """As much worse as runs with other seeds are at the most."""
    if what == KEPT:
        return measured * 0.7
    if what == LOSS:
        return measured * 2
    return min(measured * 1.25, measured + WAY * (ALL[what] - measured))


def known(enforce: str) -> Iterator[tuple[str, Known]]:
    for attack in ATTACKS:
        for what, measured in zip(WHAT, MEASURED[enforce].get(attack.name, ())):
            if measured is not None:
                reason = f"{LIES if attack.obeys else REASONS[enforce]}: {measured:g} was measured"
                yield f"{attack.name}: {what}", Known(reason, floor(what, measured))


KNOWN = {enforce: dict(known(enforce)) for enforce in MEASURED}
