# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures, as SVG for documents and PNG for looking at.

A kind of run has one colour and one marker in every figure.  Error bars are 95 %
confidence intervals everywhere, and every figure that has some says so.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from zlib import crc32

import matplotlib
from cycler import cycler

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .figure import Data, Measure
from .interval import Interval
from .measure import Measured
from .runs import Run
from .setups import flow_count

# How thick a bar is, of the distance between two cases.
_BAR = 0.36

# Safe for the colour-blind (Okabe and Ito).
UNCOUPLED = "#D55E00"
COUPLED = "#0072B2"
_GREEN, _PURPLE, _ORANGE, _SKY = "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_YELLOW, _BROWN, _GREY, _BLACK = "#F0E442", "#8C510A", "#777777", "#000000"

_STYLES = {
    "uncoupled": (UNCOUPLED, "s"),
    "Reno": (UNCOUPLED, "s"),
    "uncoupled, cross": (UNCOUPLED, "D"),
    "coupled": (COUPLED, "o"),
    "coupled, mean, by rate": (COUPLED, "o"),
    "coupled, cross": (COUPLED, "v"),
    "uncoupled, two VMs": (UNCOUPLED, "^"),
    "coupled, two VMs": (COUPLED, "^"),
    "uncoupled, two VMs, cross": (UNCOUPLED, "X"),
    "coupled, two VMs, cross": (COUPLED, "X"),
    "coupled, a VM each": (COUPLED, "^"),
    "uncoupled, a VM each": (UNCOUPLED, "^"),
    "coupled, one flow": (COUPLED, "v"),
    "coupled, 64 flows": (COUPLED, "X"),
    "coupled by window": (_SKY, "P"),
    "coupled, mean": (_SKY, "P"),
    "coupled, first": (_GREEN, "^"),
    "coupled, shortest RTT": (_PURPLE, "X"),
    "coupled, paced": (_GREEN, "P"),
    "coupled, unclocked": (_PURPLE, "v"),
    "coupled EFCM": (_GREEN, "^"),
    "coupled E-TCP": (_PURPLE, "X"),
    "coupled CM": (_ORANGE, "D"),
    "coupled LISA": (_ORANGE, "P"),
    "coupled, 20 µs late": (_GREEN, "^"),
    "coupled, 200 µs late": (_PURPLE, "X"),
    "coupled, 1000 µs late": (_SKY, "P"),
    "coupled as n, cross": (_GREEN, "^"),
    "coupled as 4": (_GREEN, "^"),
    "one Reno flow": (_GREY, "*"),
    "one Reno flow, cross": (_GREY, "*"),
    "a single TCP": (_GREY, "*"),
    "CUBIC": (_ORANGE, "D"),
    "BBR": (_PURPLE, "X"),
    "FQ-CoDel": (_GREEN, "^"),
    "CAKE": (_SKY, "P"),
    "DualPI2": (_YELLOW, "p"),
    "HTB per VM": (_BLACK, "v"),
    "HTB, FQ-CoDel": (_BLACK, "v"),
    "coupled, FQ-CoDel": (_ORANGE, "D"),
    "uncoupled, ECN": (_BROWN, "s"),
    "coupled, ECN": (_GREY, "*"),
    "coupled, delay": (_PURPLE, "X"),
}
_OTHERS = (_GREEN, _PURPLE, _ORANGE, _SKY, _GREY, _BLACK)
# An axis whose greatest number is so many times its smallest shows ratios.
_WIDE = 15
_TAG, _COORDINATE = re.compile(r"<[^>]+>"), re.compile(r"\b[1-9]\d*\.\d{3,}")
_LINES = re.compile(r"[ML]( [-.\d]+)+( \nL( [-.\d]+)+)+")
_INDENT = re.compile(r"^ +| +$", re.MULTILINE)

plt.rcParams.update(
    {
        "font.size": 9,
        "font.sans-serif": ("DejaVu Sans", "Verdana", "sans-serif"),
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        # Flows and VMs of one run: none of the colours that kinds have.
        "axes.prop_cycle": cycler(color=(_GREEN, _PURPLE, _ORANGE, _SKY, _BLACK)),
        "grid.alpha": 0.3,
        "figure.constrained_layout.use": True,
        "path.simplify_threshold": 0.3,
        "svg.fonttype": "none",
        "svg.hashsalt": "ccc",
    }
)


