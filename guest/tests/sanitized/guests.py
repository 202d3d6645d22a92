# SPDX-License-Identifier: GPL-2.0
"""Guests whose kernel checks what it does (guest-init.sh): each takes the steps of one test."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from testbed import artefacts
from testbed.errors import TimedOut
from testbed.qemu import Qemu, coupling_device, linux
from testbed.wait import until

MEMORY = "1G"
# With five levels of page tables KASAN takes an interrupt for a wild access that
# comes while the kernel finds out at boot what the processor can do.
CPU = "max,la57=off"
# How long a guest may take beside its flows: it is emulated and checked at each
# access, on a machine that may have more to do. This is no judgement of speed.
PATIENCE_S = 900
# On a busy machine the timer that the kernel tries at boot seems not to work.
PARAMETERS = (
    "console=ttyS0 loglevel=5 oops=panic panic=-1 mitigations=off tsc=unstable clocksource=acpi_pm no_timer_check "
    "rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60 workqueue.watchdog_thresh=300"
)
REPORT = re.compile(
    r"BUG:|WARNING:|KASAN:|KCSAN:|UBSAN:|ODEBUG:|INFO: |Oops|general protection|Kernel panic"
    r"|possible (?:circular|recursive|irq|deadlock)|inconsistent lock|suspicious RCU|refcount_t"
    r"|list_(?:add|del) corruption"
    r"|is still held|held lock freed|invalid context"
)
REPORT_LINES = 45
# A race and who has part in it, between two lines like this.
RULE = re.compile(r"^(?:\[[^]]*\] )?=+$")
RACE = "BUG: KCSAN: "


def first_report(console: str) -> str | None:
    """The first thing that the kernel complains of, as far as it matters."""
    lines = _lines(console)
    for number, line in enumerate(lines):
        if REPORT.search(line):
            return "\n".join(lines[number : number + REPORT_LINES])
    return None


def races(console: str, module: str) -> list[str]:
    """What KCSAN reports that a module has part in."""
    found: list[list[str]] = []
    inside = False
    for line in _lines(console):
        if RACE in line:
            found.append([])
            inside = True
        elif RULE.match(line):
            inside = False
        if inside:
            found[-1].append(line)
    reports = ("\n".join(report) for report in found)
    return [report for report in reports if f" [{module}]" in report]


def our_races(console: str) -> str | None:
    """Those of the module under test."""
    return "\n\n".join(races(console, "ccc")) or None


def _lines(console: str) -> list[str]:
    return [line.rstrip("\r") for line in console.splitlines()]


@dataclass(frozen=True)
class Kernel:
    """How a guest is started, and judged by what its kernel says."""

    image: str
    parameters: str
    complaint: Callable[[str], str | None]


SANITIZED = Kernel("sanitized-guest", f"{PARAMETERS} panic_on_warn=1", first_report)
# Eight times as many accesses are watched as by default, for a shorter time each.
WATCHFUL = "kcsan.skip_watch=300 kcsan.udelay_task=20 kcsan.udelay_interrupt=10"
# It goes on after a report: the kernel has races of its own.
RACING = Kernel("racing-guest", f"{PARAMETERS} {WATCHFUL}", our_races)


def on_bus(backend: Path, options: str = "") -> list[str]:
    """Arguments of the coupling device of such a guest."""
    return coupling_device(backend, f",addr=5{options}")


class CheckedGuest(Qemu):
    """A guest with two network cards on one wire that takes the steps of one test."""

    def __init__(
        self, kernel: Kernel, options: pytest.Config, logs: Path, steps: str, seconds: int, device: list[str]
    ) -> None:
        image = artefacts.build(kernel.image)
        seed, processors = options.getoption("--seed"), options.getoption("--processors")
        parameters = f"{kernel.parameters} guest.test={steps} guest.seconds={seconds} guest.seed={seed}"
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
        self._kernel, self._steps, self._seconds = kernel, steps, seconds

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> str:
        """To its end, and the judgement; what the guest says that it did."""

        def ended() -> bool:
            if self.is_running():
                meanwhile()
            return not self.is_running()

        try:
            until(f"end of the guest ({self._console})", ended, PATIENCE_S + 3 * self._seconds, poll_s=0.2)
        except TimedOut as hung:
            said = self._complaint() or "\n".join(self.console.splitlines()[-REPORT_LINES:])
            raise AssertionError(f"{hung}; what the kernel reports, or the console's end:\n{said}") from None
        report = self._complaint()
        assert not report, f"what the kernel reports (all of it: {self._console}):\n{report}"
        failed = re.search(r"^@ failed (.*)$", self.console, re.M)
        assert not failed, f"{failed[1].strip()} ({self._console})"
        assert re.search(rf"^@ ok {self._steps}\b", self.console, re.M), f"ended without a word ({self._console})"
        return "; ".join(line[2:].strip() for line in self.console.splitlines() if line.startswith("# "))

    def _complaint(self) -> str | None:
        return self._kernel.complaint(self.console)
