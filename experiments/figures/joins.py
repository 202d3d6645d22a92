# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Two flows join a third at 5 and 6 s: what that loses.

What would have been lost anyway is known from the same run without joiners.
The joiners are in the VM of the first flow, or in another.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.interval import Interval
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import JOINS, KINDS, KINDS_OF_TWO, UNCLOCKED, of_kind

JOINS_S = (5.0, 6.0)
# Long enough for what a join loses to be noticed, and for nothing else.
AFTER = (JOINS_S[0], JOINS_S[-1] + 1.5)
DURATION_S = 15.0
# The ACK clock is the module's own way; the others are there for comparison.
ALL_KINDS = (*KINDS, *JOINS, *KINDS_OF_TWO)
CASES = ALONE, JOINED = "alone", "joined"


def scenario(case: str, kind: str, seed: int) -> Scenario:
    starts = (0.0,) if case == ALONE else (0.0, *JOINS_S)
    flows = (Flows(start_s=start) for start in starts)
    return of_kind(kind, seed, DURATION_S, *flows, sample_ms=10)


def points(effort: Effort) -> Iterator[Point]:
    return grid("joins", effort, CASES, ALL_KINDS, scenario)


def lost(run: Run) -> float:
    return run.dropped(*AFTER)


def by_the_joins(data: Data, kind: str) -> Interval:
    """Packets lost with joiners that are not lost without."""
    pairs = zip(data.each(JOINED, kind, lost), data.each(ALONE, kind, lost))
    return Interval.of([joined - alone for joined, alone in pairs])


def scores(data: Data) -> list[Score]:
    name = "packets lost by two joins"
    return [
        *(
            Score.mean(
                f"{name}, {coupled}", by_the_joins(data, coupled), "packets", "<=", 0,
                uncoupled=by_the_joins(data, uncoupled).mean,
            )  # fmt: skip
            for uncoupled, coupled in (KINDS, KINDS_OF_TWO)
        ),
        # That there was something to lose.
        *(
            Score.mean(f"{name}, {kind}", by_the_joins(data, kind), "packets", ">=", 1, guard=True)
            for kind in ("uncoupled", UNCLOCKED)
        ),
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(17, 4.6, 2, len(ALL_KINDS), sharex=True, sharey="row")
    for (windows, queue), kind in zip(axes.T, ALL_KINDS):
        run = data.runs(JOINED, kind)[0]
        for flow in range(1 + len(JOINS_S)):
            windows.plot(*run.window_of(flow), lw=1, label=f"flow {flow + 1}")
        windows.set_title(kind)
        windows.set_ylim(0, 180)
        queue.plot(run.queue["time_s"], run.queue["backlog_packets"], lw=0.8, color="#777777")
        for at in JOINS_S:
            queue.axvline(at, color="black", lw=0.6, ls=":")
        queue.set_xlabel("time, s")
        queue.set_xlim(3, 10)
    axes[0, 0].set_ylabel("window, packets")
    axes[1, 0].set_ylabel("queue, packets")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


FIGURE = Figure(
    "flows that join at 5 and 6 s",
    "dissertation Figures 7.1 and 9.3, paper Figure 2",
    points,
    scores,
    plot,
    {"packets lost 5 to 7.5 s": lost, "retransmissions": lambda run: run.retransmissions()},
)
