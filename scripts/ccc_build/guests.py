# SPDX-License-Identifier: GPL-2.0
"""Guests of the tests in QEMU: a kernel, and an initrd with the module built for it."""

import shutil
import tempfile
from pathlib import Path

from ccc_build import kernels, module
from ccc_build.artefact import PROJECT, Artefact, digest
from ccc_build.initrd import BEGIN, Root, pack
from ccc_build.process import output, run

TESTS = PROJECT / "guest" / "tests"
SANITIZED = TESTS / "sanitized"
# Modules beside ours that test the kernel's checks, or help these.
HELPERS = ("slow_info", "racy")
# What makes them: other steps, another guest.
PROGRAMS = tuple(Path(__file__).with_name(name) for name in ("guests.py", "initrd.py", "module.py"))
WARNINGS_ARE_ERRORS = "KCFLAGS=-Werror"


def _cloud_guest(name: str, init: Path, programs: tuple[str, ...], modules: tuple[str, ...]) -> Artefact:
    """Debian 12's cloud kernel with these programs and modules: `vmlinuz` and `initrd`."""
    kernel, headers, release = kernels.cloud(), kernels.headers("cloud-amd64"), kernels.cloud_release()

    def build(directory: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            ours = module.compile_module(headers.get(), work / "ccc", WARNINGS_ARE_ERRORS) / "ccc.ko"
            root = Root(work / "root", init, programs)
            root.add_modules(kernel.get(), release, ours, *modules)
            shutil.copy(kernel.get() / "boot" / f"vmlinuz-{release}", directory / "vmlinuz")
            pack(root.path, directory / "initrd")

    key = digest(kernel.path.name, init, BEGIN, repr((programs, modules)), module.key(), *PROGRAMS)
    return Artefact(kernels.packages() / f"{name}-{key}", build)


def device_guest() -> Artefact:
    """The guest of the tests of QEMU's device: `vmlinuz` and `initrd`."""
    modules = ("virtio_pci", "virtio_mmio", "virtio_net", "vmxnet3", "sch_netem", "tcp_diag", "button")
    init = PROJECT / "qemu-patches" / "tests" / "guest-init.sh"
    return _cloud_guest("device-guest", init, ("ip", "tc", "ss"), modules)


def guide_guest() -> Artefact:
    """The guest of the operator's guide, a guest within a guest: `vmlinuz` and `initrd`."""
    init = PROJECT / "packaging" / "tests" / "guest-init.sh"
    return _cloud_guest("guide-guest", init, ("ip",), ("virtio_pci", "virtio_net"))


def module_guest() -> Artefact:
    """The guest of guest/tests/run-on-6.1: `vmlinuz` and `initrd`."""
    modules = ("veth", "sch_netem", "tcp_dctcp", "tcp_vegas", "tcp_bbr", "ipv6", "tcp_diag", "virtio_pci")
    return _cloud_guest("module-guest", TESTS / "guest-6.1.sh", ("ip", "tc", "ss"), modules)


def sanitized_guest() -> Artefact:
    """The guest of `make test-sanitized`: `bzImage` and `initrd`."""
    return _checked_guest("sanitized-guest", kernels.sanitized())


def racing_guest() -> Artefact:
    """The guest of `make test-races`: `bzImage` and `initrd`."""
    return _checked_guest("racing-guest", kernels.racing())


def _checked_guest(name: str, kernel: Artefact) -> Artefact:
    """A kernel that checks what it does, with the module and what stresses it: `bzImage` and `initrd`."""
    helpers = [path for helper in HELPERS for path in sorted((SANITIZED / helper).glob("*"))]
    ours = [SANITIZED / "guest-init.sh", SANITIZED / "stress.c", *helpers]

    def build(directory: Path) -> None:
        tree = kernel.get() / "build"
        with tempfile.TemporaryDirectory() as scratch:
            work = Path(scratch)
            built = module.compile_module(tree, work / "ccc", WARNINGS_ARE_ERRORS)
            root = Root(work / "root", SANITIZED / "guest-init.sh", ("ip", "tc"))
            warnings = ("-Wall", "-Wextra", "-Werror", "-O2")
            output("gcc", *warnings, "-static", "-pthread", "-o", root.path / "stress", SANITIZED / "stress.c")
            root.add(built / "ccc.ko", "ccc.ko")
            for helper in HELPERS:
                copy = shutil.copytree(SANITIZED / helper, work / helper)
                run("make", "-s", "-C", tree, f"M={copy}", "modules", log=work / "log")
                root.add(copy / f"{helper}.ko", f"{helper}.ko")
            pack(root.path, directory / "initrd")
        shutil.copy(kernel.path / "bzImage", directory / "bzImage")

    key = digest(kernel.path.name, *ours, BEGIN, module.key(), *PROGRAMS)
    return Artefact(kernels.packages() / f"{name}-{key}", build)