def save(figure, stem: Path) -> None:
    """Writes STEM.svg and STEM.png, without a date: same data, same file."""
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    figure.savefig(png, dpi=150)
    plt.close(figure)
    svg.write_text(shorter(svg.read_text()))


def shorter(svg: str) -> str:
    """An SVG of matplotlib's, drawn the same with fewer bytes."""

    # A tenth of a point is less than anybody sees; behind `M` or `L` a path's lines need no name.
    def tag(match: re.Match) -> str:
        rounded = _COORDINATE.sub(lambda number: f"{float(number[0]):.1f}", match[0])
        return _LINES.sub(lambda lines: lines[0].replace(" \nL ", " "), rounded)

    return _INDENT.sub("", _TAG.sub(tag, svg))


def subplots(width: float, height: float, rows: int = 1, columns: int = 1, **more):
    """A figure of that size in inches, and its axes."""
    return plt.subplots(rows, columns, figsize=(width, height), **more)


def style(kind: str) -> dict[str, str]:
    """How a kind is drawn, in every figure; one that is not known by its name alone."""
    colour, marker = _STYLES.get(kind) or (_OTHERS[crc32(kind.encode()) % len(_OTHERS)], "h")
    return {"color": colour, "marker": marker}


@dataclass(frozen=True)
class Panel:
    """A measure of all runs, against their case."""

    title: str
    measure: Measure
    limits: Mapping[str, float] = field(default_factory=lambda: {"bottom": 0})
    # The smallest number of a logarithmic axis, below which it is linear down to 0.
    log_from: float | None = None


def draw(axis, data: Data, panel: Panel) -> None:
    """One panel of a figure's runs."""
    for kind in data.kinds:
        cases = [case for case in data.cases if data.has(case, kind)]
        curve(axis, data.cases, {case: data.mean(case, kind, panel.measure) for case in cases}, kind)
    finish(axis, data.cases, panel)


def against_case(data: Data, panels: Sequence[Panel], xlabel: str, stem: Path) -> None:
    """A panel for each measure, of all cases and kinds."""
    figure, axes = plt.subplots(1, len(panels), figsize=(0.6 + 2.9 * len(panels), 3.4), squeeze=False)
    for axis, panel in zip(axes[0], panels):
        draw(axis, data, panel)
        axis.set_xlabel(xlabel)
    outside_legend(figure, axes[0, 0], data.seeds)
    save(figure, stem)


def curve(axis, cases: Sequence, means: Mapping[Hashable, Interval], kind: str, **other) -> None:
    """Means of one kind with their intervals; joined, and at their values, where cases are numbers."""
    numeric = _numeric(cases)
    places = [case if numeric else cases.index(case) for case in means]
    middles = [interval.mean for interval in means.values()]
    halves = [interval.half or 0 for interval in means.values()]
    how = {"label": kind, **style(kind), **other}
    axis.errorbar(places, middles, halves, capsize=2, ms=4, ls="-" if numeric else "", **how)


def finish(axis, cases: Sequence, panel: Panel) -> None:
    """Title and scales of a panel that has its curves."""
    axis.set_title(panel.title)
    if panel.log_from:
        axis.set_yscale("symlog", linthresh=panel.log_from)
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_ylim(bottom=0)
    else:
        axis.set_ylim(**panel.limits)
    if _numeric(cases):
        _number_axis(axis, cases)
    else:
        names = [str(case) for case in cases]
        axis.set_xticks(range(len(cases)), names, rotation=90 if len("".join(names)) > 30 else 0)
        axis.margins(x=0.1)


def _numeric(cases: Sequence) -> bool:
    return all(isinstance(case, Real) for case in cases)


def _number_axis(axis, cases: Sequence[float]) -> None:
    least = min((case for case in cases if case > 0), default=1)
    if max(cases) > _WIDE * least:
        axis.set_xscale("symlog", base=2, linthresh=least)
    axis.set_xticks(cases, [f"{case:g}" for case in cases])
    axis.xaxis.minorticks_off()


