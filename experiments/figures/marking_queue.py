# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""DCTCP inside, at a queue that marks, and what a late doorbell does there.

One flow against four at a round-trip time of a millisecond and less, as in a data
centre.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import is_coupled, several_kernels

UNCOUPLED, COUPLED = "uncoupled", "coupled"
# Milliseconds until the daemon looks.
LATE = {f"coupled, {us} µs late": us / 1000 for us in (20, 200, 1000)}
# Milliseconds of the way back.
DELAYS_MS = (0.1, 0.3, 1.0)
# Below, five flows of a segment are more than path and marking threshold hold: what the
# queue and the shares are then is shown, and not judged.
JUDGED_FROM_MS = 1.0
RATE_MBIT = 100.0
MARK_MS = 0.5
DURATION_S = 4.0
STEADY_S = 1.0


# Why a bound does not hold.
FEW_SEGMENTS = (
    "path and marking threshold hold 12.5 segments, of which four flows have two each: fewer would wait for delayed "
    "ACKs, and then the VM of one flow had too much"
)
SHARES_FLOOR = 30


def vm(kind: str, count: int) -> Vm:
    flows = Flows(count=count)
    if is_coupled(kind):
        return Vm((flows,), congestion_control="ccc", module_options="inner=dctcp", ecn=True)
    return Vm((flows,), congestion_control="dctcp", ecn=True)


def scenario(delay_ms: float, kind: str, seed: int) -> Scenario:
    return several_kernels(
        kind,
        seed,
        DURATION_S,
        vm(kind, 1),
        vm(kind, 4),
        bottleneck=Bottleneck(rate_mbit=RATE_MBIT, delay_ms=delay_ms, limit_packets=1000, mark_ms=MARK_MS),
        receiver_congestion_control="dctcp",
        doorbell_delay_ms=LATE.get(kind),
        queue_sample_ms=1,
    )


def points(effort: Effort) -> Iterator[Point]:
    few = Effort(effort.quick, effort.seeds[:3])
    kinds = effort.pick((UNCOUPLED, COUPLED, *LATE), (UNCOUPLED, COUPLED))
    return grid("marking-queue", few, effort.pick(DELAYS_MS, DELAYS_MS[-1:]), kinds, scenario)


def rates(run: Run) -> list[float]:
    """Goodput of each VM after the start."""
    return [run.rate_mbit(vm, STEADY_S, DURATION_S) for vm in ("vm1", "vm2")]


def share_error(run: Run) -> float:
    """How far the worst VM is from half, percent of it."""
    first, second = rates(run)
    return 100 * abs(first - second) / (first + second)


def queue_ms(run: Run) -> float:
    """Mean queue after the start."""
    after = run.queue["time_s"] >= STEADY_S
    return float(run.queue["backlog_bytes"][after].mean() * 8 / (RATE_MBIT * 1000))


MEASURES = {
    "goodput Mbit/s": lambda run: sum(rates(run)),
    "share error %": share_error,
    "queue ms": queue_ms,
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for delay_ms in (case for case in data.cases if case >= JUDGED_FROM_MS):
        for kind in data.kinds[1:]:
            what = f"{delay_ms:g} ms: {kind}"
            goodput = data.ratio(delay_ms, kind, UNCOUPLED, MEASURES["goodput Mbit/s"])
            queue = data.ratio(delay_ms, kind, UNCOUPLED, queue_ms)
            result += [
                Score.ratio(f"{what}, goodput over uncoupled", goodput, ">=", 0.98),
                Score.ratio(f"{what}, queue over uncoupled", queue, "<=", 1),
                data.worst(f"{what}, error of the VMs' shares", delay_ms, kind, share_error, "%", "<=", 10),
            ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput, Mbit/s", MEASURES["goodput Mbit/s"], {"bottom": 0, "top": 104}),
        Panel("error of the VMs' shares, %", share_error, {"bottom": 0}),
        Panel("mean queue, ms", queue_ms, {"bottom": 0}),
    ]
    plots.against_case(data, panels, "delay of the path, ms", stem)


FIGURE = Figure(
    "DCTCP at a marking queue", "none: new", points, scores, plot, MEASURES,
    {f"1 ms: {kind}, error of the VMs' shares": Known(FEW_SEGMENTS, SHARES_FLOOR) for kind in (COUPLED, *LATE)},
)  # fmt: skip
