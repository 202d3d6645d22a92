# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A host of its own on this machine's kernel: a Debian with its systemd, in namespaces."""

import subprocess
from pathlib import Path

from testbed.errors import TestbedError
from testbed.host import HERE, Host, stop
from testbed.wait import until


class Container:
    """Boots what a tar of a root directory holds, until it is left.

    `host` runs commands there, without a network; `shared` is its /packages."""

    def __init__(self, tar: Path, directory: Path, shared: Path) -> None:
        root = directory / "root"
        root.mkdir()
        HERE.run("tar", "-C", root, "-xf", tar)
        self.root = root
        self._process = HERE.start(
            "systemd-nspawn", "--quiet", f"--directory={root}", f"--bind-ro={shared}:/packages",
            # Nothing of this machine's is asked to start it.
            "--register=no", "--keep-unit", "--private-network", "--link-journal=no", "--boot",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> "Container":
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        until("the container has a process", lambda: children.read_text().split())
        self.host = Host(("nsenter", "--target", children.read_text().split()[0], "--all", "--"))
        until("its systemd is up", self._is_up)
        return self

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise TestbedError(f"systemd-nspawn: status {self._process.returncode}")
        return self.host.attempt("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    def __exit__(self, *_: object) -> None:
        self.host.attempt("systemctl", "halt", "--force", "--force")
        stop(self._process)
        HERE.run("rm", "-rf", self.root)
