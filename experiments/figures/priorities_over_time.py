# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Two flows with priorities 0.75 and 0.25; the second is there from 30 to 85 s."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.lab import Flows, Scenario
from ccc_experiments.runs import Run
from ccc_experiments.scores import Score
from ccc_experiments.setups import one_kernel, tenant

FIRST_S, JOIN_S, LEAVE_S, DURATION_S = 3.0, 30.0, 85.0, 110.0
CASE = "0.75 : 0.25"
SINGLE = "a single TCP"
# From the second flow's arrival with its share to its end.
TOGETHER = (JOIN_S + 2, LEAVE_S)
# From the end of slow start on.
STEADY = (10.0, DURATION_S)


def scenario(_: str, kind: str, seed: int) -> Scenario:
    flows = [Flows(1, FIRST_S, priority=3)]
    if kind != SINGLE:
        flows.append(Flows(1, JOIN_S, LEAVE_S, priority=1))
    return one_kernel(kind, seed, DURATION_S, tenant(kind, *flows), sample_ms=20)


def points(effort: Effort) -> Iterator[Point]:
    return grid("priorities-over-time", effort, [CASE], ("coupled", SINGLE), scenario)


def flow_window(run: Run, flow: int, start_s: float, end_s: float) -> float:
    times, windows = run.flow_window("vm1", flow)
    return float(windows[(start_s <= times) & (times <= end_s)].mean())


def window_ratio(run: Run) -> float:
    return flow_window(run, 0, *TOGETHER) / flow_window(run, 1, *TOGETHER)


def aggregate(run: Run) -> float:
    return run.window("vm1", *STEADY)


def rounds_to_share(run: Run) -> float:
    """Round-trip times from the second flow's handshake until it has 90 % of its share."""
    times, joiner = run.flow_window("vm1", 1)
    all_times, first = run.flow_window("vm1", 0)
    whole = joiner + first[np.isin(all_times, times)]
    reached = times[joiner >= 0.9 * 0.25 * whole][0]
    return float((reached - times[0]) / (run.srtt_ms("vm1", JOIN_S, JOIN_S + 2) / 1000))


def scores(data: Data) -> list[Score]:
    windows = data.mean(CASE, "coupled", window_ratio)
    together = fmean(data.each(CASE, "coupled", aggregate)) / fmean(data.each(CASE, SINGLE, aggregate))
    rounds = max(data.each(CASE, "coupled", rounds_to_share))
    error = windows.scaled(100 / 3, -100)
    return [
        Score("windows off 3 : 1", abs(error.mean), "%", "<=", 2, error.half),
        Score("mean aggregate window off a single TCP's", 100 * abs(together - 1), "%", "<=", 5),
        Score("most round trips until the joiner has 90 % of its share", rounds, "RTT", "<=", 2),
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axis = plots.subplots(7, 3.2)
    run = data.runs(CASE, "coupled")[0]
    for flow, label, colour in ((0, "flow 1 (0.75)", plots.COUPLED), (1, "flow 2 (0.25)", plots.UNCOUPLED)):
        axis.plot(*run.flow_window("vm1", flow), color=colour, lw=1, label=label)
    single = data.runs(CASE, SINGLE)[0]
    axis.plot(*single.flow_window("vm1", 0), color="#999999", lw=0.8, label=SINGLE, zorder=0)
    axis.set_xlabel("time, s")
    axis.set_ylabel("congestion window, packets")
    axis.set_ylim(bottom=0)
    plots.outside_legend(figure, axis)
    plots.save(figure, stem)


FIGURE = Figure(
    "shares of two flows with priorities, over time",
    "dissertation Figure 9.6, paper Figure 3",
    points,
    scores,
    plot,
    {"window, packets": aggregate, "sum Mbit/s": lambda run: run.rate_mbit("vm1", *STEADY)},
)
