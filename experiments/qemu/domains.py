# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Domains of libvirt, and programs run in them through their guest agents."""

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import GuestError, HostError
from .shell import host
from .ssh import Key

_TEMPLATE = Path(__file__).with_name("domain.xml")
# An emulated guest on a busy machine takes minutes.
_BOOT_S = 600.0
_NICE = -10


@dataclass(frozen=True)
class Shape:
    """What is other in one domain than in another."""

    cpus: int = 1
    # Its NIC cuts large segments for it.
    tso: bool = False


@dataclass(frozen=True)
class Machine:
    """What domains are made of."""

    emulator: Path
    accelerator: str
    image: Path
    key: Key

    def define(self, name: str, bridge: str, mac: int, console: Path, shape: Shape = Shape()) -> "Domain":
        """Defines a domain of this host with one NIC on a bridge."""
        text = _TEMPLATE.read_text().format(
            name=name,
            type={"kvm": "kvm", "tcg": "qemu"}[self.accelerator],
            cpu={"kvm": "host-passthrough", "tcg": "maximum"}[self.accelerator],
            emulator=self.emulator,
            image=self.image,
            key=self.key.public,
            bridge=bridge,
            mac=f"52:54:00:cc:00:{mac:02x}",
            console=console,
            cpus=shape.cpus,
            tso="on" if shape.tso else "off",
        )
        host("virsh", "-q", "define", "--validate", "/dev/stdin", stdin=text)
        return Domain(name)


@dataclass(frozen=True)
class Domain:
    """A domain by its name, of this host or of one that `inside` runs commands on."""

    name: str
    inside: tuple[str, ...] = ()

    def virsh(self, *arguments: str) -> str:
        """What libvirt says there."""
        return host(*self.inside, "virsh", "-q", *arguments)

    def start(self) -> float:
        """Starts it; seconds until its agent answers."""
        started = time.monotonic()
        self.virsh("start", self.name)
        self.favour()
        while not self.answers():
            if time.monotonic() - started > _BOOT_S:
                raise GuestError(f"{self.name}: no answer of its agent after {_BOOT_S:g} s")
            time.sleep(0.2)
        return time.monotonic() - started

    def favour(self) -> None:
        """Gives it and its libvirtd more of the processors than others have: emulated
        ones are slow, and real time waits for none.  Each is a session, which Linux
        schedules as a group where it is so configured; a nice value of a group's
        threads says nothing to other groups.  What does not run yet is left out."""
        pids = f"/run/libvirtd.pid /run/libvirt/qemu/{self.name}.pid"
        each = f"read -r pid <$file && echo {_NICE} >/proc/$pid/autogroup"
        host(*self.inside, "sh", "-c", f"for file in {pids}; do {{ {each}; }} 2>/dev/null; done; true")

    def answers(self) -> bool:
        """Its agent does."""
        try:
            self.virsh("qemu-agent-command", self.name, '{"execute": "guest-ping"}')
        except HostError:
            return False
        return True

    def run(self, script: str, patience_s: float = 300) -> str:
        """What a shell script in the guest prints."""
        return self.begin(script).end(patience_s)

    def begin(self, script: str) -> "Job":
        """Starts a shell script in the guest."""
        arguments = {"path": "/bin/sh", "arg": ["-ec", script], "capture-output": True}
        return Job(self, script, self.ask("guest-exec", arguments)["pid"])

    def ask(self, command: str, arguments: dict) -> dict:
        """What the guest's agent answers."""
        text = json.dumps({"execute": command, "arguments": arguments})
        answer = self.virsh("qemu-agent-command", "--timeout", "30", self.name, text)
        return json.loads(answer)["return"]


@dataclass(frozen=True)
class Job:
    """A script that runs in a guest."""

    domain: Domain
    script: str
    pid: int

    def end(self, patience_s: float) -> str:
        """What it has printed, when it has ended."""
        deadline = time.monotonic() + patience_s
        while True:
            status = self.domain.ask("guest-exec-status", {"pid": self.pid})
            if status["exited"]:
                break
            if time.monotonic() > deadline:
                raise GuestError(f"{self.domain.name}: not done after {patience_s:g} s: {self.script}")
            time.sleep(0.2)
        out, err = (base64.b64decode(status.get(key, "")).decode() for key in ("out-data", "err-data"))
        if status.get("exitcode") != 0:
            raise GuestError(f"{self.domain.name}: {self.script}: {err.strip() or out.strip()}")
        return out
