# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Many VMs of many flows on one daemon, and how fast the laboratory is then."""

import json
from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

# VMs, and flows of each.
SIZES = (8, 16, 32, 64)
# For each flow: two segments in a round trip of 100 ms.
MBIT_A_FLOW = 0.24
DURATION_S = 10.0


def scenario(size: int, kind: str, seed: int) -> Scenario:
    rate = MBIT_A_FLOW * size * size
    packets = round(rate * 1e6 * 0.1 / 8 / 1500)
    vms = (vm_of(kind, Flows(count=size)) for _ in range(size))
    bottleneck = Bottleneck(rate_mbit=rate, limit_packets=packets)
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck, sample_ms=500)


def points(effort: Effort) -> Iterator[Point]:
    """One run of each size: the larger ones are long."""
    once = Effort(effort.quick, effort.seeds[:1])
    return grid("scale", once, effort.pick(SIZES, SIZES[:1]), KINDS, scenario)


def fairness(run: Run) -> float:
    """Jain's index of the VMs."""
    return run.measured.jain


def used(run: Run) -> float:
    """Goodput of the capacity, after the start."""
    vms = range(1, len(run.scenario.vms) + 1)
    rate = sum(run.rate_mbit(f"vm{i}", 2, DURATION_S) for i in vms)
    return 100 * rate / run.scenario.bottleneck.rate_mbit


def speed(run: Run) -> float:
    """Simulated seconds in a second: the one measure that is not repeatable."""
    return json.loads((run.raw / "speed.json").read_text())["ratio"]


MEASURES = {
    "Jain": fairness,
    "goodput %": used,
    "loss %": lambda run: run.loss_percent(),
    "simulated s / s": speed,
}


def scores(data: Data) -> list[Score]:
    result = []
    for size in data.cases:
        name = f"{size} VMs of {size} flows"
        result.append(data.worst(f"{name}: Jain's index", size, "coupled", fairness, "1", ">=", 0.999))
        goodput, loss = (
            data.ratio(size, "coupled", "uncoupled", MEASURES[measure])
            for measure in ("goodput %", "loss %")
        )
        result += [
            Score.ratio(f"{name}: coupled over uncoupled goodput", goodput, ">=", 0.97),
            Score.ratio(f"{name}: coupled over uncoupled loss", loss, "<=", 0.2),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("Jain's index of the VMs", fairness, {"bottom": 0, "top": 1.04}),
        Panel("goodput, % of capacity", used, {"bottom": 0, "top": 104}),
        Panel("packets lost, %", MEASURES["loss %"]),
        Panel("simulated seconds a second", speed, log_from=0.01),
    ]
    plots.against_case(data, panels, "VMs, and flows of each", stem)


FIGURE = Figure("up to 64 VMs of 64 flows", "none: new", points, scores, plot, MEASURES)
