#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boots the sanitized guest once for each test and judges what its kernel says.

The guest has real flows through a real bottleneck, and the host's real daemon or
one that misbehaves. The kernel stops at the first report of KASAN, lockdep and
the like, so a test passes if the guest got to its end and nothing was reported.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "qemu-patches" / "tests"))
sys.path.insert(0, str(HERE))
from lab import Daemon, Failed, end, require  # noqa: E402
from random_device import RandomDevice  # noqa: E402

MEMORY = "1G"
# With five levels of page tables KASAN takes an interrupt for a wild access that
# comes while the kernel finds out at boot what the processor can do.
CPU = "max,la57=off"
# How long a guest may take beside its flows: it is emulated and checked at each
# access, on a machine that may have more to do. This is no judgement of speed.
PATIENCE = 900
PARAMETERS = (
    "console=ttyS0 loglevel=5 panic_on_warn=1 oops=panic panic=-1 mitigations=off tsc=unstable clocksource=acpi_pm "
    "rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60 workqueue.watchdog_thresh=300"
)
REPORT = re.compile(
    r"BUG:|WARNING:|KASAN:|KCSAN:|UBSAN:|ODEBUG:|INFO: |Oops|general protection|Kernel panic"
    r"|possible (?:circular|recursive|irq|deadlock)|inconsistent lock|suspicious RCU|refcount_t|list_(?:add|del) corruption"
    r"|is still held|held lock freed|invalid context"
)
REPORT_LINES = 45


@dataclass
class Run:
    """What a test needs to know of the guest that runs."""

    directory: Path
    console: Path
    process: subprocess.Popen
    stack: contextlib.ExitStack

    def said(self) -> str:
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def running(self) -> bool:
        return self.process.poll() is None


def first_report(console: str) -> str | None:
    """The first thing that the kernel complains of, as far as it matters."""
    lines = [line.rstrip("\r") for line in console.splitlines()]
    for n, line in enumerate(lines):
        if REPORT.search(line):
            return "\n".join(lines[n : n + REPORT_LINES])
    return None


def judge(name: str, run: Run, finished: bool) -> None:
    console = run.said()
    report = first_report(console)
    require(not report, f"the kernel's first report (all of it: {run.console}):\n{report}")
    failed = re.search(r"^@ failed (.*)$", console, re.M)
    require(not failed, f"{failed and failed[1].strip()} ({run.console})")
    require(finished, f"the guest did not end ({run.console})")
    require(re.search(rf"^@ ok {name}\b", console, re.M), f"the guest ended without a word ({run.console})")


