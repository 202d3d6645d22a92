# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Flows of different round-trip times: n flows have 20, 40, ... 20n ms.

Shares are of the rate, which is the daemon's default, or of the window.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.measure import jain
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, one_kernel, several_kernels, vm_of

COUNTS = tuple(range(2, 11))
STEP_MS = 20
BY_RATE = "coupled"
BY_WINDOW = "coupled by window"
# A kernel, and so a VM of the daemon's, for each flow.
VM_EACH = ("uncoupled, a VM each", "coupled, a VM each")
COUNTS_OF_VMS = (2, 6)
DURATION_S = 100.0


def scenario(count: int, kind: str, seed: int) -> Scenario:
    vms = (vm_of(kind, Flows(), delay_ms=STEP_MS * (i + 1)) for i in range(count))
    group = {"share": "window" if kind == BY_WINDOW else "rate"}
    if kind in VM_EACH:
        return several_kernels(kind, seed, DURATION_S, *vms, group=group)
    return one_kernel(kind, seed, DURATION_S, *vms, group=group)


def points(effort: Effort) -> Iterator[Point]:
    cases = effort.pick(COUNTS, (2, 10))
    yield from grid("rtts", effort, cases, (*KINDS, BY_WINDOW), scenario)
    yield from grid("rtts", effort, effort.pick(COUNTS_OF_VMS, (2,)), VM_EACH, scenario)


def jain_of_rates(run: Run) -> float:
    """From 5 s on."""
    flows = range(1, len(run.scenario.vms) + 1)
    return jain([run.rate_mbit(f"vm{i}", 5, DURATION_S) for i in flows])


MEASURES = {
    "queue ms": lambda run: run.measured.queue_ms_mean,
    "loss %": lambda run: run.loss_percent(),
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "Jain of rates": jain_of_rates,
}


def scores(data: Data) -> list[Score]:
    result = []
    for count in data.cases:
        pairs = [("uncoupled", BY_RATE), ("uncoupled", BY_WINDOW), VM_EACH]
        for uncoupled, kind in (pair for pair in pairs if data.has(count, pair[1])):
            queue, loss, goodput = (
                data.ratio(count, kind, uncoupled, MEASURES[name])
                for name in ("queue ms", "loss %", "sum Mbit/s")
            )
            name = f"{count} flows, {kind} over uncoupled"
            result += [
                Score.ratio(f"{name}: queue", queue, "<", 1),
                Score.ratio(f"{name}: loss", loss, "<", 1),
                Score.ratio(f"{name}: goodput", goodput, ">=", 0.97),
            ]
        name = f"{count} flows, shares by rate: Jain's index"
        if data.has(count, BY_RATE):
            result.append(data.score(name, count, BY_RATE, jain_of_rates, "1", ">=", 0.99))
        if data.has(count, VM_EACH[1]):
            fair, other = (data.mean(count, kind, jain_of_rates) for kind in reversed(VM_EACH))
            name = f"{count} VMs, shares by rate: Jain's index"
            result.append(Score.mean(name, fair, "1", ">=", 0.99, uncoupled=other.mean))
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("mean queue delay, ms", MEASURES["queue ms"]),
        Panel("packets lost, %", MEASURES["loss %"], log_from=0.01),
        Panel("sum of goodput, Mbit/s", MEASURES["sum Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("Jain's index of rates", jain_of_rates, {"bottom": 0, "top": 1.04}),
    ]
    plots.against_case(data, panels, "flows, of 20 to 20n ms", stem)


FIGURE = Figure(
    "flows of 20 to 200 ms", "paper Table I and Figure 7", points, scores, plot, MEASURES
)
