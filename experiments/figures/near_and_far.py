# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A near and a far VM of one flow each that begin together.

The near one fills the path alone before the far one's round-trip time is known.  From then on both
have the same rate, so the near one has a small part of what filled the path, and the far one a
window that it has to come to first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

DURATION_S = 9.0
# A loss that ends slow start is found out by eight round trips in which nothing waits.
FROM_S = 3.0


@dataclass(frozen=True)
class Case:
    """A path, and how far away the two are."""

    rate_mbit: float
    near_ms: float
    far_ms: float
    queue_packets: int

    def __str__(self) -> str:
        return f"{self.rate_mbit:g} Mbit/s, {self.near_ms:g} and {self.far_ms:g} ms, queue of {self.queue_packets}"


CASES = (Case(300, 10, 100, 250), Case(100, 20, 150, 166), Case(50, 30, 200, 413))


def scenario(case: Case, kind: str, seed: int) -> Scenario:
    vms = (vm_of(kind, Flows(), delay_ms=delay) for delay in (case.near_ms, case.far_ms))
    bottleneck = Bottleneck(rate_mbit=case.rate_mbit, limit_packets=case.queue_packets)
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("near-and-far", effort, effort.pick(CASES, CASES[1:]), KINDS, scenario)


def sum_mbit(run: Run, from_s: float, to_s: float) -> float:
    """Of both."""
    return sum(run.rate_mbit(f"vm{number}", from_s, to_s) for number in (1, 2))


def first_mbit(run: Run) -> float:
    """Of both while slow start lasts, and what comes of its end."""
    return sum_mbit(run, 0, FROM_S)


def later_mbit(run: Run) -> float:
    """Of both after that."""
    return sum_mbit(run, FROM_S, DURATION_S)


MEASURES = {
    "sum of the first 3 s Mbit/s": first_mbit,
    "sum later Mbit/s": later_mbit,
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    return [
        Score.ratio(
            f"{case}: coupled over uncoupled goodput from {FROM_S:g} s on",
            data.ratio(case, "coupled", "uncoupled", later_mbit),
            ">=",
            0.9,
        )
        for case in data.cases
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(4 * len(data.cases), 3.4, 1, len(data.cases), squeeze=False)
    for axis, case in zip(axes[0], data.cases):
        for kind in data.kinds:
            run = data.runs(case, kind)[0]
            rates = [sum_mbit(run, at, at + 1) for at in range(round(DURATION_S))]
            axis.plot([at + 0.5 for at in range(len(rates))], rates, label=kind)
        axis.set_title(str(case))
        axis.set_xlabel("time, s")
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("goodput of both in each second, Mbit/s")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


FIGURE = Figure("a near and a far VM that begin together", "none: new", points, scores, plot, MEASURES)
