# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Virtual machines of our own QEMU, without libvirt."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from .errors import GuestError, require
from .host import HERE, Host, stop
from .wait import until

# The monitor's answer, on however slow a machine; QEMU that waits for a daemon waits for ever.
_ANSWER_S = 60.0


def accelerator(emulator: Path, kernel: Path) -> str:
    """`kvm` if that really runs the guest's kernel here, else `tcg`.

    That /dev/kvm can be opened says little: on some machines a guest then never
    gets out of its firmware."""
    if not os.access("/dev/kvm", os.W_OK):
        return "tcg"
    command: list[str | Path] = [
        *(emulator, "-accel", "kvm", "-cpu", "host", "-m", "128", "-nodefaults", "-no-reboot", "-display", "none"),
        *("-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1"),
    ]
    try:
        console = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10).stdout
    except subprocess.TimeoutExpired as error:
        console = error.stdout or b""
    return "kvm" if b"Linux version" in console else "tcg"


def starts_without_daemon(emulator: Path) -> bool:
    """Whether this QEMU starts with nobody at the device's socket."""
    command = [
        *(str(emulator), "-nodefaults", "-no-user-config", "-display", "none", "-S"),
        *_memory("16M", "accel=qtest"),
        *coupling_device("/nonexistent/ccc.sock"),
        *("-qmp", "stdio"),
    ]
    told = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'
    try:
        return subprocess.run(command, input=told, capture_output=True, text=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def linux(
    kernel: Path, initrd: Path, parameters: str, memory: str, processors: int = 1, cpu: str = "max"
) -> list[str | Path]:
    """Arguments of an emulated machine that boots a kernel; its memory can be shared."""
    return [
        *("-accel", "tcg,thread=multi", "-cpu", cpu, "-smp", str(processors), *_memory(memory)),
        *("-kernel", kernel, "-initrd", initrd, "-append", parameters),
    ]


def _memory(size: str, machine: str = "") -> list[str]:
    board = ",".join(filter(None, ("q35,memory-backend=mem", machine)))
    return ["-m", size, "-machine", board, "-object", f"memory-backend-memfd,id=mem,size={size},share=on"]


def coupling_device(backend: Path | str, options: str = "") -> list[str]:
    """Arguments of the coupling device, whose daemon is at a socket."""
    return [
        *("-chardev", f"socket,id=ccc,path={backend},reconnect-ms=100"),
        *("-device", f"vhost-user-ccc-pci,id=ccc,chardev=ccc{options}"),
    ]


class Qemu:
    """A QEMU that runs until it is closed, and its monitor.

    The guest's console is `NAME.console` in the directory, unless the arguments have another;
    what QEMU itself says is `NAME.log`."""

    def __init__(
        self,
        emulator: Path,
        arguments: list[str | Path],
        directory: Path,
        name: str,
        host: Host = HERE,
        console: bool = True,
    ) -> None:
        self.name = name
        self.events: list[dict[str, Any]] = []
        self._console = directory / f"{name}.console"
        self._log = directory / f"{name}.log"
        monitor = directory / f"{name}.qmp"
        own = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        own += ["-serial", f"file:{self._console}"] if console else []
        with self._log.open("w") as log:
            command = (emulator, *own, *arguments, "-qmp", f"unix:{monitor},server=on,wait=off")
            self._process = host.start(*command, stdout=log, stderr=subprocess.STDOUT)
        self._stream = socket.socket(socket.AF_UNIX)
        try:
            self._greet(monitor)
        except BaseException:
            self.close()
            raise

    def _greet(self, monitor: Path) -> None:
        until(f"{self.name}: its monitor", lambda: self._connects(monitor))
        self._stream.settimeout(_ANSWER_S)
        self._lines = self._stream.makefile("r")
        self._message()
        self.ask("qmp_capabilities")

    def _connects(self, monitor: Path) -> bool:
        require(self.is_running(), f"{self.name}: QEMU has ended: {self.log}")
        return self._stream.connect_ex(str(monitor)) == 0

    def is_running(self) -> bool:
        """Whether QEMU does, guest or not."""
        return self._process.poll() is None

    def close(self) -> None:
        self._stream.close()
        stop(self._process)

    @property
    def log(self) -> str:
        return self._log.read_text().strip()

    @property
    def console(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def ask(self, command: str, **arguments: object) -> Any:
        """The monitor's answer to a command; raises GuestError if it refuses."""
        self._stream.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            answer = self._message()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise GuestError(f"{self.name}: {command}: {answer['error']['desc']}")

    def _message(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise GuestError(f"{self.name}: no answer of QEMU within {_ANSWER_S:g} s") from None
        require(line, f"{self.name}: QEMU has ended: {self.log}")
        message: dict[str, Any] = json.loads(line)
        if "event" in message:
            self.events.append(message)
        return message

    def event(self, name: str, **data: object) -> float:
        """Waits for an event with this data, or takes one that has come; when it happened."""
        while True:
            for event in self.events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    self.events.remove(event)
                    stamp = event["timestamp"]
                    return float(stamp["seconds"] + stamp["microseconds"] / 1e6)
            self._message()

    def plug(self, backend: Path, bus: str) -> None:
        """Adds a coupling device to the running machine."""
        address = {"addr": {"type": "unix", "data": {"path": str(backend)}}, "server": False, "reconnect-ms": 100}
        self.ask("chardev-add", id="ccc", backend={"type": "socket", "data": address})
        self.ask("device_add", driver="vhost-user-ccc-pci", id="ccc", chardev="ccc", bus=bus)

    def unplug(self) -> None:
        """Removes the coupling device, when the guest has let go of it."""
        self.ask("device_del", id="ccc")
        self.event("DEVICE_DELETED", device="ccc")
        self.ask("chardev-remove", id="ccc")
