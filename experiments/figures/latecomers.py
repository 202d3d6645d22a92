# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Three VMs of one weight at a deep queue: one of them comes when it is full.

A latecomer never sees its path without a queue, so it takes what its packets wait there for
a part of the path; and what the others' packets wait is what a near flow's window is made of.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

RATE_MBIT = 48.0
# 46 ms of packets: many times what the near ones are away.
QUEUE_PACKETS = 181
DELAYS_MS = (14.0, 3.8, 3.6)
LATE = 2
JOIN_S, DURATION_S = 2.0, 14.0
# What a second cuts of a round trip at each end is some percent.
LEAST_PART = 0.85


def scenario(case: str, kind: str, seed: int) -> Scenario:
    starts = (JOIN_S if number == LATE else 0.0 for number in range(1, len(DELAYS_MS) + 1))
    vms = (vm_of(kind, Flows(start_s=at), delay_ms=delay) for delay, at in zip(DELAYS_MS, starts))
    bottleneck = Bottleneck(rate_mbit=RATE_MBIT, limit_packets=QUEUE_PACKETS)
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("latecomers", effort, ("near and late",), KINDS, scenario)


def parts(run: Run, from_s: float, to_s: float) -> list[float]:
    """Of each VM, of its part by weight."""
    rates = [run.rate_mbit(f"vm{number}", from_s, to_s) for number in range(1, len(DELAYS_MS) + 1)]
    return [rate * len(rates) / sum(rates) for rate in rates]


def least_part(run: Run) -> float:
    """The least that a VM has of its part in a second, from one after the join on."""
    seconds = range(round(JOIN_S) + 1, round(DURATION_S))
    return min(min(parts(run, at, at + 1)) for at in seconds)


def sum_mbit(run: Run) -> float:
    """From the join on."""
    return sum(run.rate_mbit(f"vm{number}", JOIN_S, DURATION_S) for number in range(1, len(DELAYS_MS) + 1))


MEASURES = {
    "least part in a second": least_part,
    "least part": lambda run: min(parts(run, JOIN_S + 1, DURATION_S)),
    "sum Mbit/s": sum_mbit,
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        goodput = data.ratio(case, "coupled", "uncoupled", sum_mbit)
        result += [
            Score.mean("least part of a VM in a second", data.mean(case, "coupled", least_part), "", ">=", LEAST_PART),
            Score.ratio("coupled over uncoupled goodput after the join", goodput, ">=", 0.98),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    case = data.cases[0]
    figure, axes = plots.subplots(8, 3.4, 1, len(data.kinds), sharey=True, squeeze=False)
    for axis, kind in zip(axes[0], data.kinds):
        run = data.runs(case, kind)[0]
        for number, delay in enumerate(DELAYS_MS, 1):
            rates = [run.rate_mbit(f"vm{number}", at, at + 1) for at in range(round(DURATION_S))]
            axis.plot([at + 0.5 for at in range(len(rates))], rates, label=f"VM {number}, {delay:g} ms")
        axis.set_title(kind)
        axis.set_xlabel("time, s")
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("goodput in each second, Mbit/s")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


FIGURE = Figure(
    "three VMs at a deep queue, one of which comes when it is full", "none: new", points, scores, plot, MEASURES
)
