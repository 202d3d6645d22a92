# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The bottleneck's rate halves, doubles or falls to a fifth while 1 and 4 flows run.

What the aggregate makes of a change is compared with the same flows uncoupled; one Reno
flow is beside them, since several take a new rate up faster.  Where it falls to a fifth the
VMs are 2 and 60 ms away: what waits then is many times the near one's round trip.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from ccc_experiments import plots, seconds, shares
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, RateChange, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

CHANGE_S, DURATION_S = 30, 60
HALVED, DOUBLED, FALLEN = "halved", "doubled", "a fifth, 2 and 60 ms"
# Rates before and after, Mbit/s.
RATES_MBIT = {HALVED: (20.0, 10.0), DOUBLED: (10.0, 20.0), FALLEN: (100.0, 20.0)}
DELAYS_MS = {FALLEN: (2.0, 60.0)}
# A VM that is so far off its half has it.
OFF = 0.1
# A second with so much of the rate, headers included, is a full one.
FULL = 0.93
ONE = "one Reno flow"
# Why a bound does not hold.
ONE_TCP = "until the path has been idle for eight round trips, the aggregate takes a new rate up as one TCP"


def scenario(case: str, kind: str, seed: int) -> Scenario:
    before, after = RATES_MBIT[case]
    bottleneck = Bottleneck(rate_mbit=before, rate_changes=(RateChange(CHANGE_S, after),))
    vms = [vm_of(kind, Flows())] if kind == ONE else [vm_of(kind, Flows()), vm_of(kind, Flows(count=4))]
    if case == FALLEN:
        bottleneck = replace(bottleneck, limit_packets=200, delay_ms=DELAYS_MS[case][0])
        vms = [replace(vm, delay_ms=delay_ms) for vm, delay_ms in zip(vms, DELAYS_MS[case])]
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("capacity-changes", effort, effort.pick(tuple(RATES_MBIT), (DOUBLED,)), (*KINDS, ONE), scenario)


def after_mbit(run: Run) -> float:
    """Goodput of the ten seconds after the change."""
    return sum(seconds.sums_mbit(run, (CHANGE_S, CHANGE_S + 10))) / 10


def full_after_s(run: Run) -> float:
    """Seconds until the link is full again."""
    enough = FULL * run.scenario.bottleneck.rate_changes[0].rate_mbit
    sums = seconds.sums_mbit(run, (CHANGE_S, DURATION_S))
    return next((float(at) for at, total in enumerate(sums) if total >= enough), float(len(sums)))


def shares_after_s(run: Run) -> float:
    """Seconds until both VMs have half, but for a tenth of it; the first second counts as one."""
    if len(run.scenario.vms) < 2:
        return 0.0
    arrived = shares.arrived(run.raw, 2, CHANGE_S, DURATION_S)
    off = np.abs(2 * arrived[0] / arrived.sum(axis=0) - 1)
    has = np.flatnonzero(off <= OFF)
    return float(has[0] + 1 if len(has) else len(off))


MEASURES = {
    "10 s after Mbit/s": after_mbit,
    "full after s": full_after_s,
    "shares after s": shares_after_s,
    "dropped in 2 s": lambda run: run.dropped(CHANGE_S, CHANGE_S + 2),
}


def scores(data: Data) -> list[Score]:
    goodput = [
        Score.ratio(
            f"{case}: goodput of 10 s after it, coupled over uncoupled",
            data.ratio(case, "coupled", "uncoupled", after_mbit),
            ">=",
            0.98,
        )
        for case in data.cases
    ]
    if FALLEN not in data.cases:
        return goodput
    name = f"{FALLEN}: both have their share after"
    return [*goodput, data.worst(name, FALLEN, "coupled", shares_after_s, "s", "<=", 5)]


def curve(run: Run) -> tuple[list[float], list[float]]:
    return [at + 0.5 for at in range(DURATION_S)], seconds.sums_mbit(run, (0, DURATION_S))


def plot(data: Data, stem: Path) -> None:
    plots.over_time(data, curve, "sum of goodput in each second, Mbit/s", CHANGE_S, stem)


FIGURE = Figure(
    "capacity that halves, doubles or falls to a fifth",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {f"{DOUBLED}: goodput of 10 s after it, coupled over uncoupled": Known(ONE_TCP, 0.95)},
)
