# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the virtual-time figure `variants` cannot have: the fairness test of 1
against 4 flows with guests that send large segments, which are cut behind
their NICs, and with guests of two processors, both of which handle ACKs."""

from dataclasses import dataclass, replace
from pathlib import Path

from ccc_experiments import fairness, table
from ccc_experiments.measure import Measured
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Scenario
from ccc_experiments.scores import Score, print_scores, write_result
from testbed.libvirt import Guest, HostDaemon, Machine, Shape

from . import figure
from .dumbbell import Dumbbell

COUNTS = (1, 4)
DURATION_S = 40.0
LARGEST_FRAME = 1514
_SENT = "cd /sys/class/net/eth0/statistics; cat tx_bytes tx_packets"
# Packets received on each processor: the first number of its line, in hexadecimal.
_RECEIVED = "cut -d' ' -f1 /proc/net/softnet_stat"


@dataclass(frozen=True)
class Case:
    """What is other than usual in the VMs."""

    name: str
    shape: Shape

    def scenarios(self) -> list[Scenario]:
        """Uncoupled and coupled."""
        pair = fairness.pair(COUNTS, (1, 1), 1, DURATION_S)
        label = self.name.replace(",", "").replace(" ", "-").lower()
        return [replace(scenario, name=f"{label}-{scenario.name}") for scenario in pair]


CASES = (
    Case("TSO", Shape(tso=True)),
    Case("2 CPUs", Shape(cpus=2)),
    Case("TSO, 2 CPUs", Shape(cpus=2, tso=True)),
)


def set_up(vm: Guest, shape: Shape) -> None:
    """Lets a domain that can do both do what the case says."""
    both = shape.cpus > 1
    vm.run(
        f"echo {int(both)} >/sys/devices/system/cpu/cpu1/online;"
        # One queue has one interrupt: flows are spread behind it.
        f" echo {3 if both else 1} >/sys/class/net/eth0/queues/rx-0/rps_cpus"
    )
    if shape.tso:
        vm.run("ip link set eth0 gso_max_segs 65535; ethtool -K eth0 tx on sg on tso on gso on")
    else:
        vm.run("ethtool -K eth0 tso off gso off; ip link set eth0 gso_max_segs 1")


@dataclass(frozen=True)
class Counters:
    """What a guest has sent, and received on each processor."""

    sent_bytes: int
    sent_packets: int
    received: tuple[int, ...]

    @classmethod
    def now(cls, vm: Guest) -> "Counters":
        sent_bytes, sent_packets = map(int, vm.run(_SENT).split())
        received = vm.run(_RECEIVED).split()
        return cls(sent_bytes, sent_packets, tuple(int(count, 16) for count in received))

    def since(self, vm: Guest) -> "Counters":
        later = Counters.now(vm)
        # A processor that is off has no line.
        received = tuple(b - a for a, b in zip(self.received, later.received))
        return Counters(later.sent_bytes - self.sent_bytes, later.sent_packets - self.sent_packets, received)

    @property
    def mean_bytes(self) -> float:
        """Of what the guest gives its NIC at a time."""
        return self.sent_bytes / self.sent_packets

    @property
    def least_part(self) -> float:
        """What the processor that received least has of all, percent."""
        return 100 * min(self.received) / sum(self.received)


@dataclass(frozen=True)
class Done:
    """A case's run, and the counters of the VM with several flows."""

    case: Case
    run: Run
    counters: Counters

    @property
    def measured(self) -> Measured:
        return self.run.measured

    def document(self) -> dict:
        return self.measured.document() | {
            "case": self.case.name,
            "mean_bytes_to_nic": round(self.counters.mean_bytes, 1),
            "received_by_processor": self.counters.received,
        }


def run_case(bed: Dumbbell, case: Case) -> list[Done]:
    for vm in bed.vms:
        set_up(vm, case.shape)
    several = bed.vms[-1]
    done = []
    for scenario in case.scenarios():
        before = Counters.now(several)
        run = bed.run(scenario)
        done.append(Done(case, run, before.since(several)))
    return done


def scores(done: list[Done]) -> list[Score]:
    """Fairness of what is coupled; and that the case was what it says."""
    result = []
    for each in (each for each in done if each.measured.scenario.coupled):
        name, counters = each.case.name, each.counters
        result.append(Score(f"{name}: Jain's index coupled, 1:4", each.measured.jain, "1", ">=", 0.98))
        if each.case.shape.tso:
            mean = counters.mean_bytes
            result.append(Score(f"{name}: mean given to the NIC", mean, "bytes", ">=", LARGEST_FRAME))
        if each.case.shape.cpus > 1:
            part = counters.least_part
            result.append(Score(f"{name}: least received on a processor", part, "%", ">=", 10))
    return result


def run(out: Path, machine: Machine) -> bool:
    """All cases, their table, result and figure; whether every score holds."""
    with HostDaemon(out) as daemon:
        bed = Dumbbell(machine, daemon, out, Shape(cpus=2, tso=True))
        done = [each for case in CASES for each in run_case(bed, case)]
    for case in CASES:
        print(f"\n{case.name}")
        table.print_table([each.measured for each in done if each.case == case])
    judged = scores(done)
    about = {"experiment": "variants-qemu", "accelerator": machine.accelerator, "host": bed.hosts}
    write_result(out / "result.json", [each.document() for each in done], judged, about)
    figure.by_case(
        {case.name: [each.run for each in done if each.case == case] for case in CASES}, out / "variants-qemu"
    )
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/variants-qemu.svg; raw data in {out}/raw")
    return holds
