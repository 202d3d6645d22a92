# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Domains of libvirt on a host that has a libvirtd of its own (`private-libvirt`),
and the daemon and `cccctl watch` as that host runs them."""

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from .artefacts import program
from .daemon import ControlError, Daemon
from .errors import CommandError, GuestError, TimedOut
from .host import HERE, Host, Outcome, is_running, stop
from .ssh import Key
from .wait import until

CONTROL = Path("/run/ccc/control/control.sock")
STATE = Path("/run/ccc/state/state.json")
VM_SOCKETS = Path("/run/ccc/vm")
METADATA_URI = "urn:ccc:vm:1"
# No call of libvirt's may take longer, whatever the daemon does.
CALL_S = 60.0
# An emulated guest on a busy machine takes minutes.
_BOOT_S = 600.0
_NICE = -10
# How long libvirtd may take to end by itself.
_END_S = 20.0
# The capabilities that ccc-watch.service leaves it.
_AS_ITS_SERVICE = ("setpriv", "--bounding-set=-all,+dac_override", "--no-new-privs")
_LIBVIRTD_PID = Path("/run/libvirtd.pid")
_GUEST = Path(__file__).with_name("domain.xml")
_FIRMWARE = """<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>16</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>{emulator}</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
"""


def virsh(*arguments: str, stdin: str | None = None) -> Outcome:
    """A call of libvirt's that may fail, but not hang."""
    with _with_log_of_libvirtd():
        return HERE.attempt("virsh", "-q", *arguments, stdin=stdin, timeout_s=CALL_S)


def set_metadata(name: str, element: str, *where: str, host: Host = HERE) -> None:
    """Writes our element into a domain's metadata: `where` is --live, --config or both."""
    place = ("--domain", name, "--uri", METADATA_URI, "--key", "ccc")
    host.run("virsh", "-q", "metadata", *place, "--set", element, *where)


def restart_libvirtd(path: str | None = None) -> None:
    """Ends libvirtd and starts another, which finds programs in `path`; returns when
    it has looked at all running domains."""
    _end_libvirtd()
    environment = {"PATH": path} if path else None
    started = HERE.attempt("libvirtd", "--daemon", "--listen", environment=environment, timeout_s=CALL_S)
    if not started.ok:
        raise CommandError(f"libvirtd: {started.text}\n{_log_of_libvirtd()}")
    with _with_log_of_libvirtd():
        until("libvirtd answers", _answers)


def _answers() -> bool:
    with suppress(TimedOut):
        return HERE.attempt("virsh", "-q", "list", timeout_s=CALL_S).ok
    return False


@contextmanager
def _with_log_of_libvirtd() -> Iterator[None]:
    """What takes too long tells what libvirtd has said of late."""
    try:
        yield
    except TimedOut as late:
        raise TimedOut(f"{late}\n{_log_of_libvirtd()}") from late


def _log_of_libvirtd(lines: int = 20) -> str:
    log = Path(os.environ.get("CCC_LIBVIRT_LOG", "/run/libvirtd.log"))
    return "\n".join(log.read_text().splitlines()[-lines:]) if log.exists() else f"no {log}"


def _end_libvirtd() -> None:
    """As a service manager does: libvirtd 9.0 can hang when its sockets are gone already."""
    pid = int(_LIBVIRTD_PID.read_text()) if _LIBVIRTD_PID.exists() else 0
    if not (pid and is_running(pid)):
        return
    os.kill(pid, signal.SIGTERM)
    try:
        until("libvirtd ends", lambda: not is_running(pid), _END_S)
    except TimedOut:
        os.kill(pid, signal.SIGKILL)
        until("libvirtd ends", lambda: not is_running(pid))


@dataclass
class HostDaemon(Daemon):
    """The daemon without any VM, and `cccctl watch` beside it, as libvirt's host has them."""

    sections: str = "[group.uplink]"
    control: Path = CONTROL
    state: Path | None = STATE
    _watch: "Popen[str] | None" = field(default=None, repr=False)

    def __enter__(self) -> "HostDaemon":
        self.host.run("mkdir", "-p", CONTROL.parent, STATE.parent, VM_SOCKETS)
        self.start()
        self.watch()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_watch()
        self.stop()

    def watch(self) -> None:
        """Starts `cccctl watch` anew; it ends with its libvirtd."""
        self.end_watch()
        with (self.directory / "cccctl.log").open("w") as log:
            self._watch = self.host.start(*_AS_ITS_SERVICE, program("cccctl"), "watch", stdout=log, stderr=log)

    def end_watch(self) -> None:
        if self._watch:
            stop(self._watch)
            self._watch = None

    def get(self, path: str, timeout_s: float = CALL_S) -> dict[str, Any]:
        """By `cccctl` on another host: a daemon refuses processes that it cannot see."""
        if self.host == HERE:
            return super().get(path, timeout_s)
        _, _, *name = path.removeprefix("/").split("/")
        outcome = self.host.attempt(program("cccctl"), "--json", *(("show", *name) if name else ("list",)))
        if not outcome.ok:
            raise ControlError(404 if "no VM" in outcome.text else 500, outcome.text)
        answered: dict[str, Any] = json.loads(outcome.stdout)
        return answered

    def cccctl(self, *arguments: str) -> str:
        """What `cccctl` prints; raises CommandError if it fails."""
        return self.host.run(program("cccctl"), *arguments)


