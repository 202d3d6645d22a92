# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A fresh Debian under QEMU, with its own kernel and systemd, that is logged in to as root."""

import shlex
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from . import artefacts
from .host import HERE, TIMEOUT_S, Host, Outcome
from .qemu import Qemu
from .wait import until

# A machine that was switched off says nothing more; an emulated one may be silent for a while.
SSH_OPTIONS = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ControlPersist=120s"
    " -o ServerAliveInterval=10 -o ServerAliveCountMax=9"
)
# An emulated machine on a busy one takes minutes.
_BOOT_S = 600.0
_CMDLINE = "root=LABEL=root rw console=ttyS0 net.ifnames=0 mitigations=off tsc=reliable quiet"


@dataclass(frozen=True)
class Remote(Host):
    """A machine behind ssh, whose shell takes a command's words apart anew."""

    def attempt(
        self,
        *command: str | Path,
        stdin: str | None = None,
        environment: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Outcome:
        words = shlex.join(map(str, command))
        return super().attempt(words, stdin=stdin, environment=environment, timeout_s=timeout_s)


class VirtualMachine:
    """One that has nothing of ours, until it is closed; what it writes is not kept."""

    def __init__(self, release: str, directory: Path, name: str, *, processors: int = 1, memory: str = "1500M") -> None:
        self.port, self._name = _free_port(), name
        files = artefacts.build(f"machine-{release}")
        network = f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        self.qemu = Qemu(
            artefacts.build("qemu"),
            [
                *("-accel", "tcg,thread=multi", "-cpu", "max,-svm", "-machine", "q35"),
                *("-smp", str(processors), "-m", memory),
                *("-kernel", files / "vmlinuz", "-initrd", files / "initrd", "-append", _CMDLINE),
                *("-drive", f"file={files}/disk.img,format=raw,if=virtio,snapshot=on,cache=unsafe"),
                *("-drive", f"file={files}/packages.img,format=raw,if=virtio,readonly=on"),
                *("-device", "virtio-rng-pci", "-netdev", network, "-device", "virtio-net-pci,netdev=n"),
                # What is switched off comes back.
                *("-action", "reboot=reset"),
            ],
            directory,
            name,
        )  # fmt: skip
        self.key = key_of(files, directory)
        self.host = Remote(("ssh", "-p", str(self.port), "-i", str(self.key), *SSH_OPTIONS.split(), "root@127.0.0.1"))

    def boot(self) -> None:
        until(f"{self._name}: sshd answers", lambda: self.host.attempt("true").ok, _BOOT_S, poll_s=2)

    def close(self) -> None:
        self.qemu.close()

    def give(self, where: str, *files: Path) -> None:
        """Copies files and directories there."""
        options = ("-q", "-r", "-P", str(self.port), "-i", self.key, *SSH_OPTIONS.split())
        HERE.run("scp", *options, *files, f"root@127.0.0.1:{where}")


def key_of(files: Path, directory: Path) -> Path:
    """A copy of a fresh machine's key, which ssh takes from its owner only."""
    key = directory / "key"
    shutil.copy(files / "key", key)
    key.chmod(0o600)
    return key


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
