# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Queues shorter than a bandwidth-delay product, at 20 and 100 Mbit/s.

One TCP that halves leaves such a path idle for a while; several that halve by
turns do not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, is_coupled, several_kernels
from ccc_experiments.sharing import jain

DURATION_S = 30.0


@dataclass(frozen=True)
class Case:
    """A path, the flows of both VMs, and their algorithm."""

    rate_mbit: float
    delay_ms: float
    queue_packets: int
    flows: tuple[int, int]
    inner: str = "reno"

    def __str__(self) -> str:
        inner = "" if self.inner == "reno" else f" {self.inner.upper()}"
        return f"{self.rate_mbit:g} Mbit/s{inner} {self.flows[0]}:{self.flows[1]}"


SLOW = Case(20, 40, 20, (1, 6))
# 100 Mbit/s of 20 ms are 165 packets, a quarter of which are 41.
FAST = tuple(Case(100, 20, 41, (1, count), inner) for inner, count in (("reno", 4), ("reno", 16), ("cubic", 4)))


def scenario(case: Case, kind: str, seed: int) -> Scenario:
    bottleneck = Bottleneck(rate_mbit=case.rate_mbit, limit_packets=case.queue_packets, delay_ms=case.delay_ms)
    vms = (_vm(kind, case.inner, count) for count in case.flows)
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck)


def _vm(kind: str, inner: str, count: int) -> Vm:
    flows = (Flows(count=count),)
    if is_coupled(kind):
        return Vm(flows, module_options="" if inner == "reno" else f"inner={inner}")
    return Vm(flows, congestion_control=inner)


def points(effort: Effort) -> Iterator[Point]:
    cases = effort.pick((SLOW, *FAST), (SLOW,))
    return grid("queue-lengths", effort, cases, KINDS, scenario)


MEASURES = {
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "Jain": jain,
    "dropped": lambda run: run.measured.dropped_packets,
    "queue ms": lambda run: run.measured.queue_ms_mean,
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        goodput = data.ratio(case, "coupled", "uncoupled", MEASURES["sum Mbit/s"])
        dropped = data.ratio(case, "coupled", "uncoupled", MEASURES["dropped"])
        result += [
            Score.ratio(f"{case}: coupled over uncoupled goodput", goodput, ">=", 0.98),
            Score.ratio(f"{case}: coupled over uncoupled drops", dropped, "<=", 0.2),
            data.worst(f"{case}: least Jain's index of the VMs, coupled", case, "coupled", jain, "1", ">=", 0.995),
        ]
    return result


def used(run) -> float:
    """Goodput of what the link carries, percent."""
    return 100 * run.measured.sum_mbit / run.scenario.bottleneck.rate_mbit


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput, % of the rate", used, {"bottom": 0, "top": 104}),
        Panel("Jain's index of the VMs", jain, {"bottom": 0, "top": 1.04}),
        Panel("packets dropped", MEASURES["dropped"], log_from=10),
        Panel("mean queue delay, ms", MEASURES["queue ms"]),
    ]
    figure, axes = plots.subplots(6.6, 6.4, 2, 2)
    for axis, panel in zip(axes.flat, panels):
        plots.draw(axis, data, panel)
    plots.outside_legend(figure, axes[0, 0], data.seeds)
    plots.save(figure, stem)


FIGURE = Figure("goodput at queues shorter than a bandwidth-delay product", "none: new", points, scores, plot, MEASURES)
