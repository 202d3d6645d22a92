# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Programs of the host."""

import subprocess

from .errors import HostError


def host(*command: str, stdin: str | None = None) -> str:
    """What a program of the host prints."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise HostError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
