# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""One flow against 4 and 16 at 100 Mbit/s and 1 Gbit/s, with Reno and CUBIC.

Round-trip times are short, so that the runs are: a gigabit is 80,000 packets a second.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.measure import jain
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, is_coupled, several_kernels

RENO, CUBIC = KINDS, ("uncoupled CUBIC", "coupled CUBIC")
# Mbit/s, and flows of the second VM.
CASES = ((100, 4), (100, 16), (1000, 4), (1000, 16))
DELAY_MS = 10.0
# A run of a gigabit is long in another way.
DURATION_S = {100: 12.0, 1000: 4.0}
# Slow start is over, and its losses are recovered from.
STEADY_S = {100: 2.0, 1000: 1.0}
FRAME_BYTES = 1514
# Why bounds do not hold.
SLOW_START = (
    "all packets that coupled CUBIC 1 : 4 drops at 1 Gbit/s are of the slow start's end: 236 to 1,433, where HyStart "
    "ends uncoupled ones with 109 to 798"
)


def name(rate: int, flows: int) -> str:
    return f"{rate} Mbit/s, 1 : {flows}"


PLACES = {name(*case): case for case in CASES}


def vm(kind: str, count: int) -> Vm:
    control = "cubic" if kind in CUBIC else "reno"
    if is_coupled(kind):
        return Vm((Flows(count=count),), congestion_control="ccc", module_options=f"inner={control}")
    return Vm((Flows(count=count),), congestion_control=control)


def scenario(case: str, kind: str, seed: int) -> Scenario:
    rate, flows = PLACES[case]
    product = round(rate * 1e6 * DELAY_MS / 1e3 / 8 / FRAME_BYTES)
    bottleneck = Bottleneck(rate_mbit=rate, delay_ms=DELAY_MS, limit_packets=product)
    vms = vm(kind, 1), vm(kind, flows)
    return several_kernels(kind, seed, DURATION_S[rate], *vms, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    few = Effort(effort.quick, effort.seeds[:3])
    cases = effort.pick(tuple(PLACES), (name(*CASES[0]),))
    return grid("high-speed", few, cases, effort.pick((*RENO, *CUBIC), RENO), scenario)


def rates(run: Run) -> list[float]:
    """Goodput of each VM after the start."""
    rate = int(run.scenario.bottleneck.rate_mbit)
    return [run.rate_mbit(vm, STEADY_S[rate], DURATION_S[rate]) for vm in ("vm1", "vm2")]


def share_error(run: Run) -> float:
    """How far the worst VM is from half, percent of it."""
    first, second = rates(run)
    return 100 * abs(first - second) / (first + second)


MEASURES = {
    "goodput Mbit/s": lambda run: sum(rates(run)),
    "Jain": lambda run: jain(rates(run)),
    "share error %": share_error,
    "dropped": lambda run: run.measured.dropped_packets,
    "queue ms": lambda run: run.measured.queue_ms_mean,
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        for uncoupled, coupled in (RENO, CUBIC):
            if not data.has(case, coupled):
                continue
            what = f"{case}: {coupled}"
            goodput = data.ratio(case, coupled, uncoupled, MEASURES["goodput Mbit/s"])
            pairs = (data.each(case, kind, MEASURES["dropped"]) for kind in (coupled, uncoupled))
            dropped = [ours / theirs for ours, theirs in zip(*pairs, strict=True)]
            errors = data.each(case, coupled, share_error)
            theirs = data.mean(case, uncoupled, share_error).mean
            result += [
                Score.ratio(f"{what} over uncoupled goodput", goodput, ">=", 0.98),
                Score.worst(f"{what}, error of the VMs' shares", errors, "%", "<=", 2, uncoupled=theirs),
                # Where slow start ends decides it, and that is ten times as much in one run as in another.
                Score.worst(f"{what} of uncoupled drops", dropped, "ratio", "<", 1, uncoupled=1),
            ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput, % of capacity", goodput_percent, {"bottom": 0, "top": 104}),
        Panel("error of the VMs' shares, %", share_error, {"bottom": 0}),
        Panel("packets dropped", MEASURES["dropped"], log_from=1),
        Panel("mean queue, ms", MEASURES["queue ms"], {"bottom": 0}),
    ]
    plots.against_case(data, panels, "rate, and flows of the VMs", stem)


def goodput_percent(run: Run) -> float:
    return 100 * sum(rates(run)) / run.scenario.bottleneck.rate_mbit


FIGURE = Figure(
    "one flow against many at 100 Mbit/s and 1 Gbit/s", "none: new", points, scores, plot, MEASURES,
    {
        "1000 Mbit/s, 1 : 4: coupled CUBIC of uncoupled drops": Known(SLOW_START, 4),
    },
)  # fmt: skip
