# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Bounds that do not hold so far, each with what was measured and a floor."""

from collections.abc import Iterator

from ccc_experiments.scores import Known

from .attacker import ATTACKS
from .figure import KEPT, LOSS, MOST, QUEUE, WHAT

# What was measured with `enforce` so set (613276b, seeds 172 to 176), in the order of `WHAT`;
# none: the bound holds.
MEASURED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "off": {
        "loss 150 ms, deaf": (0.177, 3.58, 0.583, 1.26),
        "deaf": (0.256, 3.44, 0.343, 1.21),
        # seeds 221 to 225, with which nothing was tuned
        "RTT 10 s, priority 10, loss": (0.861, None, None, None),
        "mute, deaf": (0.344, 3.3, 0.402, 1.23),
        "segments of 65535": (None, None, 0.31, None),
        "growth 1 GB": (None, None, 0.0854, None),
        "device reset": (None, 1.15, 0.134, None),
        "extent released": (None, 1.26, 0.283, None),
        "limited slots, deaf": (0.309, 3.23, 0.329, 1.31),
        "acknowledges x 10": (None, None, 0.0864, None),
        "reno 1": (0.733, 2.33, None, None),
        "reno 4": (0.324, 3.4, 0.385, 1.22),
        "reno 16": (0.117, 3.71, 2.93, 1.45),
        "cubic 4": (0.235, 3.6, 0.405, 1.46),
        "cubic 16": (0.107, 3.72, 2.8, 1.63),
        "bbr 1": (0.166, 3.65, 2.13, 1.39),
        "bbr 4": (0.097, 3.75, 11.4, 1.66),
        "bbr 16": (0.0755, 3.82, 16.1, 1.69),
        "UDP 20 Mbit/s": (0.0, 4.04, 50, 1.79),
    },
    "on": {
        "loss 150 ms, deaf": (None, None, 0.384, None),
        "deaf": (None, None, 0.142, None),
        "mute, deaf": (None, None, 0.135, None),
        "segments of 65535": (None, None, 0.31, None),
        "growth 1 GB": (None, None, 0.0854, None),
        "device reset": (None, 1.15, 0.134, None),
        "extent released": (None, 1.09, 0.143, None),
        "limited slots, deaf": (None, None, 0.11, None),
        "acknowledges x 10": (None, None, 0.0864, None),
        "reno 4": (None, None, 0.116, None),
        "reno 16": (None, None, 0.421, None),
        "cubic 4": (None, None, 0.0923, None),
        "cubic 16": (None, None, 0.43, None),
        "bbr 4": (None, 1.09, 0.118, None),
        "bbr 16": (None, None, 0.444, None),
        "UDP 20 Mbit/s": (None, 1.15, 1.59, None),
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
