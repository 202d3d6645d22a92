# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' VM fairness test in real time: libvirt's QEMU domains, Debian's
kernel and iperf3, beside the same cases in virtual time."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ccc_experiments import fairness, lab, table
from ccc_experiments.measure import Measured, measure
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Scenario
from ccc_experiments.scores import Score, print_scores, write_result
from testbed.libvirt import HostDaemon, Machine, set_metadata
from testbed.wait import until

from . import figure
from .dumbbell import Dumbbell

COUNTS = (1, 4)
DURATION_S = 60.0
QUICK_S = 30.0
# Of a case whose bound does not hold in the first.
RUNS = 3
# When the live run's weights change, and what to.
CHANGES = ((20.0, "metadata", "vm1", 4.0), (40.0, "cccctl", "vm1", 0.25))


def cases(quick: bool) -> list[Scenario]:
    """Uncoupled and coupled with equal weights; coupled with 3 : 1.  Of the quick form
    only what is coupled: nothing is claimed of the rest."""
    duration_s = QUICK_S if quick else DURATION_S
    equal = list(fairness.pair(COUNTS, (1, 1), 1, duration_s))
    _, weighted = fairness.pair(COUNTS, (3, 1), 1, duration_s)
    return [s for s in (*equal, weighted) if s.coupled or not quick]


class WeightChanges:
    """Changes weights of running domains, and waits for each to be in force."""

    def __init__(self, daemon: HostDaemon) -> None:
        self._daemon = daemon
        self.made: list[dict] = []

    def make(self) -> None:
        """Each at its time after the flows began."""
        began = self._flows_began()
        for at_s, way, vm, weight in CHANGES:
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            before = self._daemon.log.count("connected")
            asked = time.monotonic()
            if way == "metadata":
                set_metadata(vm, f'<vm group="uplink" weight="{weight:g}"/>', "--live", "--config")
            else:
                self._daemon.cccctl("set", vm, "--weight", f"{weight:g}")
            until(f"{vm}: weight {weight:g} in force", lambda: self._in_force(vm, weight), poll_s=0.01)
            took = time.monotonic() - asked
            reconnects = self._daemon.log.count("connected") - before
            self.made.append(
                {
                    "at_s": round(asked - began, 2),
                    "by": way,
                    "vm": vm,
                    "weight": weight,
                    "in_force_after_s": round(took, 3),
                    "reconnects": reconnects,
                }
            )

    def _flows_began(self) -> float:
        """When the last of the flows is registered: iperf3 takes a second to get there."""
        until("all flows are registered", lambda: sum(map(self._flows, ("vm1", "vm2"))) == sum(COUNTS))
        return time.monotonic()

    def _flows(self, vm: str) -> int:
        there = self._daemon.vm(vm)
        return there["flows"] if there else 0

    def _in_force(self, vm: str, weight: float) -> bool:
        """The daemon grants both VMs as the weight says."""
        parts = {part["name"]: part for part in self._daemon.group("uplink")["vms"]}
        other = next(part for name, part in parts.items() if name != vm)
        if parts[vm]["weight"] != weight or not other["part"]:
            return False
        wanted = weight / other["weight"]
        return abs(parts[vm]["part"] / other["part"] / wanted - 1) < 0.25


def claim(measured: Measured) -> Score:
    """What is claimed of a case that is coupled."""
    if len({vm.weight for vm in measured.scenario.vms}) == 1:
        return Score("Jain's index coupled, 1:4", measured.jain, "1", ">=", 0.98)
    return Score("worst error of weighted share, 1:4 (3:1)", fairness.share_error(measured), "%", "<=", 8)


def runs_of(scenario: Scenario, run: Callable[[Scenario], Run]) -> list[Run]:
    """One run; where its bound does not hold, as when a guest stood still, more of them: all, whatever they say."""
    runs = [run(scenario)]
    if scenario.coupled and not claim(runs[0].measured).holds:
        runs += [run(replace(scenario, name=f"{scenario.name}-again{number}")) for number in range(1, RUNS)]
    return runs


def fullest(runs: list[Run]) -> Run:
    """The one that is judged: whose path was fullest.  Where a machine has no time for its guests the path
    is not, and what they share then is the machine."""
    return max(runs, key=lambda run: run.measured.sum_mbit)


def scores(real: list[list[Run]], changes: list[dict]) -> list[Score]:
    """Of what is coupled.  What uncoupled flows do is shown beside it, and is no claim."""
    judged = ((fullest(runs).measured, len(runs)) for runs in real)
    result = [
        replace(claim(measured), fullest_of=count if count > 1 else None)
        for measured, count in judged
        if measured.scenario.coupled
    ]
    for change in changes:
        name = f"weight changed by {change['by']}"
        result += [
            Score(f"{name}: in force after", change["in_force_after_s"], "s", "<=", 1),
            Score(f"{name}: reconnects", change["reconnects"], "1", "<=", 0),
        ]
    return result


def change_weights(bed: Dumbbell, daemon: HostDaemon, out: Path) -> tuple[list[Run], list[dict]]:
    """A run in which weights change, its figure, and the changes."""
    changes = WeightChanges(daemon)
    _, scenario = fairness.pair(COUNTS, (1, 1), 2, DURATION_S)
    live = bed.run(scenario, changes.make)
    figure.weight_changes(live, changes.made, out / "weights")
    return [live], changes.made


def run(out: Path, machine: Machine, quick: bool) -> bool:
    """All runs, their table, result and figures; whether every score holds."""
    scenarios = cases(quick)
    with HostDaemon(out) as daemon:
        bed = Dumbbell(machine, daemon, out)
        real = [runs_of(scenario, bed.run) for scenario in scenarios]
        live, changes = ([], []) if quick else change_weights(bed, daemon, out)
    virtual_raw = lab.run_all(scenarios, lab.Parts.built(), out / "virtual")
    virtual = [Run(measure(s, raw), raw) for s, raw in zip(scenarios, virtual_raw)]
    print("\nin virtual time")
    table.print_table([run.measured for run in virtual])
    print("\non QEMU")
    table.print_table([run.measured for runs in real for run in runs])
    judged = scores(real, changes)
    about = {
        "experiment": "demo-qemu",
        "accelerator": machine.accelerator,
        "boot_s": bed.boot_s,
        "weight_changes": changes,
        "host": bed.hosts,
        "virtual": [run.measured.document() for run in virtual],
    }
    documents = [run.measured.document() for runs in (*real, live) for run in runs]
    write_result(out / "result.json", documents, judged, about)
    figure.side_by_side(virtual, [fullest(runs) for runs in real], out / "demo-qemu")
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/demo-qemu.svg; raw data in {out}/raw")
    return holds
