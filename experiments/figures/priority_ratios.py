# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Two flows of one VM share its part as their priorities say, 1 : 1 to 10 : 1.

Two VMs share the bottleneck likewise as their weights say.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import FIRST_SECOND_MS, TWO_VMS, one_kernel, several_kernels, vm_of

DURATION_S = 100.0
RATIOS = tuple(range(1, 11))
KINDS = ("coupled", "coupled, two VMs")


def scenario(ratio: int, kind: str, seed: int) -> Scenario:
    if kind.endswith(TWO_VMS):
        flow = Flows(start_spread_ms=FIRST_SECOND_MS)
        return several_kernels(kind, seed, DURATION_S, *(vm_of(kind, flow, weight=weight) for weight in (ratio, 1)))
    flows = (Flows(priority=priority, start_spread_ms=FIRST_SECOND_MS) for priority in (ratio, 1))
    return one_kernel(kind, seed, DURATION_S, vm_of(kind, *flows))


def points(effort: Effort) -> Iterator[Point]:
    return grid("priority-ratios", effort, effort.pick(RATIOS, (2, 10)), KINDS, scenario)


def ratio_of_goodput(run: Run) -> float:
    high, low = run.all_flow_rates_mbit(5, DURATION_S)
    return high / low


def scores(data: Data) -> list[Score]:
    result = []
    for ratio in data.cases:
        for kind, name in zip(KINDS, ("priorities", "weights of two VMs")):
            error = data.off(ratio, kind, ratio_of_goodput, ratio)
            result.append(Score.mean(f"{name} {ratio} : 1, goodput ratio off", error, "%", "<=", 3))
    return result


def plot(data: Data, stem: Path) -> None:
    figure, axis = plots.subplots(4.5, 3.4)
    axis.plot(data.cases, data.cases, color="black", lw=0.8, label="ideal")
    plots.draw(axis, data, Panel("", ratio_of_goodput))
    axis.set_xlabel("ratio of priorities")
    axis.set_ylabel("ratio of goodput")
    plots.outside_legend(figure, axis, data.seeds)
    plots.save(figure, stem)


FIGURE = Figure(
    "goodput of two flows against the ratio of their priorities",
    "dissertation Figure 9.12, paper Figure 6",
    points,
    scores,
    plot,
    {"goodput ratio": ratio_of_goodput},
)
