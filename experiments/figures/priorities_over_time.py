# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Two flows with priorities 0.75 and 0.25; the second is there from 30 to 85 s.

In two VMs the weights of the VMs are theirs.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import TWO_VMS, one_kernel, several_kernels, vm_of

FIRST_S, JOIN_S, LEAVE_S, DURATION_S = 3.0, 30.0, 85.0, 110.0
CASE = "0.75 : 0.25"
SINGLE = "a single TCP"
# What shares are shares of: the rate is the daemon's default, the window the papers'.
SHARES = {"coupled": "rate", "coupled by window": "window", "coupled, two VMs": "rate"}
# From the second flow's arrival with its share to its end.
TOGETHER = (JOIN_S + 2, LEAVE_S)
# From the end of slow start on.
STEADY = (10.0, DURATION_S)


# Why bounds do not hold where shares are of the rate, and with how many round trips at most.
PACED = "a joiner is paced over a round trip, and its average of the round-trip time waits two round trips"
ROUNDS_FLOORS = {"coupled": 4, "coupled, two VMs": 5}


def scenario(_: str, kind: str, seed: int) -> Scenario:
    first, second = Flows(start_s=FIRST_S, priority=3), Flows(start_s=JOIN_S, stop_s=LEAVE_S, priority=1)
    group = {"share": SHARES.get(kind)}
    if kind.endswith(TWO_VMS):
        vms = (vm_of(kind, replace(flow, priority=0), weight=flow.priority) for flow in (first, second))
        return several_kernels(kind, seed, DURATION_S, *vms, sample_ms=20, group=group)
    flows = (first,) if kind == SINGLE else (first, second)
    return one_kernel(kind, seed, DURATION_S, vm_of(kind, *flows), sample_ms=20, group=group)


def points(effort: Effort) -> Iterator[Point]:
    return grid("priorities-over-time", effort, [CASE], (*SHARES, SINGLE), scenario)


def flow_window(run: Run, flow: int, start_s: float, end_s: float) -> float:
    times, windows = run.window_of(flow)
    return float(windows[(start_s <= times) & (times <= end_s)].mean())


def aggregate_window(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Times and sum of both congestion windows, packets."""
    times, windows = run.window_of(0)
    joined, joiner = run.window_of(1)
    windows = windows.copy()
    windows[np.isin(times, joined)] += joiner[np.isin(joined, times)]
    return times, windows


def window_ratio(run: Run) -> float:
    return flow_window(run, 0, *TOGETHER) / flow_window(run, 1, *TOGETHER)


def aggregate(run: Run) -> float:
    times, windows = aggregate_window(run) if len(run.flows()) > 1 else run.window_of(0)
    return float(windows[(STEADY[0] <= times) & (times <= STEADY[1])].mean())


def rounds_to_share(run: Run) -> float:
    """Round-trip times from the second flow's handshake until it has 90 % of its share."""
    times, joiner = run.window_of(1)
    all_times, first = run.window_of(0)
    whole = joiner + first[np.isin(all_times, times)]
    reached = times[joiner >= 0.9 * 0.25 * whole][0]
    return float((reached - times[0]) / (run.srtt_ms("vm1", JOIN_S, JOIN_S + 2) / 1000))


def scores(data: Data) -> list[Score]:
    result = []
    for kind in SHARES:
        together = data.apart(CASE, kind, SINGLE, aggregate)
        rounds = data.each(CASE, kind, rounds_to_share)
        result += [
            Score.mean(f"{kind}: windows off 3 : 1", data.off(CASE, kind, window_ratio, 3), "%", "<=", 2),
            Score.mean(f"{kind}: mean aggregate window off a single TCP's", together, "%", "<=", 5),
            Score.worst(f"{kind}: most round trips until the joiner has 90 % of its share", rounds, "RTT", "<=", 2),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(13, 3.4, 1, len(SHARES), sharey=True)
    single = data.runs(CASE, SINGLE)[0].flow_window("vm1", 0)
    for axis, kind in zip(axes, SHARES):
        run = data.runs(CASE, kind)[0]
        axis.plot(*single, color="#BBBBBB", lw=0.8, label=SINGLE)
        axis.plot(*aggregate_window(run), color="black", lw=0.8, label="both")
        for flow, label in enumerate(("flow 1 (0.75)", "flow 2 (0.25)")):
            axis.plot(*run.window_of(flow), lw=1, label=label)
        axis.set_title(kind)
        axis.set_xlabel("time, s")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("congestion window, packets")
    plots.outside_legend(figure, axes[0])
    plots.save(figure, stem)


FIGURE = Figure(
    "shares of two flows with priorities, over time",
    "dissertation Figure 9.6, paper Figure 3",
    points,
    scores,
    plot,
    {"window, packets": aggregate, "sum Mbit/s": lambda run: sum(run.all_flow_rates_mbit(*STEADY))},
    {
        f"{kind}: most round trips until the joiner has 90 % of its share": Known(PACED, floor)
        for kind, floor in ROUNDS_FLOORS.items()
    },
)
