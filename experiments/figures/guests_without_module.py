# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Four VMs of four flows, of which some have no module."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import outsider, several_kernels, vm_of

VMS, FLOWS = 4, 4
PERCENT = (0, 25, 50, 75, 100)
DURATION_S = 60.0
KIND = "coupled"


def without(percent: int) -> int:
    return VMS * percent // 100


def scenario(percent: int, kind: str, seed: int) -> Scenario:
    with_module = (vm_of(kind, Flows(count=FLOWS)),) * (VMS - without(percent))
    others = (outsider(Flows(count=FLOWS)),) * without(percent)
    # With nobody to couple there is nothing for a daemon to do.
    coupled = KIND if with_module else "uncoupled"
    return several_kernels(coupled, seed, DURATION_S, *with_module, *others)


def points(effort: Effort) -> Iterator[Point]:
    return grid("guests-without-module", effort, effort.pick(PERCENT, (0, 50)), (KIND,), scenario)


def goodput(run: Run, device: bool) -> list[float]:
    """Of the VMs with or without module."""
    pairs = zip(run.scenario.vms, run.measured.vm_goodput_mbit)
    return [mbit for vm, mbit in pairs if vm.device == device]


def mean_goodput(device: bool):
    def measure(run: Run) -> float:
        values = goodput(run, device)
        return fmean(values) if values else 0.0

    return measure


MEASURES = {
    "with module Mbit/s": mean_goodput(True),
    "without Mbit/s": mean_goodput(False),
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "queue ms": lambda run: run.measured.queue_ms_mean,
    "loss %": lambda run: run.loss_percent(),
}


def scores(data: Data) -> list[Score]:
    # Like VMs are alike without coupling, and fill the path.
    fair = data.worst(
        "all with module: least Jain's index", 0, KIND, lambda run: run.measured.jain, "1", ">=", 0.995, guard=True
    )
    whole = (
        data.score(f"{percent} % without module: sum", percent, KIND, MEASURES["sum Mbit/s"], "Mbit/s", ">=", 9.3,
                   guard=True)  # fmt: skip
        for percent in data.cases
    )
    return [fair, *whole]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(9, 3.2, 1, 3)
    for device, label, colour in ((True, "with module", plots.COUPLED), (False, "without", plots.UNCOUPLED)):
        cases = [p for p in data.cases if without(p) < VMS or not device]
        cases = [p for p in cases if without(p) > 0 or device]
        means = {p: data.mean(p, KIND, mean_goodput(device)) for p in cases}
        plots.curve(axes[0], data.cases, means, KIND, label=label, color=colour)
    axes[0].axhline(9.54 / VMS, color="black", lw=0.7, ls=":", label="equal parts")
    plots.finish(axes[0], data.cases, Panel("goodput of a VM, Mbit/s", MEASURES["sum Mbit/s"]))
    plots.draw(axes[1], data, Panel("mean queue delay, ms", MEASURES["queue ms"]))
    plots.draw(axes[2], data, Panel("packets lost, %", MEASURES["loss %"]))
    for axis in axes:
        axis.set_xlabel("VMs without module, %")
    plots.outside_legend(figure, axes[0], data.seeds)
    plots.save(figure, stem)


FIGURE = Figure("VMs without module among others", "none: new", points, scores, plot, MEASURES)
