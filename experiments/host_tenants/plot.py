# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Goodput of each tenant against time in the first run, uncoupled above coupled."""

import json
from pathlib import Path

from ccc_experiments import plots


def draw(out: Path) -> None:
    cases = [run for run in json.loads((out / "result.json").read_text())["runs"] if run["run"] == 0]
    rows = list(dict.fromkeys((case["set"], case["coupled"]) for case in sorted(cases, key=_row)))
    columns = sorted({case["pair"] for case in cases})
    figure, axes = plots.subplots(
        3.2 * len(columns), 1.9 * len(rows), len(rows), len(columns), sharey=True, squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.set_visible(False)
    for case in cases:
        axis = axes[rows.index((case["set"], case["coupled"])), columns.index(case["pair"])]
        axis.set_visible(True)
        panel(axis, case)
    axes[0, 0].legend(frameon=False)
    plots.save(figure, out / "goodput")


def _row(case: dict) -> tuple[str, bool]:
    return case["set"], case["coupled"]


def panel(axis, case: dict) -> None:
    for number, peer in enumerate(sorted(case["bytes_by_second"])):
        mbits = [8 * count / 1e6 for count in case["bytes_by_second"][peer]]
        axis.plot(mbits[:-2], lw=1, label=f"tenant {'ab'[number]}")
    kind = "coupled" if case["coupled"] else "uncoupled"
    flows = " : ".join(map(str, case["flows"]))
    weights = " : ".join(f"{weight:g}" for weight in case["weights"])
    what = f"{case['set']}, {case['algorithm']}: flows {flows}, weights {weights}, {kind}"
    axis.set_title(what, fontsize=8)
    axis.set_xlabel("time, s")
    axis.set_ylabel("goodput, Mbit/s")
