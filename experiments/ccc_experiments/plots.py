# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures, as SVG for documents and PNG for looking at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from .figure import Data, Measure  # noqa: E402
from .measure import Measured  # noqa: E402

# Colour-blind safe (Okabe and Ito); one colour for each kind of run, always.
UNCOUPLED = "#D55E00"
COUPLED = "#0072B2"
_OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#8B5A2B", "#000000")
_MARKERS = "sovD^P*X"

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "ccc",
        "figure.constrained_layout.use": True,
    }
)


def save(figure, stem: Path) -> None:
    """Writes STEM.svg and STEM.png, without a date: same data, same file."""
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=150)
    plt.close(figure)


def subplots(width: float, height: float, rows: int = 1, columns: int = 1, **more):
    """A figure of that size in inches, and its axes."""
    return plt.subplots(rows, columns, figsize=(width, height), **more)


def fairness(measured: Sequence[Measured], stem: Path) -> None:
    """Fairness, goodput, queue and loss against the case, coupled or not."""
    panels: list[tuple[str, Callable[[Measured], float], dict]] = [
        ("Jain's index of the VMs", lambda m: m.weighted_jain, {"bottom": 0, "top": 1.03}),
        ("sum of goodput, Mbit/s", lambda m: m.sum_mbit, {"bottom": 0, "top": 10}),
        ("mean queue delay, ms", lambda m: m.queue_ms_mean, {"bottom": 0}),
        ("packets dropped", lambda m: m.dropped_packets + 0.5, {}),
    ]
    figure, axes = plt.subplots(1, 4, figsize=(11.5, 2.9))
    for axis, (title, value, limits) in zip(axes, panels):
        _against_case(axis, measured, value)
        axis.set_title(title)
        if limits:
            axis.set_ylim(**limits)
    axes[3].set_yscale("log")
    for axis in axes:
        axis.set_xlabel("flows of the VMs")
    axes[0].legend(frameon=False, loc="lower left")
    save(figure, stem)


def _against_case(axis, measured: Sequence[Measured], value: Callable[[Measured], float]) -> None:
    cases = list(dict.fromkeys(case_of(m) for m in measured))
    kinds = ((False, "uncoupled Reno", UNCOUPLED, "s--"), (True, "coupled (ccc)", COUPLED, "o-"))
    for coupled, label, colour, style in kinds:
        by_case = [
            [value(m) for m in measured if case_of(m) == case and m.scenario.coupled == coupled]
            for case in cases
        ]
        middles = [mean(values) for values in by_case]
        spread = [
            [middle - min(values) for middle, values in zip(middles, by_case)],
            [max(values) - middle for middle, values in zip(middles, by_case)],
        ]
        axis.errorbar(
            range(len(cases)), middles, spread, fmt=style, color=colour, label=label, capsize=2, ms=4
        )
    axis.set_xticks(range(len(cases)), cases)


def case_of(measured: Measured) -> str:
    """The case as its flow counts: `1:4`, with weights if they differ: `1:4 (3:1)`."""
    vms = measured.scenario.vms
    flows = ":".join(str(vm.count) for vm in vms)
    weights = ":".join(f"{vm.weight:g}" for vm in vms)
    return flows if len({vm.weight for vm in vms}) == 1 else f"{flows}\n({weights})"


def outside(measured: Sequence[Measured], part: Callable[[Measured], float], stem: Path) -> None:
    """What the aggregate takes of an outside flow's goodput, against its flows."""
    figure, axis = plt.subplots(figsize=(4.5, 3))
    _against_case(axis, measured, part)
    axis.axhline(1, color="black", lw=0.8)
    axis.set_xlabel("flows of the VM : outside flows")
    axis.set_ylabel("goodput of the VM / of the outside flow")
    axis.legend(frameon=False)
    save(figure, stem)


def goodput_over_time(shown, kinds: Sequence[str], stem: Path) -> None:
    """Goodput of each VM against time; a column a case, a row a kind of run."""
    size = (3.2 * len(shown), 0.6 + 1.9 * len(kinds))
    figure, axes = plt.subplots(len(kinds), len(shown), figsize=size, sharey=True, squeeze=False)
    for column, (name, *runs) in enumerate(shown):
        for axis, run, kind in zip(axes[:, column], runs, kinds):
            for i, _ in enumerate(run.measured.scenario.vms, 1):
                axis.plot(*run.series(f"vm{i}", 0.5), label=f"VM{i}", lw=1)
            axis.set_title(f"{name}, {kind}" if kind else name)
            axis.set_ylim(0, 10.5)
        axes[-1, column].set_xlabel("time, s")
    for axis in axes[:, 0]:
        axis.set_ylabel("goodput, Mbit/s")
    axes[0, 0].legend(frameon=False, loc="lower left")
    save(figure, stem)


@dataclass(frozen=True)
class Panel:
    """A measure of all runs, against their case."""

    title: str
    measure: Measure
    limits: Mapping[str, float] = field(default_factory=lambda: {"bottom": 0})
    log: bool = False


def styles(kinds: Sequence[str]) -> dict[str, dict]:
    """How each kind is drawn; uncoupled and coupled as everywhere."""
    known = {"uncoupled": UNCOUPLED, "coupled": COUPLED}
    others = iter(_OTHERS)
    return {
        kind: {"color": known.get(kind) or next(others), "marker": marker}
        for kind, marker in zip(kinds, _MARKERS)
    }


def against_case(
    data: Data, panels: Sequence[Panel], xlabel: str, stem: Path, ordered: bool = True
) -> None:
    """A panel for each measure; means with 95 % confidence intervals.

    Cases that have no order are not joined by lines, and their names stand upright.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(0.6 + 2.9 * len(panels), 3.1), squeeze=False)
    for axis, panel in zip(axes[0], panels):
        draw(axis, data, panel, "-" if ordered else "")
        axis.set_xlabel(xlabel)
        axis.tick_params("x", rotation=0 if ordered else 90)
    outside_legend(figure, axes[0, 0])
    save(figure, stem)


def draw(axis, data: Data, panel: Panel, line: str = "-") -> None:
    """One panel."""
    for kind, style in styles(data.kinds).items():
        places = [place for place, case in enumerate(data.cases) if data.has(case, kind)]
        means = [data.mean(data.cases[place], kind, panel.measure) for place in places]
        halves = [interval.half or 0 for interval in means]
        axis.errorbar(places, [m.mean for m in means], halves, label=kind, capsize=2, ms=4, ls=line, **style)
    axis.set_xticks(range(len(data.cases)), [str(case) for case in data.cases])
    axis.set_title(panel.title)
    if panel.log:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
    else:
        axis.set_ylim(**panel.limits)


def bars(data: Data, case, panels: Sequence[Panel], stem: Path) -> None:
    """A panel for each measure, a bar for each kind, of one case."""
    figure, axes = plt.subplots(1, len(panels), figsize=(1.4 + 2.1 * len(panels), 2.8), sharey=True)
    colours = styles(data.kinds)
    for axis, panel in zip(axes, panels):
        for place, kind in enumerate(reversed(data.kinds)):
            value = data.mean(case, kind, panel.measure)
            axis.barh(place, value.mean, xerr=value.half, color=colours[kind]["color"], capsize=2)
        axis.set_title(panel.title)
        axis.set_xlim(panel.limits.get("bottom"), panel.limits.get("top"))
    axes[0].set_yticks(range(len(data.kinds)), reversed(data.kinds))
    save(figure, stem)


def outside_legend(figure, axis) -> None:
    """The legend of one axis, below all of them: it hides nothing there."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False)
