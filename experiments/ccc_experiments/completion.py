# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How long flows of a given size take, by classes of sizes."""

from math import inf

import numpy as np

from .measure import percentile
from .runs import Run


def times_s(run: Run, vm: int, least_bytes: float = 0, below_bytes: float = inf) -> list[float]:
    """Completion times of a VM's finite flows of that class; of an unfinished one the time it had."""
    sizes = [flows.bytes for flows in run.scenario.vms[vm].flows for _ in range(flows.count)]
    name = run.scenario.vms[vm].name or f"vm{vm + 1}"
    return [
        flow["end_s"] - flow["start_s"]
        for flow in run.flows()
        if flow["vm"] == name and (size := sizes[flow["flow"]]) is not None and least_bytes <= size < below_bytes
    ]


def median_s(times: list[float]) -> float:
    return float(np.median(times))


def p95_s(times: list[float]) -> float:
    return percentile(times, 0.95)


def p99_s(times: list[float]) -> float:
    return percentile(times, 0.99)
