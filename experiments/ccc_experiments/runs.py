# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs as experiments over time look at them."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from . import lab, tables
from .measure import Measured, measure
from .scenario import Scenario
from .scores import Score, print_scores, write_result
from .setups import flow_count


@dataclass(frozen=True)
class Run:
    """A measured run and where its raw data is."""

    measured: Measured
    raw: Path

    @classmethod
    def of(cls, scenario: Scenario, raw: Path) -> "Run":
        """Measures a run that was done."""
        return cls(measure(scenario, raw), raw)

    @property
    def scenario(self) -> Scenario:
        return self.measured.scenario

    def rate_mbit(self, vm: str, start_s: float, end_s: float) -> float:
        """Goodput of a VM between two times."""
        return sum(self.flow_rates_mbit(vm, start_s, end_s))

    def flow_rates_mbit(self, vm: str, start_s: float, end_s: float) -> list[float]:
        """Goodput of each flow of a VM between two times."""
        return [
            (_received(series, end_s) - _received(series, start_s)) * 8 / 1e6 / (end_s - start_s)
            for series in self._goodput[vm].values()
        ]

    def series(self, vm: str, step_s: float) -> tuple[list[float], list[float]]:
        """Times and goodput of a VM, for plots."""
        times = [i * step_s for i in range(int(self.scenario.duration_s / step_s))]
        return times, [self.rate_mbit(vm, t, t + step_s) for t in times]

    def dropped(self, start_s: float, end_s: float) -> int:
        """Packets the bottleneck dropped between two times."""
        times, dropped = self.queue["time_s"], self.queue["dropped_packets"]
        before, after = (dropped[times <= at][-1] for at in (start_s, end_s))
        return int(after - before)

    def window(self, vm: str, start_s: float, end_s: float) -> float:
        """Mean sum of a VM's congestion windows between two times, packets."""
        rows = self._rows(vm, start_s, end_s)
        return float(self.samples["cwnd_packets"][rows].sum() / len(set(self.samples["time_s"][rows])))

    def flow_window(self, vm: str, flow: int) -> tuple[np.ndarray, np.ndarray]:
        """Times and congestion window of one flow, packets."""
        rows = (self.samples["vm"] == vm) & (self.samples["flow"] == flow)
        return self.samples["time_s"][rows], self.samples["cwnd_packets"][rows]

    def window_of(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Times and congestion window of a flow, counted through all VMs, packets."""
        for i, vm in enumerate(self.scenario.vms, 1):
            if number < flow_count(vm):
                return self.flow_window(f"vm{i}", number)
            number -= flow_count(vm)
        raise IndexError(f"{self.scenario.name} has no flow {number} more")

    def all_flow_rates_mbit(self, start_s: float, end_s: float) -> list[float]:
        """Goodput of each flow of all VMs between two times."""
        vms = range(1, len(self.scenario.vms) + 1)
        return [rate for i in vms for rate in self.flow_rates_mbit(f"vm{i}", start_s, end_s)]

    def srtt_ms(self, vm: str, start_s: float, end_s: float) -> float:
        """Mean of the round-trip times that a VM's flows see between two times."""
        return float(self.samples["srtt_us"][self._rows(vm, start_s, end_s)].mean() / 1000)

    def loss_percent(self) -> float:
        """Packets dropped of those that came to the bottleneck."""
        dropped = self.measured.dropped_packets
        return 100 * dropped / (dropped + self.measured.sent_packets)

    def flows(self) -> list[dict]:
        return json.loads((self.raw / "flows.json").read_text())

    def retransmissions(self, vm: str | None = None) -> int:
        """Segments sent again, by one VM or by all."""
        last: dict[tuple, int] = {}
        for name, flow, retrans in zip(*(self.samples[c] for c in ("vm", "flow", "retrans"))):
            if vm in (None, name):
                last[name, flow] = int(retrans)
        return sum(last.values())

    def _rows(self, vm: str, start_s: float, end_s: float) -> np.ndarray:
        times = self.samples["time_s"]
        return (self.samples["vm"] == vm) & (start_s <= times) & (times <= end_s)

    @cached_property
    def samples(self) -> dict[str, np.ndarray]:
        """TCP's own state of each flow, by columns."""
        return tables.read(self.raw, "flows")

    @cached_property
    def queue(self) -> dict[str, np.ndarray]:
        """The bottleneck's queue, by columns."""
        return tables.read(self.raw, "queue")

    @cached_property
    def _goodput(self) -> dict[str, dict[int, tuple[np.ndarray, np.ndarray]]]:
        """Times and bytes received, by VM and flow."""
        table = tables.read(self.raw, "goodput")
        series: dict = {}
        # A flow of a greater number may have started first.
        for vm, flow in sorted(set(zip(table["vm"], table["flow"]))):
            rows = (table["vm"] == vm) & (table["flow"] == flow)
            series.setdefault(vm, {})[int(flow)] = (table["time_s"][rows], table["bytes"][rows])
        return series


def _received(series: tuple[np.ndarray, np.ndarray], time_s: float) -> int:
    """Bytes received by then."""
    times, received = series
    earlier = int(np.searchsorted(times, time_s + 1e-9, side="right"))
    return int(received[earlier - 1]) if earlier else 0


def run_all(scenarios: list[Scenario], out: Path) -> list[Run]:
    """Runs scenarios; their raw data lands in `out`/raw."""
    raw = lab.run_all(scenarios, lab.Parts.built(), out / "raw")
    return [Run.of(s, directory) for s, directory in zip(scenarios, raw)]


def finish(out: Path, name: str, runs: list[Run], judged: list[Score]) -> bool:
    """Writes the result, prints the scores; whether all hold."""
    seeds = sorted({run.scenario.seed for run in runs})
    about = {"experiment": name, "seeds": seeds}
    write_result(out / "result.json", [run.measured.document() for run in runs], judged, about)
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/{name}.svg, {out}/{name}.png; raw data in {out}/raw")
    return holds
