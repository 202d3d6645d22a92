# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""rust-vmm's vsock device, for guests' agents on machines without vhost-vsock."""

import shutil
from pathlib import Path

from ccc_build.artefact import Artefact, cache, digest
from ccc_build.process import run, say

CRATE, VERSION = "vhost-device-vsock", "0.3.0"


def vsock() -> Artefact:
    """The vhost-user back end vhost-device-vsock."""

    def build(directory: Path) -> None:
        say(f"{directory.name}: compiling {CRATE} {VERSION} (2 minutes on 2 free cores)")
        target = directory / "target"
        where = ("--root", directory, "--target-dir", target)
        run("cargo", "install", "--locked", *where, "--version", VERSION, CRATE, log=directory / "build.log")
        shutil.rmtree(target)

    return Artefact(cache() / f"vsock-{digest(f'{CRATE} {VERSION}', Path(__file__))}", build, f"bin/{CRATE}")
