# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What coupling is worth when the daemon hears of things late: 0 to 300 ms."""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import several_kernels, vm_of
from ccc_experiments.sharing import MEASURES, PANELS, jain

DELAYS_MS = (0, 1, 10, 30, 100, 200, 300)
DURATION_S = 60.0
KIND = "coupled"
UNCOUPLED = "uncoupled"


# Why a bound does not hold.
LATE = (
    "all but 6 or 7 of the packets lost are of the first slow start, of whose end the daemon hears a round trip late, "
    "when the window has doubled once more"
)


def scenario(delay_ms: float, kind: str, seed: int) -> Scenario:
    vms = (vm_of(kind, Flows()), vm_of(kind, Flows(count=4)))
    delay = delay_ms if delay_ms and kind == KIND else None
    return several_kernels(kind, seed, DURATION_S, *vms, doorbell_delay_ms=delay)


def points(effort: Effort) -> Iterator[Point]:
    delays = effort.pick(DELAYS_MS, (0, 100))
    return grid("signalling-delay", effort, delays, (UNCOUPLED, KIND), scenario)


def scores(data: Data) -> list[Score]:
    result = []
    for delay in (d for d in data.cases if d <= 100):
        result.append(data.worst(f"{delay} ms: least Jain's index, coupled", delay, KIND, jain, "1", ">=", 0.995))
    for delay in data.cases:
        loss = data.ratio(delay, KIND, UNCOUPLED, MEASURES["loss %"])
        result.append(Score.ratio(f"{delay} ms: coupled over uncoupled loss", loss, "<", 1))
    return result


def plot(data: Data, stem: Path) -> None:
    plots.against_case(data, PANELS, "delay of doorbells, ms", stem)


FIGURE = Figure(
    "coupling under signalling delay", "none: new (dissertation Figure 6.11 for video)",
    points, scores, plot, MEASURES,
    {"100 ms: coupled over uncoupled loss": Known(LATE, 1.3)},
)
