# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""iperf3 from a guest to a receiver behind a bottleneck."""

import json
import subprocess
import time
from pathlib import Path

from qemu.domains import Domain
from qemu.host import Daemon
from qemu.shell import host

COUNT = 4
_INTERVAL_S = 0.1
_PORT = "5201"
# iperf3's own word for being ended: any other error is one of the connections.
_ENDED = "the client has terminated"


def until(what: str, so, patience_s: float = 60) -> float:
    """Seconds until something is so."""
    began = time.monotonic()
    while not so():
        assert time.monotonic() - began < patience_s, f"never: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def all_coupled(domain: Domain, daemon: Daemon) -> bool:
    """All connections are, says the daemon; and says the guest."""
    if not taken(daemon, domain.name):
        return False
    return int(domain.run("grep -c ' coupled$' /sys/kernel/debug/ccc/flows || true")) == COUNT


def taken(daemon: Daemon, name: str) -> bool:
    """All connections are coupled, says the daemon."""
    return daemon.vm(name)["coupled_flows"] == COUNT


def devices(domain: Domain) -> list[str]:
    """Names of those that its QEMU has."""
    asked = '{"execute": "qom-list", "arguments": {"path": "/machine/peripheral"}}'
    answer = domain.virsh("qemu-monitor-command", domain.name, asked)
    return [device["name"] for device in json.loads(answer)["return"]]


class Uplink:
    """A receiver behind the bridge, 20 Mbit/s away."""

    address = "10.8.0.1"
    inside = ("ip", "netns", "exec", "far")

    def __init__(self, bridge: str) -> None:
        host("ip", "netns", "add", "far")
        host("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", "far")
        host("ip", "link", "set", "uplink", "master", bridge, "up")
        host("ip", "-n", "far", "link", "set", "eth0", "up")
        host("ip", "-n", "far", "address", "add", f"{self.address}/24", "dev", "eth0")
        host("tc", "qdisc", "add", "dev", "uplink", "root", "tbf",
             "rate", "20mbit", "burst", "5kb", "limit", "125000")  # fmt: skip


class Flows:
    """Connections of a domain's guest, from now on until `end`."""

    def __init__(self, domain: Domain, uplink: Uplink, directory: Path) -> None:
        self._report = directory / "iperf3.json"
        with self._report.open("w") as report:
            command = ["iperf3", "-s", "-1", "-J", "-i", str(_INTERVAL_S), "-p", _PORT]
            # This end has no such algorithm, which it says of each connection.
            quiet = subprocess.DEVNULL
            self._receiver = subprocess.Popen([*uplink.inside, *command], stdout=report, stderr=quiet)
        domain.run("ip address add 10.8.0.2/24 dev eth0; ip link set eth0 up")
        send = f"iperf3 -c {uplink.address} -p {_PORT} -P {COUNT} -C ccc -t 3600 -i 0"
        domain.run(f"busybox ping -c 1 -w 10 {uplink.address}; {send} </dev/null >/run/iperf3 2>&1 &")

    def end(self, domain: Domain) -> "Received":
        """Ends them; what arrived."""
        domain.run("busybox killall -INT iperf3")
        self._receiver.wait(30)
        return Received(json.loads(self._report.read_text()))


class Received:
    """What the receiver says of the connections."""

    def __init__(self, report: dict) -> None:
        self._report = report

    def no_flow_was_reset(self) -> bool:
        """All were there to the end, and got something in its last second."""
        if self._report["error"] != _ENDED:
            return False
        last: dict[int, int] = {}
        for interval in self._report["intervals"][-int(1 / _INTERVAL_S) :]:
            for stream in interval["streams"]:
                last[stream["socket"]] = last.get(stream["socket"], 0) + stream["bytes"]
        return len(last) == COUNT and all(last.values())

    def standstill_s(self) -> float:
        """The longest time in which nothing arrived."""
        longest = still = 0.0
        for interval in self._report["intervals"]:
            still = 0.0 if interval["sum"]["bytes"] else still + interval["sum"]["seconds"]
            longest = max(longest, still)
        return longest
