# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Far short flows come and go beside a near long one, at a short queue.

Each of them joins and leaves, and what a joiner's or leaver's part of the rate
is in windows differs twentyfold.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from ccc_experiments import completion, plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

NEAR_MS, FAR_MS = 10.0, 200.0
QUEUE_PACKETS = 20
SHORT_BYTES = 100_000
# Flows that begin each second, in the mean, and when the first and last may.
ARRIVALS_S, FIRST_S, LAST_S, DURATION_S = (0.5, 1.0), 5.0, 55.0, 60.0


# Why a bound does not hold.
SOME = "the mean of ten seeds holds, 0.989 ± 0.005, two seeds of ten are below"
LESS = "the mean of ten seeds is at the bound; the far flows are done in 0.28 of the time"


def short_flows(per_second: float, seed: int) -> tuple[Flows, ...]:
    """A Poisson process of them."""
    random, result = Random(seed), []
    at_s = FIRST_S + random.expovariate(per_second)
    while at_s < LAST_S:
        result.append(Flows(start_s=round(at_s, 6), bytes=SHORT_BYTES))
        at_s += random.expovariate(per_second)
    return tuple(result)


def scenario(per_second: float, kind: str, seed: int) -> Scenario:
    near = vm_of(kind, Flows(), delay_ms=NEAR_MS)
    far = vm_of(kind, *short_flows(per_second, seed), delay_ms=FAR_MS)
    bottleneck = Bottleneck(limit_packets=QUEUE_PACKETS)
    return several_kernels(kind, seed, DURATION_S, near, far, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("distant-short-flows", effort, effort.pick(ARRIVALS_S, (0.5,)), KINDS, scenario)


MEASURES = {
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "median s": lambda run: completion.median_s(completion.times_s(run, 1)),
    "p95 s": lambda run: completion.p95_s(completion.times_s(run, 1)),
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for rate in data.cases:
        goodput = data.ratio(rate, "coupled", "uncoupled", MEASURES["sum Mbit/s"])
        median = data.ratio(rate, "coupled", "uncoupled", MEASURES["median s"])
        result += [
            Score.ratio(f"{rate:g} a second: coupled over uncoupled goodput", goodput, ">=", 0.98),
            Score.ratio(f"{rate:g} a second: coupled over uncoupled median completion", median, "<=", 1),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("sum of goodput, Mbit/s", MEASURES["sum Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("median completion time, s", MEASURES["median s"]),
        Panel("95th percentile, s", MEASURES["p95 s"]),
        Panel("packets dropped", MEASURES["dropped"]),
    ]
    plots.against_case(data, panels, "far flows of 100 KB a second", stem)


FIGURE = Figure(
    "far short flows beside a near long one", "none: new", points, scores, plot, MEASURES,
    {
        f"{ARRIVALS_S[0]:g} a second: coupled over uncoupled goodput": Known(SOME, 0.96),
        f"{ARRIVALS_S[-1]:g} a second: coupled over uncoupled goodput": Known(LESS, 0.95),
    },
)
