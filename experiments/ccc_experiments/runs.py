# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs as experiments over time look at them."""

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from . import lab
from .lab import Scenario
from .measure import Measured, measure
from .scores import Score, print_scores, write_result


@dataclass(frozen=True)
class Run:
    """A measured run and where its raw data is."""

    measured: Measured
    raw: Path

    def rate_mbit(self, vm: str, start_s: float, end_s: float) -> float:
        """Goodput of a VM between two times."""
        return sum(self.flow_rates_mbit(vm, start_s, end_s))

    def flow_rates_mbit(self, vm: str, start_s: float, end_s: float) -> list[float]:
        """Goodput of each flow of a VM between two times."""
        return [
            (self._received(vm, flow, end_s) - self._received(vm, flow, start_s))
            * 8 / 1e6 / (end_s - start_s)
            for flow in self._series[vm]
        ]

    def series(self, vm: str, step_s: float) -> tuple[list[float], list[float]]:
        """Times and goodput of a VM, for plots."""
        duration = self.measured.scenario.duration_s
        times = [i * step_s for i in range(int(duration / step_s))]
        return times, [self.rate_mbit(vm, t, t + step_s) for t in times]

    def dropped(self, start_s: float, end_s: float) -> int:
        """Packets the bottleneck dropped between two times."""
        with (self.raw / "queue.csv").open(newline="") as file:
            rows = [(float(r["time_s"]), int(r["dropped_packets"])) for r in csv.DictReader(file)]
        before, after = (max(d for t, d in rows if t <= at) for at in (start_s, end_s))
        return after - before

    def window(self, vm: str, start_s: float, end_s: float) -> float:
        """Mean sum of a VM's congestion windows between two times, packets."""
        sums: dict[str, int] = defaultdict(int)
        with (self.raw / "flows.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                if row["vm"] == vm and start_s <= float(row["time_s"]) <= end_s:
                    sums[row["time_s"]] += int(row["cwnd_packets"])
        return sum(sums.values()) / len(sums)

    def flows(self) -> list[dict]:
        return json.loads((self.raw / "flows.json").read_text())

    def retransmissions(self) -> int:
        last: dict[tuple, int] = {}
        with (self.raw / "flows.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                last[row["vm"], row["flow"]] = int(row["retrans"])
        return sum(last.values())

    @property
    def _series(self) -> dict[str, dict[str, list[tuple[float, int]]]]:
        if not hasattr(self, "_cached"):
            object.__setattr__(self, "_cached", self._read_goodput())
        return self._cached

    def _read_goodput(self):
        series: dict = defaultdict(lambda: defaultdict(list))
        with (self.raw / "goodput.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                point = (float(row["time_s"]), int(row["bytes"]))
                series[row["vm"]][row["flow"]].append(point)
        return series

    def _received(self, vm: str, flow: str, time_s: float) -> int:
        """Bytes received by then."""
        earlier = [received for at, received in self._series[vm][flow] if at <= time_s + 1e-9]
        return earlier[-1] if earlier else 0


def run_all(scenarios: list[Scenario], out: Path) -> list[Run]:
    """Runs scenarios; their raw data lands in `out`/raw."""
    raw = lab.run_all(scenarios, lab.Parts.built(), out / "raw")
    return [Run(measure(s, directory), directory) for s, directory in zip(scenarios, raw)]


def finish(out: Path, name: str, runs: list[Run], judged: list[Score]) -> bool:
    """Writes the result, prints the scores; whether all hold."""
    seeds = sorted({run.measured.scenario.seed for run in runs})
    about = {"experiment": name, "seeds": seeds}
    write_result(out / "result.json", [run.measured.document() for run in runs], judged, about)
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/{name}.svg, {out}/{name}.png; raw data in {out}/raw")
    return holds
