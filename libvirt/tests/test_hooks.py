# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whatever is wrong with us, no domain ends and no call of libvirt's hangs."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from bare import Bare, alive, call, eventually, restart_libvirtd, virsh
from qemu.host import CONTROL, STATE, Daemon

URI = "urn:ccc:vm:1"
# What has no cccctl.
BARE_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# libvirtd ends a domain whose hook fails at once; this is long after.
AFTERMATH_S = 3.0


@pytest.fixture
def emulator() -> Path:
    return Path(os.environ["CCC_EMULATOR"])


@pytest.fixture
def daemon(programs, tmp_path):
    with Daemon(programs, tmp_path) as daemon:
        yield daemon


@pytest.fixture
def domains(emulator, daemon):
    """One of ours and one that is none of our business."""
    both = [Bare.define(name, emulator) for name in ("ours", "plain")]
    daemon.control("attach", "ours", "--group", "uplink", "--weight", "3")
    yield both
    for domain in both:
        domain.remove()


def metadata(element: str) -> None:
    said = virsh("metadata", "ours", "--live", "--uri", URI, "--key", "ccc", "--set", element)
    assert said.done, said.text


class Fault:
    """Something that is wrong with us, for as long as it lasts."""

    # Where libvirtd finds the hook's programs.
    path: str | None = None

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon = daemon
        self.directory = directory

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Down(Fault):
    """No daemon."""

    def begin(self) -> None:
        self.daemon.kill()

    def end(self) -> None:
        self.daemon.serve()


class Hung(Fault):
    """A daemon that does nothing."""

    def begin(self) -> None:
        self.daemon.signal(signal.SIGSTOP)

    def end(self) -> None:
        self.daemon.signal(signal.SIGCONT)


class FullDisk(Fault):
    """Nothing can be written where the daemon keeps its state."""

    def begin(self) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "full", STATE.parent], check=True)
        (STATE.parent / "fill").write_bytes(bytes(4096))

    def end(self) -> None:
        subprocess.run(["umount", STATE.parent], check=True)


class NoGroup(Fault):
    """The daemon has lost the group that the metadata name."""

    def begin(self) -> None:
        self.daemon.kill()
        STATE.unlink(missing_ok=True)
        self.daemon.serve(group="other")

    def end(self) -> None:
        self.daemon.kill()
        self.daemon.serve()


class WrongMetadata(Fault):
    """Somebody wrote what makes no sense."""

    def begin(self) -> None:
        metadata('<vm group="uplink" weight="3,5"/>')

    def end(self) -> None:
        metadata('<vm group="uplink" weight="3"/>')


class NoProgram(Fault):
    """cccctl is being upgraded."""

    path = BARE_PATH


class BrokenProgram(Fault):
    """cccctl crashes."""

    def begin(self) -> None:
        broken = self.directory / "broken"
        broken.mkdir()
        program = broken / "cccctl"
        program.write_text("#!/bin/sh\nkill -SEGV $$\n")
        program.chmod(0o755)
        self.path = f"{broken}:{BARE_PATH}"


FAULTS = (Down, Hung, FullDisk, NoGroup, WrongMetadata, NoProgram, BrokenProgram)


@pytest.fixture
def fault(request, daemon, tmp_path):
    fault = request.param(daemon, tmp_path)
    yield fault
    # What is not mended here is in the way of whoever comes next.
    restart_libvirtd()


def each_fault(*faults: type[Fault]):
    return pytest.mark.parametrize("fault", faults, ids=lambda kind: kind.__name__, indirect=True)


def served_as_wanted(daemon: Daemon) -> bool:
    said = call(str(daemon.programs / "cccctl"), "--json", "show", "ours")
    if not said.done:
        return False
    vm = json.loads(said.text)
    return (vm["group"], vm["weight"], vm["connected"]) == ("uplink", 3, True)


@each_fault(*FAULTS)
def test_f1_a_restart_of_libvirtd_ends_no_domain(fault, daemon, domains):
    for domain in domains:
        domain.start()
    pids = {domain.name: domain.pid() for domain in domains}
    fault.begin()
    try:
        restart_libvirtd(fault.path)
        time.sleep(AFTERMATH_S)
        ended = [name for name, pid in pids.items() if not alive(pid)]
        assert not ended, f"ended by a restart of libvirtd: {ended}"
        for domain in domains:
            eventually(f"{domain.name} runs", domain.runs)
    finally:
        fault.end()
    # As the service manager does.
    daemon.watch()
    eventually("coupled again when all is well", lambda: served_as_wanted(daemon))
    assert {domain.name: domain.pid() for domain in domains} == pids