@dataclass(frozen=True)
class Domain:
    """A domain by its name."""

    name: str
    host: Host = HERE

    @classmethod
    def of_firmware(cls, name: str, emulator: Path) -> "Domain":
        """Defines a domain whose guest is no more than its firmware."""
        HERE.run(
            "virsh", "-q", "define", "--validate", "/dev/stdin", stdin=_FIRMWARE.format(name=name, emulator=emulator)
        )
        return cls(name)

    def virsh(self, *arguments: str | Path) -> str:
        """What libvirt's client prints on the domain's host."""
        return self.host.run("virsh", "-q", *arguments)

    def start(self) -> None:
        self.virsh("start", self._uuid())

    def destroy(self) -> None:
        """Ends it at once, if it runs."""
        self._attempt("destroy", self._uuid())

    def remove(self) -> None:
        """Leaves nothing of it, also where a test has left no libvirtd that answers: each later one would find it."""
        if self.host == HERE and not _answers():
            restart_libvirtd()
        self.destroy()
        self._attempt("undefine", self._uuid())

    def pid(self) -> int:
        """Of its QEMU."""
        return int(Path(f"/run/libvirt/qemu/{self.name}.pid").read_text())

    def is_running(self) -> bool:
        state = self._attempt("domstate", self.name)
        return state.ok and state.text.strip() == "running"

    def xml(self) -> str:
        """Its definition for the next start."""
        return self.virsh("dumpxml", "--inactive", self._uuid())

    def devices(self) -> list[str]:
        """Names of the devices that its QEMU has beside the board's."""
        asked = '{"execute": "qom-list", "arguments": {"path": "/machine/peripheral"}}'
        answer = self.virsh("qemu-monitor-command", self.name, asked)
        return [device["name"] for device in json.loads(answer)["return"]]

    def _attempt(self, *arguments: str) -> Outcome:
        with _with_log_of_libvirtd():
            return self.host.attempt("virsh", "-q", *arguments, timeout_s=CALL_S)

    def _uuid(self) -> str:
        """virsh takes a name of digits for the id of another domain."""
        if not self.name.isdigit():
            return self.name
        pairs = (line.split(maxsplit=1) for line in self.virsh("list", "--all", "--uuid", "--name").splitlines())
        return next((uuid for uuid, name in filter(None, pairs) if name == self.name), self.name)


@dataclass(frozen=True)
class Shape:
    """What is other in one guest than in another."""

    cpus: int = 1
    # Its NIC cuts large segments for it.
    tso: bool = False


USUAL = Shape()


@dataclass(frozen=True)
class Machine:
    """What guests are made of."""

    emulator: Path
    accelerator: str
    image: Path
    key: Key

    def define(self, name: str, bridge: str, mac: int, console: Path, shape: Shape = USUAL) -> "Guest":
        """Defines a guest of this host with one NIC on a bridge."""
        text = _GUEST.read_text().format(
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
        HERE.run("virsh", "-q", "define", "--validate", "/dev/stdin", stdin=text)
        return Guest(name)


@dataclass(frozen=True)
class Guest(Domain):
    """A domain of Debian with a guest agent, through which programs are run in it."""

    def boot(self) -> float:
        """Starts it; seconds until its agent answers."""
        began = time.monotonic()
        self.start()
        self.prioritise()
        until(f"{self.name}: its agent answers", self.answers, _BOOT_S, poll_s=0.2)
        return time.monotonic() - began

    def prioritise(self) -> None:
        """Gives it and its libvirtd more of the processors than others have: emulated
        ones are slow, and real time waits for none.  Each is a session, which Linux
        schedules as a group where it is so configured; a nice value of a group's
        threads says nothing to other groups.  What does not run yet is left out."""
        pids = f"{_LIBVIRTD_PID} /run/libvirt/qemu/{self.name}.pid"
        each = f"read -r pid <$file && echo {_NICE} >/proc/$pid/autogroup"
        self.host.run("sh", "-c", f"for file in {pids}; do {{ {each}; }} 2>/dev/null; done; true")

    def answers(self) -> bool:
        """Whether its agent does."""
        with suppress(CommandError):
            self.virsh("qemu-agent-command", self.name, '{"execute": "guest-ping"}')
            return True
        return False

    def run(self, script: str, timeout_s: float = 300) -> str:
        """What a shell script in the guest prints."""
        return self.begin(script).result(timeout_s)

    def begin(self, script: str) -> "Job":
        """Starts a shell script in the guest."""
        arguments = {"path": "/bin/sh", "arg": ["-ec", script], "capture-output": True}
        return Job(self, script, self.ask("guest-exec", arguments)["pid"])

    def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        """What the guest's agent answers."""
        text = json.dumps({"execute": command, "arguments": arguments})
        answer = self.virsh("qemu-agent-command", "--timeout", "30", self.name, text)
        return json.loads(answer)["return"]


@dataclass(frozen=True)
class Job:
    """A script that runs in a guest."""

    guest: Guest
    script: str
    pid: int

    def result(self, timeout_s: float) -> str:
        """What it has printed, when it has ended; raises GuestError if it failed."""
        status: dict[str, Any] = {}

        def ended() -> bool:
            status.update(self.guest.ask("guest-exec-status", {"pid": self.pid}))
            return bool(status["exited"])

        until(f"{self.guest.name}: end of: {self.script}", ended, timeout_s, poll_s=0.2)
        out, err = (base64.b64decode(status.get(key, "")).decode() for key in ("out-data", "err-data"))
        if status.get("exitcode") != 0:
            raise GuestError(f"{self.guest.name}: {self.script}: {err.strip() or out.strip()}")
        return out
