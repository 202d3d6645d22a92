# SPDX-License-Identifier: GPL-2.0
"""Initial RAM disks of this machine's busybox and programs, for guests in QEMU."""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ccc_build.artefact import PROJECT
from ccc_build.debian import require
from ccc_build.process import Failed, output

# What the init of every such guest begins with.
BEGIN = PROJECT / "guest" / "tests" / "guest-begin.sh"
PACKAGES = ("cpio", "kmod", "iproute2")


def needed_modules(root: Path, release: str, names: Iterable[str]) -> list[Path]:
    """Files of kernel modules below `root`, each after those that it depends on."""
    shown = (output("modprobe", "-d", root, "-S", release, "--show-depends", name) for name in names)
    lines = (line.split() for text in shown for line in text.splitlines())
    return list(dict.fromkeys(Path(words[1]) for words in lines if words[0] == "insmod"))


def pack(root: Path, initrd: Path, level: int = 1) -> None:
    """Packs a root directory; the same files give the same bytes."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    command = ("cpio", "-o", "-H", "newc", "--quiet", "--reproducible", "--owner=0:0")
    for path in (root, *root.rglob("*")):
        os.utime(path, (0, 0), follow_symlinks=False)
    listed = "\n".join([".", *names]).encode()
    packed = subprocess.run(command, cwd=root, input=listed, capture_output=True)
    if packed.returncode != 0:
        raise Failed(f"cpio: {packed.stderr.decode().strip()}")
    initrd.write_bytes(gzip.compress(packed.stdout, level, mtime=0))


class Root:
    """A root directory with busybox, to be packed as an initrd."""

    def __init__(self, path: Path, init: Path, programs: Iterable[str]) -> None:
        require(*PACKAGES)
        # Any busybox will do: the packages busybox and busybox-static exclude each other.
        if not shutil.which("busybox"):
            require("busybox-static")
        self.path = path
        for name in ("bin", "proc", "sys", "run", "dev", "tmp", "etc"):
            (path / name).mkdir(parents=True)
        for program in ("busybox", *programs):
            self._add_program(program)
        for applet in output("busybox", "--list").split():
            (path / "bin" / applet).symlink_to("real-busybox")
        # Where the kernel looks for modprobe.
        (path / "sbin").symlink_to("bin")
        self.add(BEGIN, "begin")
        self.add(init, "init", 0o755)

    def add(self, source: Path, name: str, mode: int = 0o644) -> None:
        copy = self.path / name.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        copy.chmod(mode)

    def _add_program(self, name: str) -> None:
        """With its libraries."""
        found = shutil.which(name)
        if not found:
            raise Failed(f"{name} is not installed; run 'make deps'")
        program = Path(found).resolve()
        self.add(program, f"bin/real-{program.name}", 0o755)
        # It fails for what is linked statically.
        linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for library in re.findall(r"/\S+", linked):
            self.add(Path(library), library, 0o755)

    def add_modules(self, kernel: Path, release: str, ours: Path | None, *names: str) -> None:
        """Modules of an unpacked kernel by name, with those that they depend on, and one of ours."""
        base = Path("lib/modules", release)
        everything = self.path.with_name("modules")
        shutil.copytree(kernel / base, everything / base)
        if ours:
            shutil.copy(ours, everything / base)
            names = (ours.stem, *names)
        output("depmod", "-b", everything, release)
        for module in needed_modules(everything, release, names):
            self.add(module, str(module.relative_to(everything)))
        (self.path / base / "modules.order").touch()
        for listed in (kernel / base).glob("modules.builtin*"):
            self.add(listed, str(base / listed.name))
        output("depmod", "-b", self.path, release)
