# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Domains without a guest, for what concerns libvirt and QEMU alone, and the libvirtd
they belong to."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PIDFILE = Path("/run/libvirtd.pid")
# No call of libvirt's may take longer, whatever the daemon does.
PATIENCE_S = 60.0
_TEMPLATE = """<domain type='qemu'>
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


@dataclass(frozen=True)
class Said:
    """How a call ended, and what it printed."""

    done: bool
    text: str


def call(*command: str, stdin: str = "", env: dict[str, str] | None = None) -> Said:
    """Runs a program that must end in time: one that hangs is a failure of the test."""
    try:
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, env=env)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"hangs: {' '.join(command)} has not returned after {PATIENCE_S:g} s") from None
    return Said(ended.returncode == 0, ended.stdout + ended.stderr)


def virsh(*arguments: str, stdin: str = "") -> Said:
    return call("virsh", "-q", *arguments, stdin=stdin)


def eventually(what: str, so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Waits until something is so; the machine may be busy."""
    deadline = time.monotonic() + patience_s
    while not so():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


@dataclass(frozen=True)
class Bare:
    """A domain whose guest is no more than its firmware."""

    name: str

    @classmethod
    def define(cls, name: str, emulator: Path) -> "Bare":
        text = _TEMPLATE.format(name=name, emulator=emulator)
        said = virsh("define", "--validate", "/dev/stdin", stdin=text)
        assert said.done, said.text
        return cls(name)

    def start(self) -> None:
        said = virsh("start", self._uuid())
        assert said.done, f"{self.name} does not start: {said.text}"

    def pid(self) -> int:
        """Of its QEMU."""
        return int(Path(f"/run/libvirt/qemu/{self.name}.pid").read_text())

    def runs(self) -> bool:
        said = virsh("domstate", self.name)
        return said.done and said.text.strip() == "running"

    def stop(self) -> None:
        virsh("destroy", self._uuid())

    def remove(self) -> None:
        self.stop()
        virsh("undefine", self._uuid())

    def _uuid(self) -> str:
        """virsh would take a name of digits for the id of another domain."""
        pairs = (line.split(maxsplit=1) for line in virsh("list", "--all", "--uuid", "--name").text.splitlines())
        return next((uuid for uuid, name in filter(None, pairs) if name == self.name), self.name)


def alive(pid: int) -> bool:
    """It is a process that has not ended."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def restart_libvirtd(path: str | None = None) -> None:
    """Ends libvirtd and starts another, which finds programs in `path`; returns when
    it has looked at all domains that run."""
    pid = int(_PIDFILE.read_text())
    os.kill(pid, signal.SIGTERM)
    eventually("libvirtd ends", lambda: not alive(pid))
    env = os.environ | ({"PATH": path} if path else {})
    said = call("libvirtd", "--daemon", "--listen", env=env)
    assert said.done, said.text
    eventually("libvirtd answers", lambda: virsh("list").done)


def starts_alone(emulator: Path) -> bool:
    """This QEMU starts with nobody at the device's socket."""
    memory = "memory-backend-memfd,id=m,size=16M,share=on"
    command = [str(emulator), "-nodefaults", "-no-user-config", "-display", "none", "-S", "-m", "16",
               "-machine", "q35,accel=qtest,memory-backend=m", "-object", memory,
               "-chardev", "socket,id=c,path=/nonexistent/ccc.sock,reconnect-ms=100",
               "-device", "vhost-user-ccc-pci,chardev=c", "-qmp", "stdio"]  # fmt: skip
    told = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'
    try:
        return subprocess.run(command, input=told, capture_output=True, text=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False
