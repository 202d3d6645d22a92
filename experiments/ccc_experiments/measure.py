# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Measures of one run, from its raw data."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import tables
from .scenario import Scenario
from .setups import flow_count
from .shares import ShareError


@dataclass(frozen=True)
class Measured:
    """What a run of the fairness experiments is judged by."""

    scenario: Scenario
    vm_goodput_mbit: tuple[float, ...]
    queue_ms_mean: float
    queue_ms_p95: float
    sent_packets: int
    dropped_packets: int
    # None of a run of a few seconds.
    share_error: ShareError | None = None

    @property
    def sum_mbit(self) -> float:
        return sum(self.vm_goodput_mbit)

    @property
    def jain(self) -> float:
        return jain(self.vm_goodput_mbit)

    @property
    def weighted_jain(self) -> float:
        """Jain's index of goodput for each unit of weight."""
        return jain(
            [goodput / vm.weight for goodput, vm in zip(self.vm_goodput_mbit, self.scenario.vms)]
        )

    def document(self) -> dict:
        """The run as `result.json` has it."""
        return {
            "coupled": self.scenario.coupled,
            "seed": self.scenario.seed,
            "vms": [
                {"flows": flow_count(vm), "weight": vm.weight, "goodput_mbit": round(goodput, 4)}
                for vm, goodput in zip(self.scenario.vms, self.vm_goodput_mbit)
            ],
            "jain": round(self.jain, 5),
            **self._share_error(),
            "sum_mbit": round(self.sum_mbit, 4),
            "queue_ms_mean": round(self.queue_ms_mean, 3),
            "queue_ms_p95": round(self.queue_ms_p95, 3),
            "sent_packets": self.sent_packets,
            "dropped_packets": self.dropped_packets,
            "raw": self.scenario.name,
        }

    def _share_error(self) -> dict:
        if self.share_error is None:
            return {}
        error = self.share_error
        return {"share_error_percent": {"mean": round(error.mean, 3), "p99": round(error.p99, 3)}}


def jain(values) -> float:
    """Jain's fairness index: 1 for equal values, 1/n if one has all."""
    values = list(values)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def percentile(values, fraction: float) -> float:
    """The smallest value that at least `fraction` of the values do not exceed."""
    return float(np.quantile(values, fraction, method="inverted_cdf"))


def measure(scenario: Scenario, raw: Path) -> Measured:
    """Measures a run over its whole length, its start included."""
    delays = queue_delays_ms(scenario, raw)
    counters = json.loads((raw / "bottleneck.json").read_text())
    return Measured(
        scenario=scenario,
        vm_goodput_mbit=goodputs(scenario, raw),
        queue_ms_mean=float(delays.mean()),
        queue_ms_p95=percentile(delays, 0.95),
        sent_packets=counters["sent_packets"],
        dropped_packets=counters["dropped_packets"],
        share_error=ShareError.of(raw, [vm.weight for vm in scenario.vms], scenario.duration_s),
    )


def goodputs(scenario: Scenario, raw: Path) -> tuple[float, ...]:
    """Mbit/s of payload that each VM's receivers had by the end of the run."""
    received = {f"vm{i}": 0 for i in range(1, len(scenario.vms) + 1)}
    for flow in json.loads((raw / "flows.json").read_text()):
        received[flow["vm"]] += flow["bytes_received"]
    return tuple(total * 8 / 1e6 / scenario.duration_s for total in received.values())


def queue_delays_ms(scenario: Scenario, raw: Path) -> np.ndarray:
    """Time the bottleneck needs for what stands in its queue, each sample."""
    queue = tables.read(raw, "queue")
    if not len(queue["backlog_bytes"]):
        raise ValueError(f"the queue of {raw} has no samples")
    rate_mbit = np.full(len(queue["time_s"]), float(scenario.bottleneck.rate_mbit))
    for change in scenario.bottleneck.rate_changes:
        rate_mbit[queue["time_s"] >= change.at_s] = change.rate_mbit
    return queue["backlog_bytes"] * 8 / (rate_mbit * 1000)
