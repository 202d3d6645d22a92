# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the collection's tests are made of: a controller, and machines that are fresh.

A host is a Debian with its systemd in namespaces of this machine, where libvirt, our daemon and
QEMU run at full speed; or a virtual machine.  Guests are always virtual machines.
"""

import json
import os
import re
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from container import Container
from testbed import artefacts
from testbed.errors import TestbedError
from testbed.host import HERE, Host
from testbed.machine import SSH_OPTIONS

HERE_DIR = Path(__file__).resolve().parent
COLLECTION = HERE_DIR.parent
RECEIVER, HOST = "10.77.0.1", "10.77.0.254"
GUESTS = {"guest1": "10.77.0.11", "guest2": "10.77.0.12"}
_RECAP = re.compile(r"^(?P<name>\S+)\s+: ok=\d+\s+changed=(?P<changed>\d+)\s", re.M)
PLAY_S = 3000.0


@dataclass(frozen=True)
class Played:
    """How a playbook went."""

    status: int
    text: str
    minutes: float

    @property
    def changed(self) -> dict[str, int]:
        """How many tasks changed something on each machine."""
        return {said["name"]: int(said["changed"]) for said in _RECAP.finditer(self.text)}

    @property
    def why(self) -> str:
        """What failed, for people."""
        told = ("fatal:", "ERROR", "changed: [")
        return "\n".join(line for line in self.text.splitlines() if any(word in line for word in told))[-4000:]


class Controller:
    """Runs playbooks of this directory, with the collection as it is installed from its tarball."""

    def __init__(self, directory: Path, programs: Path, inside: tuple[str, ...] = ()) -> None:
        self._directory, self._programs, self._inside = directory, programs, inside
        galaxy = (programs / "ansible-galaxy", "collection")
        HERE.run(*galaxy, "build", "--output-path", directory, COLLECTION)
        (tarball,) = directory.glob("ccc-coupling-*.tar.gz")
        HERE.run(*galaxy, "install", "--offline", "--collections-path", directory, tarball)
        # Ours: another test's machine may have the same address elsewhere.
        self._connections = tempfile.TemporaryDirectory(prefix="ssh-")
        self.hosts: dict[str, dict] = {}
        self.groups: dict[str, list[str]] = {}
        self.variables: dict[str, object] = {
            "ansible_user": "root",
            "ansible_ssh_common_args": SSH_OPTIONS,
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def add(self, name: str, group: str, **variables: object) -> None:
        self.hosts[name] = variables
        self.groups.setdefault(group, []).append(name)

    def play(self, playbook: str, *arguments: str, **variables: object) -> Played:
        """Runs a playbook; its text is kept beside the inventory."""
        inventory = {"all": {"hosts": self.hosts, "vars": self.variables, "children": {}}}
        for group, names in self.groups.items():
            inventory["all"]["children"][group] = {"hosts": dict.fromkeys(names, {})}
        path = self._directory / "inventory.json"
        path.write_text(json.dumps(inventory, indent=1))
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": str(self._directory),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": self._connections.name,
            "ANSIBLE_PIPELINING": "1", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_TIMEOUT": "120",
            # With times, and while it runs.
            "ANSIBLE_LOG_PATH": str(self._directory / "ansible.log"),
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "0", "ANSIBLE_LOCALHOST_WARNING": "0",
            "PATH": f"{self._programs}:{os.environ['PATH']}",
        }  # fmt: skip
        extra = ("-e", json.dumps(variables)) if variables else ()
        command = ("ansible-playbook", "-i", path, HERE_DIR / "playbooks" / playbook, *extra, *arguments)
        began = time.monotonic()
        done = Host(self._inside).attempt(*command, environment=environment, timeout_s=PLAY_S)
        with (self._directory / "plays.log").open("a") as log:
            log.write(f"$ {' '.join(map(str, command))}\n{done.text}\n")
        return Played(done.status, done.text, (time.monotonic() - began) / 60)


class FreshHost(Container):
    """A fresh Debian as a host, in namespaces of this machine; guests and a receiver are on its bridge.

    guest ──┐
    guest ──┤ bridge ── uplink (tbf) ── eth0 in the receiver's namespace
            └ the host itself
    """

    def __init__(self, release: str, directory: Path, rate_mbit: int, guests: Iterable[str] = tuple(GUESTS)) -> None:
        self.files = artefacts.build(f"machine-{release}")
        self._directory, self._rate_mbit = directory, rate_mbit
        disks = directory / "disks"
        disks.mkdir()
        for name in guests:
            HERE.run("cp", "--sparse=always", self.files / "disk.img", disks / f"{name}.img")
        binds = (f"--bind-ro={self.files}:/machine", f"--bind={disks}:/disks", "--bind=/dev/net/tun")
        super().__init__(self.files / "root.tar", directory, self.files / "packages", *binds, bpf=True)

    def __enter__(self) -> "FreshHost":
        super().__enter__()
        try:
            self._connect()
        except TestbedError:
            self.__exit__()
            raise
        return self

    def _connect(self) -> None:
        """A bridge, and behind its uplink the receiver, who is logged in to as well."""
        assert self.host
        queue = ("tbf", "rate", f"{self._rate_mbit}mbit", "burst", "5kb", "limit", "125000")
        for command in (
            "ip link set lo up",
            "ip link add br0 type bridge",
            f"ip address add {HOST}/24 dev br0",
            "ip link set br0 up",
            "ip netns add receiver",
            "ip link add uplink type veth peer name eth0 netns receiver",
            "ip link set uplink master br0 up",
            "ip -n receiver link set lo up",
            "ip -n receiver link set eth0 up",
            f"ip -n receiver address add {RECEIVER}/24 dev eth0",
            "ip netns exec receiver /usr/sbin/sshd",
        ):
            self.host.run(*command.split())
        self.host.run("tc", "qdisc", "add", "dev", "uplink", "root", *queue)

    @property
    def enter_network(self) -> tuple[str, ...]:
        """What comes before a command of this machine that is to be in its network."""
        assert self.host
        pid = self.host.enter[self.host.enter.index("--target") + 1]
        return ("nsenter", "--target", pid, "--net", "--")
