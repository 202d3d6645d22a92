# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Four flows beside background connections that respond to congestion."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, KINDS_OF_TWO, TWO_VMS, background, one_kernel, several_kernels, vm_of

LOADS_MBIT = (0, 3.5)
FLOWS = 4
DURATION_S = 100.0
SEGMENT = 1448
# With which uncoupled flows come nearest to the papers': 0.78 % lost, 58 packets
# queued, and 68 % of the capacity for the four.
THEIRS = 3.5


def scenario(load_mbit: float, kind: str, seed: int) -> Scenario:
    others = background(seed, load_mbit, DURATION_S) if load_mbit else ()
    if kind.endswith(TWO_VMS):
        ours = (vm_of(kind, Flows(count=FLOWS // 2)),) * 2
        return several_kernels(kind, seed, DURATION_S, *ours, *others, sample_ms=500)
    return one_kernel(kind, seed, DURATION_S, vm_of(kind, Flows(count=FLOWS)), *others, sample_ms=500)


def points(effort: Effort) -> Iterator[Point]:
    yield from grid("background", effort, effort.pick(LOADS_MBIT, (THEIRS,)), KINDS, scenario)
    yield from grid("background", effort, (THEIRS,), KINDS_OF_TWO, scenario)


def ours_mbit(run: Run) -> float:
    return sum(mbit for vm, mbit in zip(run.scenario.vms, run.measured.vm_goodput_mbit) if vm.device)


def queue_packets(run: Run) -> float:
    return float(run.queue["backlog_packets"].mean())


def ours_lost(run: Run) -> float:
    """Segments of the four that were sent again, of those that arrived."""
    arrived = ours_mbit(run) * 1e6 / 8 * run.scenario.duration_s / SEGMENT
    ours = (f"vm{i}" for i, vm in enumerate(run.scenario.vms, 1) if vm.device)
    return 100 * sum(run.retransmissions(vm) for vm in ours) / arrived


def theirs_s(run: Run) -> float:
    """Mean completion time of the background's connections."""
    done = [flow for flow in run.flows() if flow["completed"]]
    return fmean(flow["end_s"] - flow["start_s"] for flow in done) if done else 0.0


MEASURES = {
    "the four Mbit/s": ours_mbit,
    "their loss %": ours_lost,
    "background's mean time s": theirs_s,
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "loss %": lambda run: run.loss_percent(),
    "queue packets": queue_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for uncoupled, coupled in (KINDS, KINDS_OF_TWO):
        loss, queue, goodput = (
            data.ratio(THEIRS, coupled, uncoupled, measure)
            for measure in (MEASURES["loss %"], queue_packets, ours_mbit)
        )
        result += [
            Score.ratio(f"{coupled} over uncoupled loss", loss, "<=", 0.25),
            Score.ratio(f"{coupled} over uncoupled queue", queue, "<=", 2 / 3),
            Score.ratio(f"{coupled} over uncoupled goodput of the four", goodput, ">=", 0.97),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput of the four, Mbit/s", ours_mbit),
        Panel("background connections, s", theirs_s),
        Panel("packets lost, %", MEASURES["loss %"]),
        Panel("lost of the four, %", ours_lost),
        Panel("mean queue, packets", queue_packets),
    ]
    plots.against_case(data, panels, "background, Mbit/s", stem)


FIGURE = Figure(
    "four flows beside responsive background traffic",
    "dissertation Figures 8.1 and 8.2",
    points,
    scores,
    plot,
    MEASURES,
    {
        f"{kind} over uncoupled queue": Known("one TCP keeps a queue of one bandwidth-delay product half full", 0.8)
        for kind in ("coupled", "coupled, two VMs")
    },
)
