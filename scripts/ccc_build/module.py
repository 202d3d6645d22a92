# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The Linux guest module, built outside the tree."""

import shutil
from pathlib import Path

from ccc_build import kernels
from ccc_build.artefact import PROJECT, Artefact, cache, digest
from ccc_build.process import Word, run, say

GUEST = PROJECT / "guest"
PARTS = ("include", "common", "linux-ccc")
# The files that make a guest of it that lies, for tests.
HOSTILE = GUEST / "tests" / "hostile"
NAMES = ("Kbuild", "Makefile", "dkms.conf")
# Left in the tree by a build there.
GENERATED = ("ccc_compat.h", "*.mod.c")


def sources() -> list[Path]:
    """What the module is made from."""
    return sorted(
        path
        for part in PARTS
        for path in (GUEST / part).rglob("*")
        if path.name in NAMES or path.suffix in (".c", ".h", ".sh")
        if not any(path.match(pattern) for pattern in GENERATED)
    )


def key() -> str:
    """The key of the module's sources, names included."""
    return digest(*(given for path in sources() for given in (f"{path.relative_to(GUEST)}\n", path)))


def compile_module(kernel: Path, directory: Path, *settings: Word) -> Path:
    """Builds the module in `directory` for the kernel whose tree is `kernel`; where it is then."""
    _copy(directory)
    return _compile(kernel, directory, *settings)


def _copy(directory: Path) -> Path:
    """Copies the sources; where those of the module are then."""
    for source in sources():
        copy = directory / source.relative_to(GUEST)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    return directory / "linux-ccc"


def _compile(kernel: Path, directory: Path, *settings: Word) -> Path:
    # The makefile takes settings apart, and the kernel's where it is called.
    module = directory / "linux-ccc"
    run("make", "-s", "-C", module, f"KDIR={kernel}", *settings, "modules", log=directory / "log")
    return module


def laboratory() -> Artefact:
    """The module for the laboratory's kernel: the directory of ccc.ko."""
    kernel = kernels.laboratory()

    def build(directory: Path) -> None:
        source = kernel.get() / "source"
        say("module: building for the laboratory's kernel")
        compile_module(source, directory, "ARCH=um")

    return Artefact(cache() / f"module-{digest(kernel.path.name, key())}", build, product="linux-ccc")


def hostile() -> Artefact:
    """The same of a guest that lies, for attacks: the directory of its ccc.ko."""
    return _hostile("the laboratory's kernel", kernels.laboratory(), "source", "ARCH=um")


def hostile_guest() -> Artefact:
    """The same for the guests of the real-time experiments."""
    return _hostile("Debian's kernel", kernels.headers("cloud-amd64"), "", "ARCH=x86")


def _hostile(what: str, kernel: Artefact, tree: str, *settings: Word) -> Artefact:
    """A hostile module for a kernel whose tree is there."""
    lies = sorted(HOSTILE.iterdir())

    def build(directory: Path) -> None:
        source = kernel.get() / tree
        say(f"module: building a hostile one for {what}")
        copies = _copy(directory)
        for path in lies:
            if path.name != "Kbuild":
                shutil.copy(path, copies)
        with (copies / "Kbuild").open("a") as kbuild:
            kbuild.write((HOSTILE / "Kbuild").read_text())
        _compile(source, directory, *settings)

    name = f"hostile-{digest(kernel.path.name, key(), *lies)}"
    return Artefact(cache() / name, build, product="linux-ccc")
