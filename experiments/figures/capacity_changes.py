# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The bottleneck's rate halves or doubles while 1 and 4 flows run.

What the aggregate makes of a change is compared with the same flows uncoupled; one Reno
flow is beside them, since several take a new rate up faster.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots, seconds
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, RateChange, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

CHANGE_S, DURATION_S = 30, 60
# Rates before and after, Mbit/s.
RATES_MBIT = {"halved": (20.0, 10.0), "doubled": (10.0, 20.0)}
# A second with so much of the rate, headers included, is a full one.
FULL = 0.93
ONE = "one Reno flow"
# Why a bound does not hold.
ONE_TCP = "until the path has been idle for eight round trips, the aggregate takes a new rate up as one TCP"


def scenario(case: str, kind: str, seed: int) -> Scenario:
    before, after = RATES_MBIT[case]
    bottleneck = Bottleneck(rate_mbit=before, rate_changes=(RateChange(CHANGE_S, after),))
    vms = [vm_of(kind, Flows())] if kind == ONE else [vm_of(kind, Flows()), vm_of(kind, Flows(count=4))]
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("capacity-changes", effort, effort.pick(tuple(RATES_MBIT), ("doubled",)), (*KINDS, ONE), scenario)


def after_mbit(run: Run) -> float:
    """Goodput of the ten seconds after the change."""
    return sum(seconds.sums_mbit(run, (CHANGE_S, CHANGE_S + 10))) / 10


def full_after_s(run: Run) -> float:
    """Seconds until the link is full again."""
    enough = FULL * run.scenario.bottleneck.rate_changes[0].rate_mbit
    sums = seconds.sums_mbit(run, (CHANGE_S, DURATION_S))
    return next((float(at) for at, total in enumerate(sums) if total >= enough), float(len(sums)))


MEASURES = {
    "10 s after Mbit/s": after_mbit,
    "full after s": full_after_s,
    "dropped in 2 s": lambda run: run.dropped(CHANGE_S, CHANGE_S + 2),
}


def scores(data: Data) -> list[Score]:
    return [
        Score.ratio(
            f"{case}: goodput of 10 s after it, coupled over uncoupled",
            data.ratio(case, "coupled", "uncoupled", after_mbit),
            ">=",
            0.98,
        )
        for case in data.cases
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(1 + 3.6 * len(data.cases), 3.4, 1, len(data.cases), squeeze=False)
    for axis, case in zip(axes[0], data.cases):
        for kind in data.kinds:
            sums = seconds.sums_mbit(data.runs(case, kind)[0], (0, DURATION_S))
            axis.plot([at + 0.5 for at in range(DURATION_S)], sums, color=plots.style(kind)["color"], label=kind)
        axis.set_title(case)
        axis.set_xlabel("time, s")
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("sum of goodput in each second, Mbit/s")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


FIGURE = Figure(
    "capacity that halves or doubles",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {"doubled: goodput of 10 s after it, coupled over uncoupled": Known(ONE_TCP, 0.95)},
)
