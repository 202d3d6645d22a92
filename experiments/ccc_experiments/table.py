# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The table that the fairness experiments print."""

from collections.abc import Sequence

from .measure import Measured
from .setups import flow_count

_HEAD = (
    "flows    weights  seed  kind       goodput Mbit/s         Jain   share error %  sum    queue ms      loss %  drops"
)
_UNDER = "                                                                  mean   p99         mean   p95"


def print_table(measured: Sequence[Measured]) -> None:
    """One line a run."""
    print(_HEAD)
    print(_UNDER)
    for m in measured:
        print(_line(m))


def _line(m: Measured) -> str:
    vms = m.scenario.vms
    flows = ":".join(str(flow_count(vm)) for vm in vms)
    weights = ":".join(f"{vm.weight:g}" for vm in vms)
    kind = "coupled" if m.scenario.coupled else "uncoupled"
    goodput = " ".join(f"{value:.2f}" for value in m.vm_goodput_mbit)
    loss = 100 * m.dropped_packets / max(1, m.sent_packets + m.dropped_packets)
    error = m.share_error
    errors = f"{error.mean:6.2f} {error.p99:6.2f}" if error else f"{'-':>6} {'-':>6}"
    return (
        f"{flows:<8} {weights:<8} {m.scenario.seed:<5} {kind:<10} {goodput:<22} {m.jain:.4f}"
        f" {errors}  {m.sum_mbit:5.2f}  {m.queue_ms_mean:5.1f} {m.queue_ms_p95:6.1f}  {loss:6.3f} {m.dropped_packets:6}"
    )
