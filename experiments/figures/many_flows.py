# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Delay, goodput and loss against the number of flows, without and with
cross traffic that takes half of the capacity and does not respond."""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.scenario import Cross, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import FIRST_SECOND_MS, KINDS, KINDS_OF_TWO, TWO_VMS, of_kind

COUNTS = (2, 4, 6, 8, 10)
CROSSED = tuple(f"{kind}, cross" for kind in KINDS)
# Half of the flows in each of two VMs.
OF_TWO = (*KINDS_OF_TWO, *(f"{kind}, cross" for kind in KINDS_OF_TWO))
COUNTS_OF_TWO = (2, 10)
# The aggregate acts as so many TCPs as it has flows.
AS_MANY = "coupled as n, cross"
# One uncoupled flow in place of all: what a single TCP gets.
ONE = "one Reno flow, cross"
LOAD = 0.5
DURATION_S = 100.0
# Why a bound does not hold.
ONE_TCP = "it is what one TCP gets"
ONE_RUN = "six runs have 0.979 ± 0.020, but one more 1.026"


def scenario(count: int, kind: str, seed: int) -> Scenario:
    count = 1 if kind == ONE else count
    halves = (count // 2, count // 2) if TWO_VMS in kind else (count,)
    flows = (Flows(count=half, start_spread_ms=FIRST_SECOND_MS) for half in halves)
    cross = Cross(LOAD) if kind.endswith("cross") else None
    group = {"equivalent_tcps": count} if kind == AS_MANY else {}
    return of_kind(kind, seed, DURATION_S, *flows, cross=cross, group=group)


def points(effort: Effort) -> Iterator[Point]:
    kinds = (*KINDS, *CROSSED, AS_MANY, ONE)
    yield from grid("many-flows", effort, effort.pick(COUNTS, (10,)), kinds, scenario)
    yield from grid("many-flows", effort, effort.pick(COUNTS_OF_TWO, (10,)), OF_TWO, scenario)


MEASURES = {
    "RTT ms": lambda run: run.srtt_ms("vm1", 0, DURATION_S),
    "goodput Mbit/s": lambda run: run.measured.sum_mbit,
    "loss %": lambda run: run.loss_percent(),
}


def scores(data: Data) -> list[Score]:
    result = []
    for count in data.cases:
        pairs = [KINDS, CROSSED]
        if data.has(count, OF_TWO[0]):
            pairs += [OF_TWO[:2], OF_TWO[2:]]
        for uncoupled, coupled in pairs:
            with_cross = coupled.removeprefix("coupled")
            delay, goodput, loss = (
                data.ratio(count, coupled, uncoupled, MEASURES[name]) for name in MEASURES
            )
            name = f"{count} flows{with_cross}: coupled over uncoupled"
            most = 0.2 if count == 10 else 1
            result += [
                Score.ratio(f"{name} round-trip time", delay, "<", 1),
                Score.ratio(f"{name} loss", loss, "<=" if count == 10 else "<", most),
                Score.ratio(f"{name} goodput", goodput, ">=", 0.99),
            ]
        result += _crossed_scores(data, count)
    return result


def _crossed_scores(data: Data, count: int) -> list[Score]:
    uncoupled, coupled = CROSSED
    goodput, loss = MEASURES["goodput Mbit/s"], MEASURES["loss %"]
    single, uncoupled_off = (data.apart(count, kind, ONE, goodput) for kind in (coupled, uncoupled))
    as_many = f"{count} flows, cross: coupled as {count} over uncoupled"
    return [
        Score.mean(
            f"{count} flows, cross: coupled goodput off that of one Reno flow",
            single, "%", "<=", 3, uncoupled=uncoupled_off.mean,
        ),  # fmt: skip
        Score.ratio(f"{as_many} goodput", data.ratio(count, AS_MANY, uncoupled, goodput), ">=", 0.98),
        Score.ratio(f"{as_many} loss", data.ratio(count, AS_MANY, uncoupled, loss), "<", 1),
    ]


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("mean round-trip time, ms", MEASURES["RTT ms"], {"bottom": 100}),
        Panel("goodput, Mbit/s", MEASURES["goodput Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("packets lost, %", MEASURES["loss %"], log_from=0.01),
    ]
    plots.against_case(data, panels, "flows", stem)


FIGURE = Figure(
    "delay, goodput and loss against the number of flows",
    "dissertation Figures 9.9 to 9.11, paper Figure 5",
    points,
    scores,
    plot,
    MEASURES,
    {
        f"{count} flows{where}, cross: coupled over uncoupled goodput": Known(ONE_TCP, 0.8)
        for count in COUNTS
        for where in ("", TWO_VMS)
    }
    | {"10 flows, cross: coupled as 10 over uncoupled loss": Known(ONE_RUN, 1.05)},
)
