# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures of the experiments on real virtual machines."""

from collections.abc import Sequence
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.plots import plt
from ccc_experiments.runs import Run

_STEP_S = 1.0


def side_by_side(virtual: Sequence[Run], real: Sequence[Run], stem: Path) -> None:
    """Goodput of each VM against time; a column a case, virtual time above QEMU."""
    figure, axes = plt.subplots(2, len(real), figsize=(3.4 * len(real), 4.4), sharey=True, squeeze=False)
    for row, (kind, runs) in zip(axes, (("virtual time", virtual), ("QEMU", real))):
        for axis, run in zip(row, runs):
            _goodput(axis, run)
            coupled = "coupled" if run.measured.scenario.coupled else "uncoupled"
            case = plots.case_of(run.measured).replace("\n", " ")
            axis.set_title(f"{case}, {coupled}, {kind}")
        row[0].set_ylabel("goodput, Mbit/s")
    for axis in axes[-1]:
        axis.set_xlabel("time, s")
    axes[0, 0].legend(frameon=False, loc="upper right")
    plots.save(figure, stem)


def weight_changes(run: Run, changes: Sequence[dict], stem: Path) -> None:
    """Goodput of each VM while weights change."""
    figure, axis = plt.subplots(figsize=(6, 3))
    _goodput(axis, run)
    for change in changes:
        axis.axvline(change["at_s"], color="black", lw=0.8, ls=":")
        axis.annotate(f"{change['vm']}: {change['weight']:g}\n({change['by']})", (change["at_s"] + 0.5, 9))
    axis.set_xlabel("time, s")
    axis.set_ylabel("goodput, Mbit/s")
    axis.legend(frameon=False, loc="upper left")
    plots.save(figure, stem)


def _goodput(axis, run: Run) -> None:
    for number, vm in enumerate(run.measured.scenario.vms, 1):
        flows = "1 flow" if vm.count == 1 else f"{vm.count} flows"
        axis.plot(*run.series(f"vm{number}", _STEP_S), label=f"VM{number}, {flows}", lw=1)
    axis.set_ylim(0, 10.5)
