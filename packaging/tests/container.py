# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A host of its own on this machine's kernel: a Debian with its systemd, in namespaces."""

import os
import subprocess
import uuid
from pathlib import Path

from testbed.errors import TestbedError
from testbed.host import HERE, Host, stop
from testbed.wait import until

# What a service confines itself with, which systemd-nspawn of Debian 12 refuses it.
_LANDLOCK = "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self"
# Joins the cgroups of its first word, and becomes the rest.
_JOIN = 'for group in $0; do echo $$ >"$group/cgroup.procs"; done; exec "$@"'


def _cgroups() -> list[Path]:
    """Cgroups of its own: a container's systemd takes those it is started in, with whoever else is there."""
    mounts = {"": "unified", "name=systemd": "systemd"}
    root, name, made = Path("/sys/fs/cgroup"), f"ccc-{uuid.uuid4().hex[:8]}", []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in mounts:
            mount = root / mounts[controllers]
            made.append((mount if mount.is_dir() else root) / path.lstrip("/") / name)
            made[-1].mkdir()
    return made


class Container:
    """Boots what a tar of a root directory holds, until it is left.

    `host` runs commands there, without a network; `shared` is its /packages, and
    `options` are more of systemd-nspawn's.  With `bpf` it may load programs, and has a place
    of its own to pin them, which its systemd could not mount."""

    def __init__(self, tar: Path, directory: Path, shared: Path, *options: str, bpf: bool = False) -> None:
        root = directory / "root"
        root.mkdir()
        HERE.run("tar", "-C", root, "-xf", tar)
        self.root = root
        self.host: Host | None = None
        self.pins = directory / "bpf" if bpf else None
        if self.pins:
            self.pins.mkdir()
            HERE.run("mount", "-t", "bpf", "bpf", self.pins)
            pins = f"--bind={self.pins}:/sys/fs/bpf"
            options = (*options, "--capability=all", "--system-call-filter=bpf perf_event_open", pins)
        self._cgroups = _cgroups()
        self._process = HERE.start(
            "sh", "-c", _JOIN, " ".join(map(str, self._cgroups)),
            "systemd-nspawn", "--quiet", f"--directory={root}", f"--bind-ro={shared}:/packages",
            # Nothing of this machine's is asked to start it.
            "--register=no", "--keep-unit", "--private-network", "--link-journal=no", _LANDLOCK, *options, "--boot",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> "Container":
        try:
            until("its systemd is up", self._is_up)
        except TestbedError:
            self.__exit__()
            raise
        return self

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise TestbedError(f"systemd-nspawn: status {self._process.returncode}")
        # The first ones are systemd-nspawn's own, and soon gone.
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children:
            return False
        self.host = Host(("nsenter", "--target", children[-1], "--all", "--"))
        return self.host.attempt("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    def __exit__(self, *_: object) -> None:
        if self.host:
            self.host.attempt("systemctl", "halt", "--force", "--force")
        stop(self._process)
        for group in self._cgroups:
            for walked in os.walk(group, topdown=False):
                os.rmdir(walked[0])
        if self.pins:
            HERE.run("umount", self.pins)
        HERE.run("rm", "-rf", self.root)