@dataclass
class Lab:
    """Paths, and how one guest is started."""

    paths: argparse.Namespace
    guest: Path
    stack: contextlib.ExitStack
    directory: Path
    name: str

    def daemon(self) -> Daemon:
        daemon = Daemon(self.paths.vhost, self.directory, self.name)
        self.stack.callback(daemon.close)
        return daemon

    def hostile(self, seed: int) -> RandomDevice:
        device = RandomDevice(self.directory / f"{self.name}.sock", seed)
        self.stack.callback(device.close)
        return device

    def start(self, steps: str, backend: Path | None, seconds: int, seed: int, options: str = "") -> Run:
        guest = self.guest
        console = self.directory / f"{self.name}.console"
        words = [
            self.paths.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", self.paths.processors, "-m", MEMORY,
            "-machine", "q35,memory-backend=mem",
            "-object", f"memory-backend-memfd,id=mem,size={MEMORY},share=on",
            "-kernel", guest / "bzImage", "-initrd", guest / "initrd",
            "-append", f"{PARAMETERS} lab.test={steps} lab.seconds={seconds} lab.seed={seed}",
            "-serial", f"file:{console}",
        ]
        # Two network cards on one wire.
        for n in (1, 2):
            words += [
                "-netdev", f"hubport,id=port{n},hubid=0",
                "-device", f"virtio-net-pci,netdev=port{n},mac=52:54:00:63:00:0{n},addr={n + 1},romfile=",
            ]
        if backend:
            words += [
                "-chardev", f"socket,id=ccc,path={backend},reconnect-ms=100",
                "-device", f"vhost-user-ccc-pci,id=ccc,chardev=ccc,addr=5{options}",
            ]
        log = (self.directory / f"{self.name}.qemu").open("w")
        process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=subprocess.STDOUT)
        self.stack.callback(end, process)
        return Run(self.directory, console, process, self.stack)

    def finish(self, steps: str, run: Run, seconds: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """To the guest's end, or to the limit of patience; then the judgement."""
        deadline = time.monotonic() + PATIENCE + 3 * seconds
        while run.running() and time.monotonic() < deadline:
            meanwhile()
            time.sleep(0.2)
        judge(steps, run, not run.running())


def f5_switches_while_read(lab: Lab, seconds: int, seed: int) -> str:
    run = lab.start("switches_while_read", None, seconds, seed)
    lab.finish("switches_while_read", run, seconds)
    return stressed(run)


def f6_hostile_grants(lab: Lab, seconds: int, seed: int) -> str:
    device = lab.hostile(seed)
    # It reads rings in their simplest form.
    plain = ",indirect_desc=off,event_idx=off"
    run = lab.start("hostile", lab.directory / f"{lab.name}.sock", 2 * seconds, seed, plain)
    lab.finish("hostile", run, 2 * seconds)
    require(device.error is None, f"the hostile device itself failed: {device.error!r}")
    require(device.did["lines"] and device.did["messages"], f"the device did too little: {dict(device.did)}")
    return f"{stressed(run)}; the device, seed {seed}: " + ", ".join(
        f"{number} {what}" for what, number in sorted(device.did.items())
    )


def g9_daemon_killed_and_back(lab: Lab, seconds: int, seed: int) -> str:
    daemon = lab.daemon()
    run = lab.start("watched_flows", daemon.socket, seconds, seed)
    kills = 0

    def meanwhile() -> None:
        nonlocal kills
        if "@ coupled" in run.said():
            daemon.kill()
            time.sleep(0.5)
            daemon.start()
            kills += 1
            time.sleep(1)

    lab.finish("watched_flows", run, seconds, meanwhile)
    require(kills, "the daemon was never killed")
    return f"{kills} kills; {stressed(run)}"


def with_daemon(steps: str) -> Callable[[Lab, int, int], str]:
    def test(lab: Lab, seconds: int, seed: int) -> str:
        run = lab.start(steps, lab.daemon().socket, seconds, seed)
        lab.finish(steps, run, seconds)
        return stressed(run)

    return test


def stressed(run: Run) -> str:
    """What the guest says that it did."""
    return "; ".join(line[2:].strip() for line in run.said().splitlines() if line.startswith("# "))


TESTS: dict[str, Callable[[Lab, int, int], str]] = {
    "f5_switches_while_read": f5_switches_while_read,
    "f6_hostile_grants": f6_hostile_grants,
    "g9_coupled_flows": with_daemon("coupled_flows"),
    "g9_daemon_killed_and_back": g9_daemon_killed_and_back,
    "g8_unbinds": with_daemon("unbinds"),
    "g8_removals": with_daemon("removals"),
    "g8_suspends": with_daemon("suspends"),
    "g9_reloads": with_daemon("reloads"),
}
QUICK = ("f5_switches_while_read", "f6_hostile_grants", "g9_coupled_flows", "g8_unbinds")


def run_test(paths: argparse.Namespace, guest: Path, name: str) -> bool:
    begin = time.monotonic()
    for old in paths.out.glob(f"{name}.*"):
        old.unlink()
    print(f"{name} ...", end=" ", flush=True)
    with contextlib.ExitStack() as stack:
        try:
            words = TESTS[name](Lab(paths, guest, stack, paths.out, name), paths.seconds, paths.seed)
        except Failed as failed:
            print(f"FAILED after {time.monotonic() - begin:.0f} s, seed {paths.seed}: {failed}", flush=True)
            return False
    print(f"ok ({time.monotonic() - begin:.0f} s; {words})", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for path in ("qemu", "guest", "vhost", "out"):
        parser.add_argument(f"--{path}", type=Path, required=True)
    parser.add_argument("--processors", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=30, help="of flows in each test")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="only " + ", ".join(QUICK))
    parser.add_argument("tests", nargs="*", metavar="TEST", help="of " + ", ".join(TESTS))
    paths = parser.parse_args()
    if unknown := set(paths.tests) - set(TESTS):
        parser.error(f"no such test: {', '.join(unknown)} (there are {', '.join(TESTS)})")
    paths.out.mkdir(parents=True, exist_ok=True)
    paths.out = paths.out.resolve()
    names = paths.tests or (QUICK if paths.quick else list(TESTS))
    failed = sum(not run_test(paths, paths.guest, name) for name in names)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    os.umask(0o077)
    # Ends guests and daemons on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
