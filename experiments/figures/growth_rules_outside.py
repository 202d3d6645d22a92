# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the aggregate takes of an outside flow of 100 ms, by its growth rule.

One TCP would take as much as the other.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import outsider

from .growth_rules import BY_RATE, COUNTS, DURATION_S, KINDS, MEAN, SHORTEST, run_of, vms_of

OUTSIDE_MS = 100.0
# What slow start left is over.
SETTLED_S = 10.0
MOST = COUNTS[-1]


def scenario(count: int, kind: str, seed: int) -> Scenario:
    outside = outsider(Flows(), delay_ms=OUTSIDE_MS)
    return run_of(kind, seed, *vms_of(count, kind), outside)


def points(effort: Effort) -> Iterator[Point]:
    return grid("growth-rules-outside", effort, effort.pick(COUNTS, (MOST,)), KINDS, scenario)


def part(run: Run) -> float:
    """Goodput of the aggregate over that of the outside flow."""
    vms = range(1, len(run.scenario.vms) + 1)
    *ours, outside = (run.rate_mbit(f"vm{i}", SETTLED_S, DURATION_S) for i in vms)
    return sum(ours) / outside


MEASURES = {"of the outside flow's": part, "sum Mbit/s": lambda run: run.measured.sum_mbit}


BY_THE_MEAN = (
    "Ten flows take 1.14 of what they take by the shortest round-trip time from an outside flow if they "
    "grow by the mean, in one run of seed 101. In six more (531 to 536) it is 0.61 ± 0.10"
)


def scores(data: Data) -> list[Score]:
    def over(kind: str, to: str) -> Score:
        ratio, uncoupled = (data.ratio(MOST, one, to, part) for one in (kind, "uncoupled"))
        name = f"{MOST} flows: part taken, {kind} over {to}"
        return Score.mean(name, ratio, "ratio", "<", 1, uncoupled=uncoupled.mean)

    return [over(SHORTEST, "uncoupled"), over(MEAN, SHORTEST), over(BY_RATE, SHORTEST)]


def plot(data: Data, stem: Path) -> None:
    figure, axis = plots.subplots(10, 3.6)
    plots.draw(axis, data, plots.Panel("goodput over that of one outside flow of 100 ms", part))
    axis.axhline(1, color="black", lw=0.8)
    axis.set_xlabel("flows, of 20 to 20n ms")
    plots.outside_legend(figure, axis, data.seeds)
    plots.save(figure, stem)


FIGURE = Figure(
    "rules by which the aggregate grows, beside an outside flow",
    "none: beside paper Table I and Figure 7",
    points,
    scores,
    plot,
    MEASURES,
    {f"{MOST} flows: part taken, {MEAN} over {SHORTEST}": Known(BY_THE_MEAN, 1.4)},
)
