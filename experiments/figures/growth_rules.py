# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whose growth the aggregate takes, with flows of 20, 40, ... 20n ms.

The papers' coordinating connection is the first flow or the nearest; ours is
the mean of all. The farthest is the first here, by half a second.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.scenario import Flows, Scenario, Vm
from ccc_experiments.scores import Score
from ccc_experiments.setups import one_kernel, vm_of

COUNTS = (2, 6, 10)
STEP_MS = 20
LATER_S, DURATION_S = 0.5, 60.0
FIRST, SHORTEST, MEAN, BY_RATE = (
    "coupled, first",
    "coupled, shortest RTT",
    "coupled, mean",
    "coupled, mean, by rate",
)
GROUPS = {
    FIRST: {"share": "window", "growth_source": "first"},
    SHORTEST: {"share": "window", "growth_source": "shortest-rtt"},
    MEAN: {"share": "window", "growth_source": "mean"},
    BY_RATE: {"share": "rate", "growth_source": "mean"},
}
KINDS = ("uncoupled", *GROUPS)


def run_of(kind: str, seed: int, *vms: Vm) -> Scenario:
    """VMs coupled by the rule of that kind."""
    group = GROUPS.get(kind, {})
    return one_kernel(kind, seed, DURATION_S, *vms, group=group, sample_ms=500)


def vms_of(count: int, kind: str) -> tuple[Vm, ...]:
    """Senders of 20 to 20n ms, a flow each."""
    near = (vm_of(kind, Flows(start_s=LATER_S), delay_ms=STEP_MS * i) for i in range(1, count))
    return (*near, vm_of(kind, Flows(), delay_ms=STEP_MS * count))


def scenario(count: int, kind: str, seed: int) -> Scenario:
    return run_of(kind, seed, *vms_of(count, kind))


def points(effort: Effort) -> Iterator[Point]:
    return grid("growth-rules", effort, effort.pick(COUNTS, COUNTS[-1:]), KINDS, scenario)


MEASURES = {
    "queue ms": lambda run: run.measured.queue_ms_mean,
    "loss %": lambda run: run.loss_percent(),
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
}


def scores(data: Data) -> list[Score]:
    result = []
    for count in data.cases:
        for kind in GROUPS:
            queue, loss, goodput = (
                data.ratio(count, kind, "uncoupled", measure) for measure in MEASURES.values()
            )
            name = f"{count} flows, {kind} over uncoupled"
            result += [
                Score.ratio(f"{name}: queue", queue, "<", 1),
                Score.ratio(f"{name}: loss", loss, "<", 1),
                Score.ratio(f"{name}: goodput", goodput, ">=", 0.97),
            ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("mean queue delay, ms", MEASURES["queue ms"]),
        Panel("packets lost, %", MEASURES["loss %"]),
        Panel("sum of goodput, Mbit/s", MEASURES["sum Mbit/s"], {"bottom": 0, "top": 10.4}),
    ]
    plots.against_case(data, panels, "flows, of 20 to 20n ms", stem)


FIGURE = Figure(
    "rules by which the aggregate grows",
    "paper Table I and Figure 7, with the CoCo rules of dissertation 9.2 and of the paper",
    points,
    scores,
    plot,
    MEASURES,
)
