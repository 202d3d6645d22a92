# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""One packet of one of two flows is lost, or all of them until it times out.

Both are in one VM, or each has its own.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.interval import Interval
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Fault, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS_OF_TWO, POLICIES, TWO_VMS, policy_run

# Half way between losses of every kind.
AT_S, DURATION_S = 21.5, 28.0
DROP, TIMEOUT = "one drop", "one timeout"
# A round trip, in which all that is sent is lost; what is sent to probe the
# tail two round trips later; and less than the timer takes.
BLACKOUT_S = 0.7
FAULTS = {
    DROP: Fault("vm1", 0, AT_S, packets=1),
    TIMEOUT: Fault("vm1", 0, AT_S, for_s=BLACKOUT_S),
}
# So long before and after the event nothing else is to be lost.
BEFORE_S, AFTER_S = 0.5, 2.5
# The mean over so long, just before.
MEAN_S = 0.2


# Why bounds do not hold.
WHAT_IT_HOLDS = "a reduction leaves what the path holds, which is more than half where the queue is not full"


def scenario(case: str, kind: str, seed: int) -> Scenario:
    return policy_run(
        kind, seed, DURATION_S, Flows(), Flows(), sample_ms=10, queue_sample_ms=100, faults=(FAULTS[case],)
    )


def points(effort: Effort) -> Iterator[Point]:
    return grid("one-event", effort, FAULTS, (*POLICIES, *KINDS_OF_TWO), scenario)


def undisturbed(data: Data, case: str, kind: str) -> list[Run]:
    """The runs in which the full queue has not lost something too."""
    runs = data.runs(case, kind)
    found = [run for run in runs if not run.dropped(AT_S - BEFORE_S, AT_S + AFTER_S)]
    if not found:
        raise ValueError(f"{case}, {kind}: the queue lost something in every run; take more seeds")
    return found


def left(run: Run, *flows: int) -> float:
    """Least sum of these flows' windows after the event, of that before."""
    def windows(start_s: float, end_s: float) -> np.ndarray:
        series = (run.window_of(flow) for flow in flows)
        return np.sum([window[(start_s <= times) & (times < end_s)] for times, window in series], axis=0)

    after = windows(AT_S, AT_S + AFTER_S).min()
    before = windows(AT_S - MEAN_S, AT_S).mean()
    return float(after / before)


MEASURES = {
    "aggregate left": lambda run: left(run, 0, 1),
    "other flow left": lambda run: left(run, 1),
}


def scores(data: Data) -> list[Score]:
    def bound(case: str, kind: str, measure: str, relation: str, limit: float) -> Score:
        value, uncoupled = (
            Interval.of([MEASURES[measure](run) for run in undisturbed(data, case, one)])
            for one in (kind, "uncoupled" + (TWO_VMS if kind.endswith(TWO_VMS) else ""))
        )
        # Uncoupled flows keep more: that is a bound on giving up too much.
        guard = relation == ">="
        name = f"{case}, {kind}: {measure}" + ("" if guard else ", at most")
        return Score.mean(name, value, "ratio", relation, limit, uncoupled=uncoupled.mean, guard=guard)

    return [
        bound(DROP, "coupled", "aggregate left", ">=", 0.45),
        bound(DROP, "coupled", "aggregate left", "<=", 0.55),
        bound(DROP, "coupled E-TCP", "aggregate left", "<=", 0.55),
        bound(DROP, "coupled EFCM", "aggregate left", ">=", 0.7),
        bound(TIMEOUT, "coupled", "other flow left", ">=", 0.45),
        bound(TIMEOUT, "coupled E-TCP", "other flow left", "<=", 0.1),
        bound(DROP, "coupled CM", "aggregate left", "<=", 0.55),
        bound(TIMEOUT, "coupled CM", "other flow left", "<=", 0.1),
        bound(DROP, "coupled, two VMs", "aggregate left", ">=", 0.45),
        bound(DROP, "coupled, two VMs", "aggregate left", "<=", 0.55),
        bound(TIMEOUT, "coupled, two VMs", "other flow left", ">=", 0.45),
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(
        19, 5, len(data.cases), len(data.kinds), sharex=True, sharey=True, squeeze=False
    )
    for row, case in zip(axes, data.cases):
        for axis, kind in zip(row, data.kinds):
            run = undisturbed(data, case, kind)[0]
            for flow, label in ((0, "flow that loses"), (1, "other flow")):
                axis.plot(*run.window_of(flow), lw=1, label=label)
            axis.set_title(f"{kind}, {case}")
            axis.axvline(AT_S, color="black", lw=0.6, ls=":")
        row[0].set_ylabel("window, packets")
    for axis in axes[-1]:
        axis.set_xlim(AT_S - 2, DURATION_S)
        axis.set_ylim(0, 120)
        axis.set_xlabel("time, s")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


FIGURE = Figure(
    "one loss event of one of two flows",
    "dissertation Figure 9.2, paper Figure 1",
    points,
    scores,
    plot,
    MEASURES,
    {
        f"one drop, {kind}: aggregate left, at most": Known(WHAT_IT_HOLDS, 0.7)
        for kind in ("coupled", "coupled, two VMs")
    },
)
