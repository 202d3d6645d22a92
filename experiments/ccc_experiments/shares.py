# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How far tenants are from their shares, second by second.

Jain's index hides what one tenant lacks: 3 % off is 0.999. Here it is the worst
tenant's error in percent of its share, in each window of a second. What a
tenant has is what arrived at the receiver, in order or not: behind a lost
segment, bytes in order stand still for a round trip and then leap. At 10 Mbit/s
a packet is 0.12 % of a second, and 0.24 % of a half of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import tables

# Slow start is over then, and all have their shares.
SETTLED_S = 5.0
WINDOW_S = 1.0


@dataclass(frozen=True)
class ShareError:
    """Of the worst tenant in each window, percent of its share."""

    mean: float
    # Of fewer than 100 windows the worst.
    p99: float

    @classmethod
    def of(cls, raw: Path, weights: Sequence[float], end_s: float) -> "ShareError | None":
        """Of VMs that all want more than their shares; none of a run too short for a window."""
        if end_s < SETTLED_S + WINDOW_S:
            return None
        errors = share_errors(arrived(raw, len(weights), SETTLED_S, end_s), weights)
        return cls(float(errors.mean()), float(np.quantile(errors, 0.99, method="inverted_cdf")))


def share_errors(got: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """The worst tenant's error in each window (a column), percent of its share."""
    parts = np.asarray(weights, float)[:, None] / sum(weights)
    # Where nothing arrived nobody has less than their share.
    shares = np.maximum(parts * got.sum(axis=0), 1e-9)
    return 100 * np.abs((got - shares) / shares).max(axis=0) * (got.sum(axis=0) > 0)


def arrived(raw: Path, vms: int, start_s: float, end_s: float) -> np.ndarray:
    """Bytes of each VM (a row) that arrived in each window (a column)."""
    edges = np.arange(start_s, end_s + 1e-9, WINDOW_S)
    got = np.zeros((vms, len(edges) - 1))
    for vm, times, total in _flows(tables.read(raw, "goodput")):
        got[int(vm.removeprefix("vm")) - 1] += np.diff(np.interp(edges, times, total, left=0))
    return got


def _flows(table: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each flow's VM, times and bytes that have arrived."""
    names, vms = np.unique(table["vm"].astype(str), return_inverse=True)
    order = np.lexsort((table["time_s"], table["flow"], vms))
    keys = np.stack([vms[order], table["flow"][order]])
    ends = np.flatnonzero(np.any(np.diff(keys), axis=0)) + 1
    for rows in np.split(order, ends):
        if len(rows):
            yield str(names[vms[rows[0]]]), table["time_s"][rows], _bytes(table, rows)


def _bytes(table: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Bytes of a flow that have arrived; iperf3 only knows those in order."""
    in_order = table["bytes"][rows]
    if "segments" not in table or not table["segments"][rows[-1]]:
        return in_order
    segments = table["segments"][rows]
    return segments * (in_order[-1] / segments[-1])
