# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A second host, for what takes two."""

import os
import subprocess
from pathlib import Path

from qemu.shell import host

_PRIVATE = Path("experiments/qemu/private-libvirt")
_CABLE = "cable"


class OtherHost:
    """Namespaces with a libvirtd of their own, whose bridge and ours are connected.

    `inside` runs a command there, `here` and `there` are the two addresses."""

    here = "10.9.0.1"
    there = "10.9.0.2"

    def __init__(self, bridge: str, directory: Path) -> None:
        self._bridge = bridge
        names = {"CCC_LIBVIRT_HOST": "there", "CCC_LIBVIRT_LOG": str(directory / "libvirtd-there.log")}
        wait = "echo ready; exec sleep infinity"
        self._process = subprocess.Popen(
            [_PRIVATE, "sh", "-c", wait], env=os.environ | names, stdout=subprocess.PIPE, text=True
        )
        self._process.stdout.readline()
        tree = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._pid = tree.read_text().strip()
        self.inside = ("nsenter", "--target", self._pid, "--mount", "--uts", "--ipc", "--net", "--pid")

    def __enter__(self) -> "OtherHost":
        host(*self.inside, "ip", "link", "add", self._bridge, "type", "bridge")
        host("ip", "link", "add", _CABLE, "type", "veth", "peer", "name", _CABLE, "netns", self._pid)
        for inside, address in (((), self.here), (self.inside, self.there)):
            host(*inside, "ip", "link", "set", _CABLE, "master", self._bridge, "up")
            host(*inside, "ip", "address", "add", f"{address}/24", "dev", self._bridge)
            host(*inside, "ip", "link", "set", self._bridge, "up")
        return self

    def __exit__(self, *_) -> None:
        host("ip", "link", "del", _CABLE)
        host("ip", "address", "del", f"{self.here}/24", "dev", self._bridge)
        # Its first process takes all others along.
        self._process.kill()
        self._process.wait()
