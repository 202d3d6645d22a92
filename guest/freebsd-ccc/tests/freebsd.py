# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A guest with a kernel of FreeBSD, obeyed by boot/agent.c at its serial console."""

import os
import shutil
import socket
import sys
import time
from pathlib import Path

from testbed import artefacts
from testbed.errors import GuestError, require
from testbed.host import HERE, Host
from testbed.qemu import Qemu, coupling_device

sys.path.append(str(Path(__file__).parent / "boot"))

import image  # noqa: E402

MODULES = ("virtio_ccc", "cc_ccc")
DEVICE = "virtio_ccc0"
# What it is on, behind the root port.
PCI_DEVICE = "pci0:1:0:0"
NIC = "vtnet0"
BUS = "root1"
_MEMORY_MB = 512
_ANSWER_S = 120.0
_ENVIRONMENT = {
    "console": "comconsole",
    "hint.uart.0.at": "isa",
    "hint.uart.0.port": "0x3F8",
    "hint.uart.0.flags": "0x10",
    "hint.uart.0.irq": "4",
    "init_path": "/init",
    "vfs.root.mountfrom": "cd9660:/dev/md0",
    # A test is to see a panic, and end.
    "debug.debugger_on_panic": "0",
    "kern.panic_reboot_wait_time": "0",
}
_COMPLAINTS = ("panic:", "lock order reversal", "KASSERT", "Fatal trap", "exclusive", "acquiring duplicate")


def boot_image(kernel: Path, directory: Path, environment: dict[str, str]) -> Path:
    """The kernel with the modules and the agent on a memory disk.

    FREEBSD_MODULES is a directory of modules made otherwise, as by bsd.kmod.mk."""
    made = artefacts.build("freebsd-15")
    modules = Path(os.environ.get("FREEBSD_MODULES") or made)
    root = directory / "root"
    (root / "dev").mkdir(parents=True, exist_ok=True)
    shutil.copy(made / "agent", root / "init")
    for name in MODULES:
        shutil.copy(modules / f"{name}.ko", root)
    disk = directory / "root.iso"
    HERE.run("xorriso", "-as", "mkisofs", "-quiet", "-R", "-o", disk, root)
    return image.build(kernel, disk, _ENVIRONMENT | environment, _MEMORY_MB << 20, directory)


class FreeBsd(Qemu):
    """A guest whose agent has answered; a device if there is a `backend` for it."""

    def __init__(
        self,
        emulator: Path,
        kernel: Path,
        directory: Path,
        name: str,
        host: Host,
        scratch: Path,
        *,
        backend: Path | None = None,
        number: int = 2,
        processors: int = 1,
        environment: dict[str, str] | None = None,
    ) -> None:
        made = scratch / name
        made.mkdir()
        arguments: list[str | Path] = [
            *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(processors), "-m", f"{_MEMORY_MB}M"),
            *("-machine", "q35,memory-backend=mem"),
            *("-object", f"memory-backend-memfd,id=mem,size={_MEMORY_MB}M,share=on"),
            *("-kernel", boot_image(kernel, made, environment or {})),
            *("-netdev", f"tap,id=net,ifname={name},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=net,mac=52:54:00:63:64:{number:02x},addr=2,romfile="),
            *("-device", f"pcie-root-port,id={BUS},addr=3,chassis=1"),
            *("-chardev", f"socket,id=agent,path={made}/agent,server=on,wait=off,logfile={directory}/{name}.serial"),
            *("-serial", "chardev:agent"),
            *(coupling_device(backend, f",bus={BUS}") if backend else ()),
        ]
        self._serial_log = directory / f"{name}.serial"
        super().__init__(emulator, arguments, directory, name, host, console=False)
        self._agent = socket.socket(socket.AF_UNIX)
        self._agent.connect(str(made / "agent"))
        self._agent.settimeout(1)
        self._heard = ""
        try:
            self.answer("ready")
        except BaseException:
            # Nobody else has it yet, to end it.
            self.close()
            raise

    @property
    def console(self) -> str:
        return self._serial_log.read_text(errors="replace")

    def _hear(self) -> None:
        try:
            self._heard += self._agent.recv(65536).decode(errors="replace")
        except TimeoutError:
            require(self.is_running(), f"{self.name}: QEMU has ended: {self.console[-800:]}")

    def answer(self, expected: str = "") -> str:
        """The agent's next answer."""
        end = time.monotonic() + _ANSWER_S
        while time.monotonic() < end:
            while "\n" in self._heard:
                line, _, self._heard = self._heard.partition("\n")
                line = line.strip("\r")
                if line.startswith("= ") and (not expected or line == f"= {expected}"):
                    return line[2:]
            self._hear()
        raise GuestError(f"{self.name}: no answer within {_ANSWER_S:g} s: {self.console[-800:]}")

    def asks(self, *words: object) -> str:
        """What the agent answers to a command."""
        self._agent.sendall((" ".join(map(str, words)) + "\n").encode())
        return self.answer()

    def does(self, *words: object) -> int:
        """The number that the agent answers; raises GuestError for a negative one."""
        result = int(self.asks(*words))
        require(result >= 0, f"{self.name}: {' '.join(map(str, words))}: error {-result}")
        return result

    def set_up(self, address: str, coupled: bool = True) -> None:
        """Its address, and the modules."""
        self.set_address(address)
        if coupled:
            self.load()

    def set_address(self, address: str) -> None:
        self.does("address", NIC, address, "255.255.255.0")

    def load(self) -> None:
        for name in MODULES:
            self.does("load", f"/{name}.ko")
        self.does("set-string", "net.inet.tcp.cc.algorithm", "ccc")

    def counts(self, name: str) -> int:
        """A number of the driver's."""
        return self.does("number", f"dev.virtio_ccc.0.{name}")

    def tables(self) -> str:
        """What the device says of the tables."""
        return self.asks("string", "dev.virtio_ccc.0.tables")

    def complaints(self) -> list[str]:
        return [line for line in self.console.splitlines() if any(word in line for word in _COMPLAINTS)]
