# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' dumbbell: VMs on a bridge, and a guest that is the router with
the bottleneck, and the receivers behind it.

    vm1 ──┐
    vm2 ──┤ bridge ── eth0 router ── bott (netem rate, limit) ── rcv receivers
    …     ┘                                   (netem delay on rcv, the way back)
"""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Scenario
from testbed.host import HERE
from testbed.libvirt import USUAL, Guest, HostDaemon, Machine, Shape

from .traffic import RECEIVER, Traffic

_BRIDGE = "cccbr0"
# Nowhere are packets put together: they are counted one by one in the queue.
_APART = "ethtool -K {0} tso off gso off gro off >/dev/null 2>&1 || true; ip link set {0} gso_max_segs 1"


class Dumbbell:
    """The domains, and what is run on them."""

    def __init__(self, machine: Machine, daemon: HostDaemon, out: Path, shape: Shape = USUAL, vms: int = 2) -> None:
        self.daemon = daemon
        self._out = out
        self.say(f"accelerator: {machine.accelerator}")
        _make_bridge()
        router = self._define(machine, "net", 0, USUAL)
        self.vms = [self._define(machine, f"vm{n}", n, shape) for n in range(1, vms + 1)]
        for vm in self.vms:
            daemon.cccctl("attach", vm.name, "--group", "uplink", "--weight", "1")
        self.boot_s = {guest.name: self._start(guest) for guest in (router, *self.vms)}
        _set_up_router(router, Bottleneck())
        for number, vm in enumerate(self.vms, 1):
            _set_up_vm(vm, number)
            vm.run(f"busybox ping -c 3 -W 5 {RECEIVER}")
            login = shlex.join(machine.key.command(address(number)))
            self.say(f"{vm.name}: nsenter --net --target {os.environ['CCC_LIBVIRT_PID']} {login}")
        self._traffic = Traffic(router, tuple(self.vms))
        self.hosts: dict[str, dict] = {}

    def _define(self, machine: Machine, name: str, number: int, shape: Shape) -> Guest:
        return machine.define(name, _BRIDGE, number, self._out / f"{name}.console", shape)

    def _start(self, guest: Guest) -> float:
        took = round(guest.boot(), 1)
        self.say(f"{guest.name}: up in {took} s")
        return took

    def run(self, scenario: Scenario, meanwhile: Callable[[], None] | None = None, last_s: int = 0) -> Run:
        """One run; weights are set as an operator does.  The last VM begins so much later."""
        for vm, wanted in zip(self.vms, scenario.vms):
            self.daemon.cccctl("attach", vm.name, "--weight", f"{wanted.weight:g}")
        raw = self._out / "raw" / scenario.name
        run, self.hosts[scenario.name] = self._traffic.run(scenario, raw, meanwhile, last_s)
        self.say(f"{scenario.name}: {self.hosts[scenario.name]}")
        return run

    def say(self, text: str) -> None:
        """Tells how far it is."""
        print(f"{self._out.name}: {text}", file=sys.stderr, flush=True)


def _make_bridge() -> None:
    HERE.run("ip", "link", "add", _BRIDGE, "type", "bridge")
    HERE.run("ip", "link", "set", _BRIDGE, "up")
    # For who logs in.
    HERE.run("ip", "address", "add", "10.1.1.2/24", "dev", _BRIDGE)


def address(number: int) -> str:
    """Of a VM."""
    return f"10.1.1.{10 + number}"


def _set_up_vm(vm: Guest, number: int) -> None:
    vm.run(
        f"{_APART.format('eth0')}; ip address add {address(number)}/24 dev eth0; ip link set eth0 up;"
        " ip route add default via 10.1.1.1"
    )


def _set_up_router(router: Guest, bottleneck: Bottleneck) -> None:
    """Addresses, queues, and a receiver for each VM."""
    router.run(
        f"{_APART.format('eth0')}; ip address add 10.1.1.1/24 dev eth0; ip link set eth0 up;"
        " sysctl -qw net.ipv4.ip_forward=1; modprobe -a veth sch_netem;"
        " ip netns add rcv; ip link add bott type veth peer name rcv netns rcv;"
        f" {_APART.format('bott')}; ip address add 10.2.0.1/24 dev bott; ip link set bott up;"
        f" ip netns exec rcv sh -c '{_APART.format('rcv')}';"
        f" ip -n rcv address add {RECEIVER}/24 dev rcv; ip -n rcv link set rcv up; ip -n rcv link set lo up;"
        " ip -n rcv route add default via 10.2.0.1;"
        f" tc qdisc add dev bott root netem rate {bottleneck.rate_mbit}mbit limit {bottleneck.limit_packets};"
        f" tc -n rcv qdisc add dev rcv root netem delay {bottleneck.delay_ms}ms"
    )
