# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' VM fairness test in real time: libvirt's QEMU domains, Debian's
kernel and iperf3, beside the same cases in virtual time."""

import sys
import time
from pathlib import Path

from ccc_experiments import fairness, lab, table
from ccc_experiments.lab import Scenario
from ccc_experiments.measure import Measured, measure
from ccc_experiments.runs import Run
from ccc_experiments.scores import Score, print_scores, write_result

from . import figure, network
from .domains import Domain, Machine, host
from .host import Daemon
from .traffic import Laboratory

COUNTS = (1, 4)
DURATION_S = 60.0
# When the live run's weights change, and what to.
CHANGES = ((20.0, "metadata", "vm1", 4.0), (40.0, "cccctl", "vm1", 0.25))


def cases() -> list[Scenario]:
    """Uncoupled and coupled with equal weights; coupled with 3 : 1."""
    equal = list(fairness.pair(COUNTS, (1, 1), 1, DURATION_S))
    weighted = [s for s in fairness.pair(COUNTS, (3, 1), 1, DURATION_S) if s.coupled]
    return equal + weighted


class Demo:
    """The domains, and what is done with them."""

    def __init__(self, machine: Machine, daemon: Daemon, out: Path) -> None:
        self._daemon = daemon
        self._raw = out / "raw"
        self.boot_s: dict[str, float] = {}
        network.make_bridge()
        names = ("net", "vm1", "vm2")
        domains = [
            machine.define(name, network.BRIDGE, number, out / f"{name}.console")
            for number, name in enumerate(names)
        ]
        self._vms = domains[1:]
        for vm in self._vms:
            daemon.control("attach", vm.name, "--group", "uplink", "--weight", "1")
        for domain in domains:
            self.boot_s[domain.name] = round(domain.start(), 1)
            _say(f"{domain.name}: up in {self.boot_s[domain.name]} s")
        network.set_up_router(domains[0], lab.Bottleneck())
        for number, vm in enumerate(self._vms, 1):
            network.set_up_vm(vm, number)
            vm.run(f"busybox ping -c 3 -W 5 {network.RECEIVER}")
        self._laboratory = Laboratory(domains[0], tuple(self._vms))
        self.hosts: dict[str, dict] = {}

    def run(self, scenario: Scenario, meanwhile=None) -> Run:
        """One run; weights are set as an operator does."""
        for vm, wanted in zip(self._vms, scenario.vms):
            self._daemon.control("attach", vm.name, "--weight", f"{wanted.weight:g}")
        run, self.hosts[scenario.name] = self._laboratory.run(scenario, self._raw / scenario.name, meanwhile)
        _say(f"{scenario.name}: {self.hosts[scenario.name]}")
        return run

    def change_weights(self, began: float) -> None:
        """Changes weights of running domains, and waits for each to be in force."""
        self.changes = []
        for at_s, way, vm, weight in CHANGES:
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            before = self._daemon.log.count("connected")
            asked = time.monotonic()
            if way == "metadata":
                _set_metadata(vm, weight)
            else:
                self._daemon.control("set", vm, "--weight", f"{weight:g}")
            while not self._in_force(vm, weight):
                time.sleep(0.01)
            took = time.monotonic() - asked
            reconnects = self._daemon.log.count("connected") - before
            self.changes.append({
                "at_s": round(asked - began, 2), "by": way, "vm": vm, "weight": weight,
                "in_force_after_s": round(took, 3), "reconnects": reconnects,
            })

    def _in_force(self, vm: str, weight: float) -> bool:
        """The daemon grants both VMs as the weight says."""
        parts = {part["name"]: part for part in self._daemon.group("uplink")["vms"]}
        other = next(part for name, part in parts.items() if name != vm)
        if parts[vm]["weight"] != weight or not other["part"]:
            return False
        wanted = weight / other["weight"]
        return abs(parts[vm]["part"] / other["part"] / wanted - 1) < 0.25


def _set_metadata(vm: str, weight: float) -> None:
    element = f'<vm group="uplink" weight="{weight:g}"/>'
    place = ("--domain", vm, "--uri", "urn:ccc:vm:1", "--key", "ccc")
    host("virsh", "-q", "metadata", *place, "--set", element, "--live", "--config")


def scores(measured: list[Measured], changes: list[dict]) -> list[Score]:
    uncoupled, coupled, weighted = measured
    result = [
        Score("Jain's index uncoupled, 1:4", uncoupled.jain, "1", "<=", 0.85),
        Score("Jain's index coupled, 1:4", coupled.jain, "1", ">=", 0.98),
        Score("worst error of weighted share, 1:4 (3:1)", fairness.share_error(weighted), "%", "<=", 8),
    ]
    for change in changes:
        name = f"weight changed by {change['by']}"
        result += [
            Score(f"{name}: in force after", change["in_force_after_s"], "s", "<=", 1),
            Score(f"{name}: reconnects", change["reconnects"], "1", "<=", 0),
        ]
    return result


def run(out: Path, machine: Machine, programs: Path) -> bool:
    """All runs, their table, result and figures; whether every score holds."""
    _say(f"accelerator: {machine.accelerator}")
    with Daemon(programs, out) as daemon:
        demo = Demo(machine, daemon, out)
        real = [demo.run(scenario) for scenario in cases()]
        live_case = fairness.pair(COUNTS, (1, 1), 2, DURATION_S)
        live = demo.run(list(live_case)[1], demo.change_weights)
    virtual_raw = lab.run_all(cases(), lab.Parts.built(), out / "virtual")
    virtual = [Run(measure(s, raw), raw) for s, raw in zip(cases(), virtual_raw)]
    print("\nin virtual time")
    table.print_table([run.measured for run in virtual])
    print("\non QEMU")
    table.print_table([run.measured for run in real])
    judged = scores([run.measured for run in real], demo.changes)
    about = {
        "experiment": "demo-qemu",
        "accelerator": machine.accelerator,
        "boot_s": demo.boot_s,
        "weight_changes": demo.changes,
        "host": demo.hosts,
        "virtual": [run.measured.document() for run in virtual],
    }
    documents = [run.measured.document() for run in (*real, live)]
    write_result(out / "result.json", documents, judged, about)
    figure.side_by_side(virtual, real, out / "demo-qemu")
    figure.weight_changes(live, demo.changes, out / "weights")
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/demo-qemu.svg, {out}/weights.svg; raw data in {out}/raw")
    return holds


def _say(text: str) -> None:
    print(f"demo-qemu: {text}", file=sys.stderr, flush=True)
