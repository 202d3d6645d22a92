# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How long a short flow takes beside a long one, whenever it starts.

In `short-flows`, as in the papers, it starts 6 s after the long one: what it
finds in the queue then differs from capacity to capacity.  Here each seed has
another start, 5 to 15 s after the long flow's.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, one_kernel, vm_of

from .short_flows import SHORT, SHORT_BYTES, completion_s, queue_packets

RATES_MBIT = tuple(range(3, 11))
EARLIEST_S, STARTS = 5, 10
DURATION_S = 30.0
# From here on the papers claim it.
CLAIMED_MBIT = 3
# Why bounds do not hold.
LITTLE_ROOM = "a queue that the long flow has just emptied holds nobody up"


def scenario(rate_mbit: int, kind: str, seed: int) -> Scenario:
    start_s = EARLIEST_S + (seed - 1) % STARTS + Random(seed).random()
    flows = Flows(), Flows(start_s=start_s, bytes=SHORT_BYTES)
    bottleneck = Bottleneck(rate_mbit=rate_mbit, limit_packets=queue_packets(rate_mbit))
    return one_kernel(kind, seed, DURATION_S, vm_of(kind, *flows), bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    cases = effort.pick(RATES_MBIT, (10,))
    return grid("short-flows-any-time", effort.at_least(STARTS), cases, KINDS, scenario)


def short_s(run: Run) -> float:
    return completion_s(run, SHORT)


MEASURES = {"short s": short_s}


def scores(data: Data) -> list[Score]:
    result = []
    for rate in (rate for rate in data.cases if rate >= CLAIMED_MBIT):
        faster = data.ratio(rate, "coupled", "uncoupled", short_s).scaled(-100, 100)
        result.append(Score.mean(f"{rate} Mbit/s: short flow faster by", faster, "%", ">=", 40, uncoupled=0.0))
    return result


def plot(data: Data, stem: Path) -> None:
    plots.against_case(data, [Panel("short flow, s", short_s)], "capacity, Mbit/s", stem)


FIGURE = Figure(
    "completion time of a short flow that starts at any time",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {f"{rate} Mbit/s: short flow faster by": Known(LITTLE_ROOM, 15) for rate in (3, 4, 6)},
)
