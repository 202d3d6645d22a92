# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""QEMU with the device of qemu-patches/, from Debian's source packages."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ccc_build.artefact import PROJECT, Artefact, cache, digest, locked
from ccc_build.debian import Suite, require
from ccc_build.process import Failed, compiler, output, run, say

PACKAGES = (
    "git", "dpkg-dev", "gcc", "pkg-config", "ninja-build", "python3-venv", "bzip2", "flex", "bison",
    "libglib2.0-dev", "libpixman-1-dev", "libseccomp-dev", "libslirp-dev", "libfdt-dev", "zlib1g-dev",
    "qemu-system-data", "seabios", "ipxe-qemu",
)  # fmt: skip
# Where each version that the series was tried on is to be had; CCC_QEMU names
# one, the first is built else: Debian's stable release keeps its source.
SUITES = {"10.0": "trixie", "10.2": "sid"}
PATCHES = PROJECT / "qemu-patches"
CONFIGURATION = (
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--disable-docs", "--disable-user", "--disable-tools", "--disable-guest-agent",
    "--enable-system", "--enable-tcg", "--enable-kvm",
    "--enable-vhost-user", "--enable-vhost-kernel", "--enable-vhost-net",
    "--enable-slirp", "--enable-seccomp", "--enable-fdt=system",
    # Firmware comes from the machine's own packages.
    "--disable-install-blobs", "--datadir=/usr/share",
    "--firmwarepath=/usr/share/qemu:/usr/share/seabios:/usr/lib/ipxe/qemu",
)  # fmt: skip
# What QEMU's own Python environment needs and Debian 12 has too old.
MESON = "1.5.0"
PYCOTAP = "1.3.1"
PROGRAM = "qemu-system-x86_64"


def copy_series(series: str, directory: Path) -> list[Path]:
    """The patches for a version of QEMU, as files in `directory`.

    What differs in an older version is a change of the patches themselves.
    """
    patches = [Path(shutil.copy(patch, directory)) for patch in sorted(PATCHES.glob("*.patch"))]
    for delta in PATCHES.glob(f"{series}.delta"):
        output("git", "apply", delta, cwd=directory)
    return patches


class Tree:
    """Where one version of QEMU is built. It is kept: other patches, or an
    interrupted build, go on from there."""

    def __init__(self, series: str) -> None:
        if series not in SUITES:
            raise Failed(f"invalid CCC_QEMU: expected one of {', '.join(SUITES)}, got '{series}'")
        require(*PACKAGES)
        self.suite = Suite(SUITES[series], "deb-src")
        versions = [v for v in self.suite.source_versions("qemu") if f":{series}." in v]
        if not versions:
            raise Failed(f"no source package of QEMU {series} is in {self.suite.name}")
        self.version = max(versions, key=lambda version: [int(n) for n in re.findall(r"\d+", version)])
        self.series = series
        self.series_key = digest(*sorted(PATCHES.glob("*.patch")), *sorted(PATCHES.glob(f"{series}.delta")))
        lines = "".join(f"{option}\n" for option in CONFIGURATION)
        self.key = digest(f"{self.version} {MESON}\n{lines}", compiler())
        self.path = cache() / "qemu" / f"tree-{self.key}"
        self.source = self.path / "source"
        self.build = self.source / "build"

    def compile(self, *targets: str) -> None:
        """Unpacks, patches and configures as far as that is not done, and compiles."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._step("unpacked", "", self._unpack)
        self._step("patched", self.series_key, self._patch)
        self._step("configured", "", self._configure)
        say(f"qemu: compiling {self.version} (4 minutes on 2 free cores, if nothing is built yet)")
        run("ninja", "-C", self.build, *targets, log=self.path / "build.log", progress="qemu")

    def _step(self, name: str, state: str, act: Callable[[], None]) -> None:
        """Does what brings the tree to `state`, unless it is there."""
        mark = self.path / name
        if mark.exists() and mark.read_text().strip() == state:
            return
        mark.unlink(missing_ok=True)
        say(f"qemu: {name}")
        act()
        mark.write_text(state)

    def _unpack(self) -> None:
        """The source as Debian has it, under the tag `pristine`."""
        for later in ("patched", "configured"):
            (self.path / later).unlink(missing_ok=True)
        self.suite.source(self.source, "qemu", self.version)
        self._git("init", "-q")
        self._git("add", "-A", "-f")
        self._git("commit", "-q", "-m", self.version)
        self._git("tag", "pristine")

    def _patch(self) -> None:
        """Applies the series to the index first: only files in which it differs from
        the series before are compiled again."""
        with tempfile.TemporaryDirectory() as work:
            patches = copy_series(self.series, Path(work))
            index = f"{work}/index"
            self._git("read-tree", "pristine", index=index)
            self._git("apply", "--cached", *map(str, patches), index=index)
            tree = self._git("write-tree", index=index)
        self._git("reset", "-q", "--hard", self._git("commit-tree", "-p", "pristine", "-m", "ccc", tree))

    def _configure(self) -> None:
        log, python = self.path / "configure.log", self.path / "venv" / "bin" / "python3"
        run("python3", "-m", "venv", "--clear", self.path / "venv", log=log)
        run(python, "-m", "pip", "install", "-q", f"meson=={MESON}", f"pycotap=={PYCOTAP}", log=log)
        self.build.mkdir(exist_ok=True)
        run("../configure", f"--python={python}", *CONFIGURATION, cwd=self.build, log=log)

    def _git(self, *words: str, index: str = "") -> str:
        environment = ("env", f"GIT_INDEX_FILE={index}") if index else ()
        ours = ("-c", "user.name=ccc", "-c", "user.email=ccc@localhost")
        return output(*environment, "git", "-C", self.source, *ours, *words).strip()


def _tree() -> Tree:
    return Tree(os.environ.get("CCC_QEMU") or next(iter(SUITES)))


def qemu() -> Artefact:
    """QEMU with the device: qemu-system-x86_64."""
    tree = _tree()

    def build(directory: Path) -> None:
        with locked(tree.path):
            tree.compile(PROGRAM)
            output("strip", "-o", directory / PROGRAM, tree.build / PROGRAM)

    return Artefact(cache() / "qemu" / f"{tree.key}-{tree.series_key}", build, product=PROGRAM)


def tests() -> Path:
    """QEMU's own tests of the device, built: the build directory, which has tests/qtest/qos-test."""
    tree = _tree()
    with locked(tree.path):
        tree.compile(PROGRAM, "tests/qtest/qos-test")
    return tree.build
