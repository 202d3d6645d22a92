# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Guests whose processors stand still at times, as on a host that has too little of them.

What waited leaves in a burst, and the losses of a burst tell little of the path.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.scenario import Flows, Scenario, Stalls
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of
from ccc_experiments.sharing import jain

DURATION_S = 60.0
# How long each lasts, and what part of the time they are in the mean, percent.
FOR_MS = (5.0, 50.0)
STILL_PERCENT = (0, 5, 10, 20)


def stalls(percent: float) -> Stalls | None:
    """Both VMs have their own, by turns with times that spread as widely."""
    if not percent:
        return None
    ratio = 100 / percent - 1
    return Stalls((FOR_MS[0] * ratio, FOR_MS[1] * ratio), FOR_MS)


def scenario(percent: int, kind: str, seed: int) -> Scenario:
    vms = (vm_of(kind, Flows(count=count), stalls=stalls(percent)) for count in (1, 4))
    return several_kernels(kind, seed, DURATION_S, *vms)


def points(effort: Effort) -> Iterator[Point]:
    return grid("stalls", effort, effort.pick(STILL_PERCENT, (10,)), KINDS, scenario)


MEASURES = {
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "Jain": jain,
    "dropped": lambda run: run.measured.dropped_packets,
    "queue ms": lambda run: run.measured.queue_ms_mean,
}


def scores(data: Data) -> list[Score]:
    result = []
    for percent in data.cases:
        goodput = data.ratio(percent, "coupled", "uncoupled", MEASURES["sum Mbit/s"])
        result += [
            Score.ratio(f"{percent} % still: coupled over uncoupled goodput", goodput, ">=", 0.98),
            data.worst(
                f"{percent} % still: least Jain's index of the VMs, coupled", percent, "coupled", jain, "1", ">=", 0.995
            ),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("sum of goodput, Mbit/s", MEASURES["sum Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("Jain's index of the VMs", jain, {"bottom": 0, "top": 1.04}),
        Panel("packets dropped", MEASURES["dropped"], log_from=10),
        Panel("mean queue delay, ms", MEASURES["queue ms"]),
    ]
    plots.against_case(data, panels, "time in which a VM stands still, %", stem)


FIGURE = Figure("guests that stand still for 5 to 50 ms", "none: new", points, scores, plot, MEASURES)
