# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Short flows of 50 KB that start at once on a path nothing is known of."""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, one_kernel, vm_of

# Shares slow start only, which is all there is here but for losses.
LISA = "coupled LISA"
COUNTS = (2, 4, 8, 16)
BYTES = 50_000
DURATION_S = 12.0


def scenario(count: int, kind: str, seed: int) -> Scenario:
    flows = vm_of(kind, Flows(count=count, bytes=BYTES))
    group = {"policy": "lisa"} if kind == LISA else {}
    return one_kernel(kind, seed, DURATION_S, flows, group=group, sample_ms=20)


def points(effort: Effort) -> Iterator[Point]:
    return grid("cold-start", effort, effort.pick(COUNTS, (4, 16)), (*KINDS, LISA), scenario)


def last_s(run: Run) -> float:
    """When the last flow has everything."""
    return max(flow["end_s"] for flow in run.flows())


def mean_s(run: Run) -> float:
    """Mean completion time."""
    times = [flow["end_s"] - flow["start_s"] for flow in run.flows()]
    return sum(times) / len(times)


def again(run: Run) -> float:
    return run.retransmissions()


MEASURES = {
    "last done s": last_s,
    "mean s": mean_s,
    "retransmissions": again,
}


def scores(data: Data) -> list[Score]:
    result = []
    for count in data.cases:
        last = data.ratio(count, "coupled", "uncoupled", last_s)
        result += [
            Score.ratio(f"{count} flows: coupled over uncoupled time to finish", last, "<=", 1),
            *(
                Score.mean(
                    f"{count} flows: retransmissions more than {other}", data.more(count, "coupled", other, again),
                    "segments", "<=", 0, uncoupled=data.more(count, "uncoupled", other, again).mean, guard=True,
                )  # fmt: skip
                for other in ("uncoupled", LISA)
            ),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("last flow done, s", last_s),
        Panel("mean completion time, s", mean_s),
        Panel("retransmissions", MEASURES["retransmissions"]),
    ]
    plots.against_case(data, panels, "flows of 50 KB", stem)


FIGURE = Figure("short flows at once in an empty group", "none: new", points, scores, plot, MEASURES)
