# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What two flows carry together, against how often one of them times out."""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.scenario import Fault, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS_OF_TWO, policy_run

from .one_event import BLACKOUT_S

# As the dissertation compares them.
KINDS = ("uncoupled", "coupled EFCM", "coupled E-TCP", "coupled", *KINDS_OF_TWO)
COUNTS = (0, 2, 5, 10, 15)
DURATION_S = 60.0
FIRST_S, LAST_S = 5.0, 55.0


def scenario(count: int, kind: str, seed: int) -> Scenario:
    step = (LAST_S - FIRST_S) / max(count, 1)
    faults = (Fault("vm1", 0, round(FIRST_S + i * step, 3), for_s=BLACKOUT_S) for i in range(count))
    return policy_run(kind, seed, DURATION_S, Flows(), Flows(), sample_ms=100, faults=tuple(faults))


def points(effort: Effort) -> Iterator[Point]:
    counts = effort.pick(COUNTS, (0, COUNTS[-1]))
    return grid("timeouts", effort, counts, KINDS, scenario)


MEASURES = {
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "queue ms": lambda run: run.measured.queue_ms_mean,
}


AS_THE_PATH_HOLDS = (
    "Beside timeouts ctrlTCP has 1.10 of EFCM's goodput in one run, not less: probably since alone on the path it is "
    "reduced to what the path holds, and EFCM is not"
)
KNOWN = {
    f"15 timeouts: goodput, {kind} over coupled EFCM": Known(AS_THE_PATH_HOLDS, 1.3)
    for kind in ("coupled", "coupled, two VMs")
}


def scores(data: Data) -> list[Score]:
    goodput = MEASURES["sum Mbit/s"]
    order = (("coupled", "coupled EFCM"), ("coupled E-TCP", "coupled"), ("coupled, two VMs", "coupled EFCM"))
    return [
        Score.mean(
            f"{count} timeouts: goodput, {less} over {more}",
            data.ratio(count, less, more, goodput),
            "ratio",
            "<",
            1,
            uncoupled=data.ratio(count, "uncoupled", more, goodput).mean,
        )  # fmt: skip
        for count in data.cases
        if count
        for less, more in order
    ]


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("sum of goodput, Mbit/s", MEASURES["sum Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("mean queue delay, ms", MEASURES["queue ms"]),
    ]
    plots.against_case(data, panels, "timeouts of one flow in 60 s", stem)


FIGURE = Figure(
    "throughput against the number of timeouts", "dissertation Figure 9.5", points, scores, plot, MEASURES, KNOWN
)
