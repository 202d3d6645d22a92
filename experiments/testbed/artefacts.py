# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the test bed is made of: programs, guests and QEMU, built when missing."""

import os
import subprocess
from functools import cache
from pathlib import Path

from .errors import TestbedError

PROJECT = Path(__file__).resolve().parents[2]


@cache
def build(artefact: str) -> Path:
    """Builds an artefact unless the cache has it; its path (`scripts/build --help`)."""
    return Path(_printed("scripts/build", artefact))


def program(name: str) -> Path:
    """A program of the host, as `make host` built it."""
    target = os.environ.get("CARGO_TARGET_DIR") or f"{_printed('scripts/cache')}/target"
    path = Path(target) / "release" / name
    if not path.exists():
        raise TestbedError(f"{path} does not exist; run `make host`")
    return path


def _printed(*command: str) -> str:
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(command)}: status {done.returncode}")
    return done.stdout.strip()
