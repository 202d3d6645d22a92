# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures of the experiments on real virtual machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.plots import plt
from ccc_experiments.runs import Run
from ccc_experiments.setups import flow_count

_STEP_S = 1.0


def side_by_side(virtual: Sequence[Run], real: Sequence[Run], stem: Path) -> None:
    """Goodput of each VM against time; a column a case, virtual time above QEMU."""
    rows = {"virtual time": virtual, "QEMU": real}
    _grid(
        {
            kind: [(f"{plots.case_of(run.measured)}, {_kind(run)}, {kind}", run) for run in runs]
            for kind, runs in rows.items()
        },
        stem,
    )


def by_case(cases: Mapping[str, Sequence[Run]], stem: Path) -> None:
    """Goodput of each VM against time; a column a case, uncoupled above coupled."""
    rows: dict[str, list] = {}
    for name, runs in cases.items():
        for run in runs:
            rows.setdefault(_kind(run), []).append((f"{name}, {_kind(run)}", run))
    _grid(rows, stem)


def _grid(rows: Mapping[str, Sequence[tuple[str, Run]]], stem: Path) -> None:
    columns = max(map(len, rows.values()))
    figure, axes = plots.subplots(3.4 * columns, 2.2 * len(rows), len(rows), columns, sharey=True, squeeze=False)
    for row, runs in zip(axes, rows.values()):
        for axis, (title, run) in zip(row, runs):
            _goodput(axis, run)
            axis.set_title(title.replace("\n", " "))
        row[0].set_ylabel("goodput, Mbit/s")
    for axis in axes[-1]:
        axis.set_xlabel("time, s")
    axes[0, 0].legend(frameon=False, loc="upper right")
    plots.save(figure, stem)


def _kind(run: Run) -> str:
    return "coupled" if run.scenario.coupled else "uncoupled"


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
        flows = "1 flow" if flow_count(vm) == 1 else f"{flow_count(vm)} flows"
        times, rates = run.series(f"vm{number}", _STEP_S)
        middles = [time + _STEP_S / 2 for time in times]
        axis.plot(middles, rates, label=f"VM{number}, {flows}", lw=1)
    axis.set_ylim(0, 1.05 * run.scenario.bottleneck.rate_mbit or None)
