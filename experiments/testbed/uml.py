# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A guest by User Mode Linux, in virtual time and on this machine's own files."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .errors import GuestError
from .virtio_ccc import ID_CCC

_TIMEOUT_S = 600.0
_ROOT = ("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw")
_TIME = ("time-travel=inf-cpu", "time-travel-start=1767225600000000000")


def boot(kernel: Path, init: Path, directory: Path, backend: Path, cpu: int, variables: Mapping[str, str]) -> str:
    """Runs a guest to its end, with a coupling device whose other end is at a socket;
    what its console said.

    `init` is its first program, with `variables` in its environment and `directory`,
    where the kernel keeps its own files, as its working directory."""
    command: list[str | Path] = [
        *("taskset", "-c", str(cpu), kernel, "mem=128M", "seccomp=auto", *_ROOT, *_TIME),
        *("con=null", "con0=null,fd:1", f"uml_dir={directory}", "norandmaps"),
        *(f"virtio_uml.device={backend}:{ID_CCC}", f"init={init}"),
        *(f"{name}={value}" for name, value in variables.items()),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            # The guest's memory is a file there.
            env={**os.environ, "TMPDIR": "/dev/shm"},
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        raise GuestError(f"the guest has not ended within {_TIMEOUT_S:g} s") from None
    return done.stdout.decode(errors="replace")
