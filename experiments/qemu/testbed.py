# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Two VMs and the network between them and their receivers, as domains."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from ccc_experiments import lab
from ccc_experiments.lab import Scenario
from ccc_experiments.runs import Run

from . import network
from .domains import Domain, Machine, Shape
from .host import Daemon
from .traffic import Laboratory


class Testbed:
    """The domains, and what is run on them."""

    def __init__(self, machine: Machine, daemon: Daemon, out: Path, shape: Shape = Shape()) -> None:
        self.daemon = daemon
        self._out = out
        self.say(f"accelerator: {machine.accelerator}")
        network.make_bridge()
        router = self._define(machine, "net", 0, Shape())
        self.vms = [self._define(machine, f"vm{n}", n, shape) for n in (1, 2)]
        for vm in self.vms:
            daemon.control("attach", vm.name, "--group", "uplink", "--weight", "1")
        self.boot_s = {domain.name: self._start(domain) for domain in (router, *self.vms)}
        network.set_up_router(router, lab.Bottleneck())
        for number, vm in enumerate(self.vms, 1):
            network.set_up_vm(vm, number)
            vm.run(f"busybox ping -c 3 -W 5 {network.RECEIVER}")
            login = shlex.join(machine.key.command(network.address(number)))
            self.say(f"{vm.name}: nsenter --net --target {os.environ['CCC_LIBVIRT_PID']} {login}")
        self._laboratory = Laboratory(router, tuple(self.vms))
        self.hosts: dict[str, dict] = {}

    def _define(self, machine: Machine, name: str, number: int, shape: Shape) -> Domain:
        return machine.define(name, network.BRIDGE, number, self._out / f"{name}.console", shape)

    def _start(self, domain: Domain) -> float:
        took = round(domain.start(), 1)
        self.say(f"{domain.name}: up in {took} s")
        return took

    def run(self, scenario: Scenario, meanwhile: Callable[[], None] | None = None) -> Run:
        """One run; weights are set as an operator does."""
        for vm, wanted in zip(self.vms, scenario.vms):
            self.daemon.control("attach", vm.name, "--weight", f"{wanted.weight:g}")
        raw = self._out / "raw" / scenario.name
        run, self.hosts[scenario.name] = self._laboratory.run(scenario, raw, meanwhile)
        self.say(f"{scenario.name}: {self.hosts[scenario.name]}")
        return run

    def say(self, text: str) -> None:
        """Tells how far it is."""
        print(f"{self._out.name}: {text}", file=sys.stderr, flush=True)
