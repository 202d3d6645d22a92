# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The figure `short-flows`, its short flow taken for one of 200 kbit.

The papers write 200 Kb, which may be either.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.lab import Scenario
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS

from .short_flows import FULL_QUEUE, RATES_MBIT, SHORT, beside_long, completion_s

SHORT_BYTES = 25_000
DURATION_S = 15.0
# Why bounds do not hold.
ROUND_TRIPS = "25 KB take a handshake and two round trips, of which coupling shortens the wait in the queue"


def scenario(rate_mbit: int, kind: str, seed: int) -> Scenario:
    return beside_long(rate_mbit, kind, seed, SHORT_BYTES, DURATION_S)


def points(effort: Effort) -> Iterator[Point]:
    return grid("short-flows-in-bits", effort, effort.pick(RATES_MBIT, (10,)), KINDS, scenario)


def short_s(run: Run) -> float:
    return completion_s(run, SHORT)


MEASURES = {"short s": short_s}


def scores(data: Data) -> list[Score]:
    result = []
    for rate in data.cases:
        faster = data.ratio(rate, "coupled", "uncoupled", short_s).scaled(-100, 100)
        if rate >= 3:
            result.append(Score.mean(f"{rate} Mbit/s: short flow faster by", faster, "%", ">=", 40))
    return result


def plot(data: Data, stem: Path) -> None:
    plots.against_case(data, [Panel("short flow, s", short_s)], "capacity, Mbit/s", stem)


FIGURE = Figure(
    "completion time of a short flow of 200 kbit beside a long one",
    "dissertation Figure 9.7, read in bits",
    points,
    scores,
    plot,
    MEASURES,
    {f"{rate} Mbit/s: short flow faster by": ROUND_TRIPS for rate in (3, 7, 8, 9, 10)}
    | {"4 Mbit/s: short flow faster by": FULL_QUEUE},
)
