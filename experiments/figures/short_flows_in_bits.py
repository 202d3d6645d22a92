# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The figure `short-flows`, its short flow taken for one of 200 kbit.

The papers write 200 Kb, which may be either.
"""

from collections.abc import Iterator

from ccc_experiments.figure import Effort, Figure, Point, grid
from ccc_experiments.scenario import Scenario
from ccc_experiments.scores import Known
from ccc_experiments.setups import KINDS

from .short_flows import FULL_QUEUE, RATES_MBIT, beside_long
from .short_flows_any_time import MEASURES, plot, scores

SHORT_BYTES = 25_000
DURATION_S = 15.0
# Why bounds do not hold.
ROUND_TRIPS = "25 KB take a handshake and two round trips, of which coupling shortens the wait in the queue"
# What is faster all the same, percent, by capacity.
FLOORS = {3: -15, 7: 20, 8: 20, 9: 20, 10: 20}


def scenario(rate_mbit: int, kind: str, seed: int) -> Scenario:
    return beside_long(rate_mbit, kind, seed, SHORT_BYTES, DURATION_S)


def points(effort: Effort) -> Iterator[Point]:
    return grid("short-flows-in-bits", effort, effort.pick(RATES_MBIT, (10,)), KINDS, scenario)


FIGURE = Figure(
    "completion time of a short flow of 200 kbit beside a long one",
    "dissertation Figure 9.7, read in bits",
    points,
    scores,
    plot,
    MEASURES,
    {f"{rate} Mbit/s: short flow faster by": Known(ROUND_TRIPS, floor) for rate, floor in FLOORS.items()}
    | {"4 Mbit/s: short flow faster by": Known(FULL_QUEUE, 0)},
)
