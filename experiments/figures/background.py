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
from ccc_experiments.setups import KINDS, background, one_kernel, vm_of

LOADS_MBIT = (0, 3.5)
FLOWS = 4
DURATION_S = 100.0
SEGMENT = 1448
# With which uncoupled flows come nearest to the papers': 0.78 % lost, 58 packets
# queued, and 68 % of the capacity for the four.
THEIRS = 3.5


def scenario(load_mbit: float, kind: str, seed: int) -> Scenario:
    others = background(seed, load_mbit, DURATION_S) if load_mbit else ()
    ours = vm_of(kind, Flows(count=FLOWS))
    return one_kernel(kind, seed, DURATION_S, ours, *others, sample_ms=500)


def points(effort: Effort) -> Iterator[Point]:
    return grid("background", effort, effort.pick(LOADS_MBIT, (THEIRS,)), KINDS, scenario)


def ours_mbit(run: Run) -> float:
    return run.measured.vm_goodput_mbit[0]


def queue_packets(run: Run) -> float:
    return float(run.queue["backlog_packets"].mean())


def ours_lost(run: Run) -> float:
    """Segments of the four that were sent again, of those that arrived."""
    arrived = ours_mbit(run) * 1e6 / 8 * run.scenario.duration_s / SEGMENT
    return 100 * run.retransmissions("vm1") / arrived


def theirs_s(run: Run) -> float:
    """Mean completion time of the background's connections."""
    done = [flow for flow in run.flows() if flow["vm"] != "vm1" and flow["completed"]]
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
    loss = data.ratio(THEIRS, "coupled", "uncoupled", MEASURES["loss %"])
    queue = data.ratio(THEIRS, "coupled", "uncoupled", queue_packets)
    goodput = data.ratio(THEIRS, "coupled", "uncoupled", ours_mbit)
    return [
        Score.ratio("coupled over uncoupled loss", loss, "<=", 0.25),
        Score.ratio("coupled over uncoupled queue", queue, "<=", 2 / 3),
        Score.ratio("coupled over uncoupled goodput of the four", goodput, ">=", 0.97),
    ]


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
    {"coupled over uncoupled queue": Known("one TCP keeps a queue of one bandwidth-delay product half full", 0.8)},
)
