# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The command line: `scripts/build ARTEFACT`."""

import argparse
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ccc_build import freebsd, fresh, guests, image, kernels, machines, module, qemu, shaper, venv, vsock
from ccc_build.artefact import Artefact
from ccc_build.debian import require
from ccc_build.process import Failed, say

ARTEFACTS: dict[str, Callable[[], Artefact]] = {
    "kernel": kernels.laboratory,
    "module": module.laboratory,
    "hostile-module": module.hostile,
    "hostile-guest-module": module.hostile_guest,
    "venv": venv.venv,
    "tools": venv.tools,
    "qemu": qemu.qemu,
    "vsock": vsock.vsock,
    "image": image.image,
    "bookworm": fresh.bookworm,
    "trixie": fresh.trixie,
    "machine-bookworm": machines.bookworm,
    "machine-trixie": machines.trixie,
    "schemathesis": venv.schemathesis,
    "ansible": venv.ansible,
    "ansible-2.14": venv.ansible_2_14,
    "device-guest": guests.device_guest,
    "guide-guest": guests.guide_guest,
    "module-guest": guests.module_guest,
    "shaper-guest": shaper.guest,
    "freebsd-14": freebsd.freebsd_14,
    "freebsd-15": freebsd.freebsd_15,
    "sanitized-kernel": kernels.sanitized,
    "sanitized-guest": guests.sanitized_guest,
    "racing-kernel": kernels.racing,
    "racing-guest": guests.racing_guest,
}
# Without which nothing is built.
DEPS = (*kernels.COMPILING, "cpio", "iproute2", "ethtool", "python3", "python3-venv")


def build(name: str) -> Path:
    """The path of an artefact, which is built first if it is not there."""
    return qemu.tests() if name == "qemu-tests" else ARTEFACTS[name]().get()


def require_deps(*names: str) -> None:
    """Installs what the build and the laboratory need, and what is named."""
    if not shutil.which("cargo"):
        raise Failed("cargo is not installed; get Rust 1.85 or newer (rustup, or your distribution)")
    require(*DEPS, *names)


def _usage() -> argparse.ArgumentParser:
    lines = [f"  {name:17} {(make.__doc__ or '').splitlines()[0]}" for name, make in ARTEFACTS.items()]
    lines.append(f"  {'qemu-tests':17} {(qemu.tests.__doc__ or '').splitlines()[0]}")
    parser = argparse.ArgumentParser(
        prog="scripts/build",
        usage="scripts/build ARTEFACT... | deps [DEBIAN-PACKAGE...]",
        description="Builds artefacts, if they are not in the cache (scripts/cache), and prints the path of each.\n"
        "CCC_QEMU=10.2 chooses another version of QEMU; what is said goes to standard error.",
        epilog="artefacts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="ARTEFACT", help=argparse.SUPPRESS)
    return parser


def main() -> int:
    parser = _usage()
    names = parser.parse_args().names
    # Leaves nothing half done behind, and no compiler running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if names[0] == "deps":
            require_deps(*names[1:])
            return 0
        known = (*ARTEFACTS, "qemu-tests")
        if unknown := [name for name in names if name not in known]:
            parser.error(f"invalid artefact: expected one of {', '.join(known)}, got {', '.join(unknown)}")
        for name in names:
            print(build(name), flush=True)
    except Failed as failed:
        say(f"{names[0]}: {failed}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
