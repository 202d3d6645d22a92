# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A bottleneck behind a bridge of guests, and the receiver of their flows.

guest ──┐
guest ──┤ bridge ── uplink (tbf, 20 Mbit/s) ── eth0 in the receiver's namespace
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from .errors import require
from .host import Host, Namespace, stop
from .wait import TIMEOUT_S, until

ADDRESS = "10.77.0.1"
GUEST_ADDRESS = "10.77.0.2/24"
PORT = 5000
# Source ports of flows that a guest sends beside the coupled ones, without our module.
PLAIN_PORTS = range(6000, 6010)
_QUEUE = ("tbf", "rate", "20mbit", "burst", "5kb", "limit", "125000")


class Bottleneck:
    """The uplink of a host's bridge, and a namespace behind it."""

    def __init__(self, host: Host, bridge: str, far: Namespace) -> None:
        self.far = far
        host.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", far.name)
        host.run("ip", "link", "set", "uplink", "master", bridge, "up")
        host.run("tc", "qdisc", "add", "dev", "uplink", "root", *_QUEUE)
        far.host.run("ip", "link", "set", "eth0", "up")
        far.host.run("ip", "address", "add", f"{ADDRESS}/24", "dev", "eth0")

    def receiver(self, directory: Path) -> "Receiver":
        return Receiver(self.far.host, directory / "received")


class Receiver:
    """Accepts all flows at an address, and tells of each what arrived, until it is closed."""

    def __init__(self, host: Host, record: Path, address: str = ADDRESS) -> None:
        self._record = record
        with record.open("w") as file:
            program = Path(__file__).with_name("receive.py")
            self._process = host.start(sys.executable, program, address, str(PORT), stdout=file)

    def close(self) -> None:
        stop(self._process)

    def arrived(self, plain: bool = False) -> dict[str, int]:
        """Bytes of each flow by its source port: of those to be coupled, or of the plain ones."""
        received = self._latest()["bytes"]
        return {port: count for port, count in received.items() if (int(port) in PLAIN_PORTS) == plain}

    def moves(self, since: dict[str, int], plain: bool = False) -> bool:
        """Whether every flow has brought something since `arrived()` gave `since`."""
        now = self.arrived(plain)
        return all(now[port] > count for port, count in since.items())

    def standstill_s(self, since: float) -> float:
        """The longest time without any data after a time of time.time(), in seconds."""
        longest, last, total = 0.0, since, None
        for sample in map(json.loads, self._lines()):
            if sample["time"] < since:
                continue
            arrived = sum(sample["bytes"].values())
            if arrived != total:
                longest = max(longest, sample["time"] - last)
                last, total = sample["time"], arrived
        return max(longest, time.time() - last)

    def check(self, flows: int, what: str, timeout_s: float = TIMEOUT_S) -> None:
        """All flows are there, none has ended, and all of them move."""
        until(f"{what}: {flows} flows", lambda: len(self.arrived()) == flows, timeout_s)
        before = self.arrived()
        until(f"{what}: every flow moves", lambda: self.moves(before), timeout_s)
        ended = self.ended()
        require(not ended, f"{what}: {len(ended)} flows were reset")

    def ended(self) -> list[int]:
        """Source ports of the flows that have ended."""
        return list(self._latest()["ended"])

    def _latest(self) -> dict[str, Any]:
        lines = self._lines()
        return json.loads(lines[-1]) if lines else {"bytes": {}, "ended": []}

    def _lines(self) -> list[str]:
        """The samples that are written to the end."""
        return [line for line in self._record.read_text().splitlines(keepends=True) if line.endswith("\n")]