def bars(data: Data, case, panels: Sequence[Panel], stem: Path) -> None:
    """A panel for each measure, a bar for each kind, of one case."""
    figure, axes = plt.subplots(1, len(panels), figsize=(1.4 + 2.1 * len(panels), 3.0), sharey=True)
    for axis, panel in zip(axes, panels):
        for place, kind in enumerate(reversed(data.kinds)):
            value = data.mean(case, kind, panel.measure)
            axis.barh(place, value.mean, xerr=value.half, color=style(kind)["color"], capsize=2)
        axis.set_title(panel.title)
        axis.set_xlim(panel.limits.get("bottom"), panel.limits.get("top"))
    axes[0].set_yticks(range(len(data.kinds)), reversed(data.kinds))
    figure.supxlabel(_spread(data.seeds), fontsize=8)
    save(figure, stem)


def bars_by_case(data: Data, panels: Mapping[str, Measure], width: float, ylabel: str, stem: Path) -> None:
    """A panel for each measure, and in it a bar of each kind beside each case."""
    figure, axes = subplots(width, 1.2 + 0.45 * len(data.cases), 1, len(panels), sharey=True)
    for axis, (title, measure) in zip(axes, panels.items()):
        for below, kind in enumerate(data.kinds):
            means = [data.mean(case, kind, measure) for case in data.cases]
            places = [place + _BAR * (below - 0.5) for place in range(len(means))]
            halves = [mean.half or 0 for mean in means]
            color = style(kind)["color"]
            axis.barh(places, [mean.mean for mean in means], _BAR, xerr=halves, color=color, label=kind)
        axis.set_title(title)
        axis.set_xlim(left=0)
    axes[0].set_yticks(range(len(data.cases)), [str(case) for case in data.cases])
    axes[0].set_ylabel(ylabel)
    axes[0].invert_yaxis()
    outside_legend(figure, axes[0], data.seeds)
    save(figure, stem)


def over_time(data: Data, of: Callable[[Run], tuple], ylabel: str, at_s: float, stem: Path) -> None:
    """The first run of each kind over time, an axis for each case; what happens then is marked."""
    figure, axes = subplots(1 + 3.6 * len(data.cases), 3.4, 1, len(data.cases), squeeze=False)
    for axis, case in zip(axes[0], data.cases):
        for kind in data.kinds:
            axis.plot(*of(data.runs(case, kind)[0]), color=style(kind)["color"], label=kind)
        axis.axvline(at_s, color="black", lw=0.8)
        axis.set_title(case)
        axis.set_xlabel("time, s")
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(ylabel)
    outside_legend(figure, axes[0, 0])
    save(figure, stem)


def outside_legend(figure, axis, seeds: int | None = None) -> None:
    """The legend of one axis, below all of them: it hides nothing there.

    With a number of seeds it also says what points and error bars are.
    """
    handles, labels = axis.get_legend_handles_labels()
    title = None if seeds is None else _spread(seeds)
    columns = min(5, len(labels))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, title=title, title_fontsize=8
    )


def _spread(seeds: int) -> str:
    """What points and error bars are."""
    return "one run each" if seeds == 1 else f"means of {seeds} runs; error bars: 95 % confidence intervals"


def case_of(measured: Measured) -> str:
    """The case as its flow counts: `1:4`, with weights if they differ: `1:4 (3:1)`."""
    vms = measured.scenario.vms
    flows = ":".join(str(flow_count(vm)) for vm in vms)
    weights = ":".join(f"{vm.weight:g}" for vm in vms)
    return flows if len({vm.weight for vm in vms}) == 1 else f"{flows} ({weights})"


def goodput_over_time(shown, kinds: Sequence[str], stem: Path) -> None:
    """Goodput of each VM against time; a column a case, a row a kind of run."""
    size = (3.2 * len(shown), 0.6 + 1.9 * len(kinds))
    figure, axes = plt.subplots(len(kinds), len(shown), figsize=size, sharey=True, squeeze=False)
    for column, (name, *runs) in enumerate(shown):
        for axis, run, kind in zip(axes[:, column], runs, kinds):
            for i, _ in enumerate(run.measured.scenario.vms, 1):
                axis.plot(*run.series(f"vm{i}", 0.5), label=f"VM{i}", lw=1)
            axis.set_title(f"{name}, {kind}" if kind else name)
            axis.set_ylim(bottom=0)
        axes[-1, column].set_xlabel("time, s")
    for axis in axes[:, 0]:
        axis.set_ylabel("goodput, Mbit/s")
    outside_legend(figure, axes[0, 0])
    save(figure, stem)
