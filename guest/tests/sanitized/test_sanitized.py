# SPDX-License-Identifier: GPL-2.0
"""Boots the sanitized guest once for each test and judges what its kernel says.

The guest has real flows through a real bottleneck, and the host's real daemon or
one that misbehaves. The kernel stops at the first report of KASAN, lockdep and
the like, so a test passes if the guest got to its end and nothing was reported.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from testbed import artefacts
from testbed.daemon import Daemon
from testbed.errors import TimedOut
from testbed.qemu import Qemu, coupling_device, linux
from testbed.random_device import RandomDevice
from testbed.wait import until

MEMORY = "1G"
# With five levels of page tables KASAN takes an interrupt for a wild access that
# comes while the kernel finds out at boot what the processor can do.
CPU = "max,la57=off"
# How long a guest may take beside its flows: it is emulated and checked at each
# access, on a machine that may have more to do. This is no judgement of speed.
PATIENCE_S = 900
PARAMETERS = (
    "console=ttyS0 loglevel=5 panic_on_warn=1 oops=panic panic=-1 mitigations=off tsc=unstable clocksource=acpi_pm "
    "rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60 workqueue.watchdog_thresh=300"
)
REPORT = re.compile(
    r"BUG:|WARNING:|KASAN:|KCSAN:|UBSAN:|ODEBUG:|INFO: |Oops|general protection|Kernel panic"
    r"|possible (?:circular|recursive|irq|deadlock)|inconsistent lock|suspicious RCU|refcount_t"
    r"|list_(?:add|del) corruption"
    r"|is still held|held lock freed|invalid context"
)
REPORT_LINES = 45


class SanitizedGuest(Qemu):
    """A guest with two network cards on one wire that takes the steps of one test."""

    def __init__(self, options: pytest.Config, logs: Path, steps: str, seconds: int, device: list[str]) -> None:
        image = artefacts.build("sanitized-guest")
        seed, processors = options.getoption("--seed"), options.getoption("--processors")
        parameters = f"{PARAMETERS} guest.test={steps} guest.seconds={seconds} guest.seed={seed}"
        words = linux(image / "bzImage", image / "initrd", parameters, MEMORY, processors, CPU)
        for number in (1, 2):
            words += [
                *("-netdev", f"hubport,id=port{number},hubid=0"),
                *(
                    "-device",
                    f"virtio-net-pci,netdev=port{number},mac=52:54:00:63:00:0{number},addr={number + 1},romfile=",
                ),
            ]
        super().__init__(artefacts.build("qemu"), [*words, *device], logs, "guest")
        self._steps, self._seconds = steps, seconds

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> str:
        """To its end, and the judgement; what the guest says that it did."""

        def ended() -> bool:
            if self.is_running():
                meanwhile()
            return not self.is_running()

        try:
            until(f"end of the guest ({self._console})", ended, PATIENCE_S + 3 * self._seconds, poll_s=0.2)
        except TimedOut as hung:
            said = first_report(self.console) or "\n".join(self.console.splitlines()[-REPORT_LINES:])
            raise AssertionError(f"{hung}; the kernel's first report, or the console's end:\n{said}") from None
        report = first_report(self.console)
        assert not report, f"the kernel's first report (all of it: {self._console}):\n{report}"
        failed = re.search(r"^@ failed (.*)$", self.console, re.M)
        assert not failed, f"{failed[1].strip()} ({self._console})"
        assert re.search(rf"^@ ok {self._steps}\b", self.console, re.M), f"ended without a word ({self._console})"
        return "; ".join(line[2:].strip() for line in self.console.splitlines() if line.startswith("# "))


def first_report(console: str) -> str | None:
    """The first thing that the kernel complains of, as far as it matters."""
    lines = [line.rstrip("\r") for line in console.splitlines()]
    for number, line in enumerate(lines):
        if REPORT.search(line):
            return "\n".join(lines[number : number + REPORT_LINES])
    return None


@pytest.fixture(autouse=True)
def private_files() -> Iterator[None]:
    """Files are the user's own."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def daemon(logs: Path) -> Iterator[Daemon]:
    with Daemon.of_vm(logs) as daemon:
        yield daemon


@pytest.fixture
def start(pytestconfig: pytest.Config, logs: Path) -> Iterator[Callable[..., SanitizedGuest]]:
    guests: list[SanitizedGuest] = []

    def start(steps: str, device: list[str] | None = None, seconds: int = 0) -> SanitizedGuest:
        seconds = seconds or pytestconfig.getoption("--seconds")
        guests.append(SanitizedGuest(pytestconfig, logs, steps, seconds, device or []))
        return guests[-1]

    yield start
    for guest in guests:
        guest.close()


def on_bus(backend: Path, options: str = "") -> list[str]:
    return coupling_device(backend, f",addr=5{options}")


def test_f5_switches_while_read(start, measured):
    measured(did=start("switches_while_read").finish())


def test_f6_hostile_grants(start, logs, pytestconfig, measured):
    seed, backend = pytestconfig.getoption("--seed"), logs / "ccc.sock"
    with closing(RandomDevice(backend, seed)) as device:
        # It reads rings in their simplest form.
        plain = on_bus(backend, ",indirect_desc=off,event_idx=off")

        def whole() -> None:
            assert device.error is None, f"the device itself failed: {device.error!r}"

        did = start("hostile", plain, 2 * pytestconfig.getoption("--seconds")).finish(whole)
        whole()
    assert device.did["lines"] and device.did["doorbells"], device.did
    measured(did=did, seed=seed, device=dict(sorted(device.did.items())))


@pytest.mark.slow
def test_g9_daemon_killed_and_back(start, daemon, measured):
    guest = start("watched_flows", on_bus(daemon.backend))
    kills = 0

    def kill_and_start() -> None:
        nonlocal kills
        if "@ coupled" in guest.console:
            daemon.kill()
            time.sleep(0.5)
            daemon.start()
            kills += 1
            time.sleep(1)

    did = guest.finish(kill_and_start)
    assert kills, "the daemon was never killed"
    measured(kills=kills, did=did)


def slow(steps: str):
    return pytest.param(steps, marks=pytest.mark.slow)


@pytest.mark.parametrize("steps", ["coupled_flows", slow("reloads")])
def test_g9_beside_the_daemon(steps, start, daemon, measured):
    measured(did=start(steps, on_bus(daemon.backend)).finish())


@pytest.mark.parametrize("steps", ["unbinds", slow("removals"), slow("suspends")])
def test_g8_the_device_goes(steps, start, daemon, measured):
    measured(did=start(steps, on_bus(daemon.backend)).finish())
