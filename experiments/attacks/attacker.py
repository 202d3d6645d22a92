# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The attackers: a VM each, and what it does."""

from dataclasses import dataclass

from ccc_experiments.scenario import Flows, Vm

# An attacker has as many flows as an honest VM, if nothing else is said.
FLOWS = 4


@dataclass(frozen=True)
class Attack:
    """A VM in the place of an honest one."""

    name: str
    vm: Vm
    # Whether it sends what it is granted, so that all its harm is done by what it says.
    obeys: bool = False
    # Whether it is in the short form.
    quick: bool = False
    # What the daemon counts of it: a number of a VM's conduct.
    counter: str | None = None
    # How many honest VMs are beside it.
    honest: int = 3


def liar(
    name: str, counter: str | None = None, quick: bool = False, honest: int = 3, **lies: int
) -> Attack:
    """A VM whose module tells lies, by their names without `lie_`; see guest/tests/hostile."""
    options = " ".join(f"lie_{lie.rstrip('_')}={value}" for lie, value in lies.items())
    vm = Vm((Flows(count=FLOWS),), hostile=True, module_options=f"{options} slots={max(256, lies.get('slots', 0))}")
    return Attack(name, vm, "deaf" not in lies, quick, counter, honest)


def sender(algorithm: str, count: int, quick: bool = False) -> Attack:
    """A VM without a module."""
    vm = Vm((Flows(count=count),), congestion_control=algorithm, device=False)
    return Attack(f"{algorithm} {count}", vm, quick=quick)


ATTACKS = (
    liar("loss 150 ms", "lone_events", quick=True, slots=1, loss=1, ms=150),
    liar("loss 150 ms, deaf", "lone_events", slots=1, loss=1, ms=150, deaf=1),
    liar("deaf", quick=True, deaf=1),
    liar("loss 50 ms, beta 65535", "lone_events", quick=True, slots=1, loss=1, ms=50, beta=65535),
    liar("mute, deaf", quick=True, mute=1, deaf=1),
    liar("RTT 10 s", "far_reports", quick=True, rtt_us=10_000_000),
    # Who is idle for less than a second keeps its place, and brings nothing.
    liar("returns with 1 GB", "beyond_bytes", quick=True, slots=1, ms=1100, return_=1, inflight_bytes=1 << 30),
    liar("segments of 65535", "beyond_bytes", mss=65535),
    liar("4096 empty slots", "beyond_bytes", slots=4096, ms=900),
    liar("growth 1 GB", "beyond_bytes", quick=True, slots=1, ms=100, growth_bytes=1 << 30, priority=2560),
    liar("loss and undo", "lone_events", slots=1, ms=200, loss=1, undo=1),
    liar("device reset", quick=True, ms=200, reset=1),
    liar("extent released", ms=200, release=1),
    # What is told of one that is far, and lies together.
    liar("RTT 300 ms", "far_reports", quick=True, rtt_us=300_000),
    liar("RTT 300 ms, loss, segments of 9000", "lone_events", slots=2, rtt_us=300_000, loss=1, mss=9000),
    liar("RTT 1 s, growth 1 GB", "beyond_bytes", slots=1, rtt_us=1_000_000, growth_bytes=1 << 30),
    # What the search has composed.
    liar("RTT 10 s, priority 10, loss", "far_reports", quick=True, slots=16, ms=2000, rtt_us=10_000_000, loss=1,
         priority=2560),
    liar("the same, faster, beside two", "far_reports", honest=2, slots=2, ms=20, rtt_us=10_000_000, loss=1,
         priority=2560),
    liar("least RTT 1 us, loss", "lone_events", slots=16, ms=20, min_rtt_us=1, loss=1, beta=57344, growth_bytes=1448),
    liar("the same beside two", "lone_events", quick=True, honest=2, slots=16, ms=20, min_rtt_us=1, loss=1,
         beta=57344, growth_bytes=1448),
    liar("limited slots, deaf", slots=16, limited=1, deaf=1),
    liar("acknowledges x 10", "beyond_bytes", acked=10),
    liar("slow start for ever", slow_start=1),
    liar("RTT 1 us", rtt_us=1),
    Attack("priority 10", Vm((Flows(count=FLOWS, priority=10),)), obeys=True),
    *(sender("reno", count, quick=count == 4) for count in (1, 4, 16)),
    *(sender("cubic", count) for count in (4, 16)),
    *(sender("bbr", count) for count in (1, 4, 16)),
    Attack("UDP 20 Mbit/s", Vm((), congestion_control="reno", device=False, udp_mbit=20.0)),
)
