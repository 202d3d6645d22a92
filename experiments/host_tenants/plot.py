# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Goodput of each tenant against time, uncoupled above coupled."""

import json
from pathlib import Path

from ccc_experiments import plots


def draw(out: Path) -> bool:
    """One result of all, and a picture of those that are there."""
    results = [json.loads(path.read_text()) for path in sorted(out.glob("result-*.json"))]
    results = [result for result in results if "cases" in result]
    (out / "result.json").write_text(json.dumps(results, indent=1) + "\n")
    cases = [case for result in results for case in result["cases"]]
    pairs = sorted({(case["place"], case["algorithm"], case["pair"]) for case in cases})
    figure, axes = plots.subplots(3.4 * len(pairs), 4.4, 2, len(pairs), sharey=True, squeeze=False)
    for column, key in enumerate(pairs):
        for row, coupled in enumerate((False, True)):
            axis = axes[row, column]
            axis.set_visible(False)
            for case in cases:
                if (case["place"], case["algorithm"], case["pair"]) == key and case["coupled"] == coupled:
                    axis.set_visible(True)
                    panel(axis, case)
    axes[-1, 0].legend(frameon=False)
    plots.save(figure, out / "goodput")
    return True


def panel(axis, case: dict) -> None:
    for number, peer in enumerate(sorted(case["bytes_by_second"])):
        mbits = [8 * count / 1e6 for count in case["bytes_by_second"][peer]]
        axis.plot(mbits[:-1], lw=1, label=f"tenant {'ab'[number]}")
    kind = "coupled" if case["coupled"] else "uncoupled"
    flows = " : ".join(map(str, case["flows"]))
    axis.set_title(f"{case['place']}, {case['algorithm']}, {flows} flows, {kind}", fontsize=8)
    axis.set_xlabel("time, s")
    axis.set_ylabel("goodput, Mbit/s")
