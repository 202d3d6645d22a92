# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Cgroups of our own, of the second kind."""

from pathlib import Path

OURS = "ccc-host-tenants"


def root() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup2":
            return Path(words[1])
    raise RuntimeError("no cgroup2 is mounted; expected one, as systemd does at /sys/fs/cgroup")


def path(name: str) -> Path:
    return root() / OURS / name


def make(name: str) -> str:
    """A cgroup; its path from the root of all."""
    path(name).mkdir(parents=True, exist_ok=True)
    return f"{OURS}/{name}"


def remove_all() -> None:
    """Whatever is in them has ended."""
    ours = root() / OURS
    if ours.is_dir():
        for cgroup in ours.iterdir():
            if cgroup.is_dir():
                cgroup.rmdir()
        ours.rmdir()
