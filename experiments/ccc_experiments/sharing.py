# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What figures tell of VMs that share a bottleneck."""

from .plots import Panel
from .runs import Run


def jain(run: Run) -> float:
    """Jain's index of the VMs' goodput, by weight."""
    return run.measured.weighted_jain


MEASURES = {
    "Jain": jain,
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "queue ms": lambda run: run.measured.queue_ms_mean,
    "loss %": lambda run: run.loss_percent(),
}
PANELS = (
    Panel("Jain's index of the VMs, by weight", jain, {"bottom": 0, "top": 1.04}),
    Panel("sum of goodput, Mbit/s", MEASURES["sum Mbit/s"], {"bottom": 0, "top": 10.4}),
    Panel("mean queue delay, ms", MEASURES["queue ms"]),
    Panel("packets lost, %", MEASURES["loss %"], log_from=0.01),
)
