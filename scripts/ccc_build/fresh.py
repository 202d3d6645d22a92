# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A host as an operator has it before ours is installed: Debian with libvirt and QEMU."""

from pathlib import Path

from ccc_build import kernels
from ccc_build.artefact import Artefact, digest
from ccc_build.debian import Suite, require
from ccc_build.process import run, say

# Any that was installed has iproute2, which Debian 12's libvirt does not depend on.
PACKAGES = (
    "systemd-sysv", "dbus", "iproute2", "libvirt-daemon-system", "libvirt-clients", "qemu-system-x86",
)  # fmt: skip


def bookworm() -> Artefact:
    """A Debian 12 host with nothing of ours: `root.tar`."""
    return _host(Suite("bookworm"))


def trixie() -> Artefact:
    """A Debian 13 host, likewise."""
    return _host(Suite("trixie"))


def _host(suite: Suite) -> Artefact:
    def build(directory: Path) -> None:
        require("mmdebstrap")
        say(f"{directory.name}: installing {' '.join(PACKAGES)}")
        run(
            "mmdebstrap", "--quiet", "--mode=root", "--variant=apt", f"--include={','.join(PACKAGES)}",
            "--format=tar", suite.name, directory / "root.tar", suite.sources_list,
            log=directory / "log",
        )  # fmt: skip

    versions = suite.versions(*PACKAGES)
    key = digest(*(f"{package} {versions[package]}\n" for package in PACKAGES))
    return Artefact(kernels.packages() / f"{suite.name}-{key}", build, product="root.tar")
