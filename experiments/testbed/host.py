# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Hosts: this machine, or namespaces of it that commands are run in."""

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT
from typing import IO

from .errors import CommandError, TimedOut

# A command that takes longer hangs.
TIMEOUT_S = 600.0
_PRIVATE = Path(__file__).with_name("private-libvirt")
_CABLE = "cable"


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


@dataclass(frozen=True)
class Host:
    """Where commands run: what comes before each."""

    enter: tuple[str, ...] = ()

    def attempt(
        self,
        *command: str | Path,
        stdin: str | None = None,
        environment: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Outcome:
        """Runs a command that may fail, but not hang."""
        words = [*self.enter, *map(str, command)]
        env = os.environ | (environment or {})
        try:
            done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=env, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise TimedOut(f"{' '.join(words)}: hangs; not done within {timeout_s:g} s") from None
        return Outcome(done.returncode, done.stdout, done.stderr)

    def run(self, *command: str | Path, stdin: str | None = None) -> str:
        """What a command prints; raises CommandError if it fails."""
        outcome = self.attempt(*command, stdin=stdin)
        if not outcome.ok:
            said = outcome.stderr.strip() or f"status {outcome.status}"
            raise CommandError(f"{' '.join(map(str, command))}: {said}")
        return outcome.stdout

    def start(
        self,
        *command: str | Path,
        stdout: IO[str] | int | None = None,
        stderr: IO[str] | int | None = None,
        environment: dict[str, str] | None = None,
    ) -> "subprocess.Popen[str]":
        """Starts a command that runs beside the test."""
        words = [*self.enter, *map(str, command)]
        env = os.environ | (environment or {})
        return subprocess.Popen(words, stdout=stdout, stderr=stderr, text=True, env=env)


HERE = Host()


class Namespace:
    """A network namespace, until it is left."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.host = Host(("ip", "netns", "exec", name))

    def __enter__(self) -> "Namespace":
        HERE.run("ip", "netns", "add", self.name)
        return self

    def __exit__(self, *_: object) -> None:
        HERE.attempt("ip", "netns", "del", self.name)


class LibvirtHost:
    """A host with a libvirtd of its own, in a cgroup if one is named, until it is closed.

    `host` runs commands there; `pid` is a process of it."""

    def __init__(self, name: str, directory: Path, cgroup: Path | None = None) -> None:
        names = {"CCC_LIBVIRT_HOST": name, "CCC_LIBVIRT_LOG": str(directory / f"libvirtd-{name}.log")}
        join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{cgroup}/cgroup.procs"] if cgroup else []
        wait = "echo ready; exec sleep infinity"
        self._process = HERE.start(*join, _PRIVATE, "sh", "-c", wait, stdout=subprocess.PIPE, environment=names)
        assert self._process.stdout
        self._process.stdout.readline()
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pid = int(children.read_text())
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid")
        self.host = Host(("nsenter", "--target", str(self.pid), *namespaces))

    def close(self) -> None:
        """Its first process takes all others along."""
        self._process.kill()
        self._process.wait()


class OtherHost(LibvirtHost):
    """A second host, whose bridge and ours are connected; `here` and `there` are the two addresses."""

    here = "10.9.0.1"
    there = "10.9.0.2"

    def __init__(self, bridge: str, directory: Path) -> None:
        self._bridge = bridge
        super().__init__("there", directory)

    def __enter__(self) -> "OtherHost":
        self.host.run("ip", "link", "add", self._bridge, "type", "bridge")
        HERE.run("ip", "link", "add", _CABLE, "type", "veth", "peer", "name", _CABLE, "netns", str(self.pid))
        for host, address in ((HERE, self.here), (self.host, self.there)):
            host.run("ip", "link", "set", _CABLE, "master", self._bridge, "up")
            host.run("ip", "address", "add", f"{address}/24", "dev", self._bridge)
            host.run("ip", "link", "set", self._bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        HERE.run("ip", "link", "del", _CABLE)
        HERE.run("ip", "address", "del", f"{self.here}/24", "dev", self._bridge)
        self.close()


def stop(process: "subprocess.Popen[str]", timeout_s: float = 10) -> None:
    """Ends a process, by force if it does not listen."""
    if process.poll() is not None:
        return
    # A stopped process handles the signal only when it continues.
    process.send_signal(SIGCONT)
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    # It may end between the look and the reading, too.
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False
