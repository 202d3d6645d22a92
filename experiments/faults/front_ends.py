# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Front ends killed at random instants of their set-up and of their life, in real time.

A killed one is a process that speaks vhost-user as QEMU does, maps memory, offers tables and
reports flows; SIGKILL ends it between any two of its instructions.  Beside them one front end
stays: its flow is coupled all the time, and its reports are heard.
"""

import ctypes
import os
import random
import resource
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.scores import Score
from testbed import virtio_ccc as wire
from testbed.daemon import Daemon
from testbed.errors import TimedOut
from testbed.front_end import FrontEnd
from testbed.wait import TIMEOUT_S, until

SLOTS, LINES = 16, 2
# What a front end lives, seconds: its set-up takes about 2 ms of it.
LIFE_S = (0.0, 0.02)
# The first ones fill what the daemon keeps for good.
WARM = 50
# How often it is asked whether the one that stays is coupled.
LOOK_EACH = 10
# Threads that close files are made when they are wanted, so many at the most, and stay.
CLOSERS = 64
# What the allocator may keep or give back.
MEMORY_KB = 2048
HANG_S = 10.0
# Whatever else a machine does that runs the quick form.
SOON_S = 5.0 if os.environ.get("QUICK") else 1.0


@dataclass
class Stayer:
    """The front end that stays, and its flow."""

    front: FrontEnd
    acked: int = 0

    @classmethod
    def of(cls, path: Path) -> "Stayer":
        stayer = cls(FrontEnd(path, SLOTS, LINES))
        stayer.report(wire.OP_REGISTER)
        return stayer

    def report(self, op: int = wire.OP_UPDATE, slot: int = 0) -> None:
        self.acked += 14_480
        at = self.front.address_of("report") + slot * ctypes.sizeof(wire.Report)
        report = wire.Report.from_address(at)
        report.seq += 1
        report.state, report.flags, report.priority = wire.STATE_CA, wire.R_ACTIVE, 256
        report.acked_limited_bytes = report.delivered_bytes = self.acked
        report.cwnd_bytes = report.inflight_bytes = 14_480
        report.ssthresh_bytes = 14_480
        report.srtt_us = report.min_rtt_us = 20_000
        report.mss_bytes, report.generation, report.family = 1448, 1, 4
        report.seq += 1
        self.front.ring(op, slot, 1)

    @property
    def coupled(self) -> bool:
        grant = wire.SlotGrant.from_address(self.front.address_of("grant"))
        return bool(grant.flags & wire.G_ACCEPTED)


@dataclass(frozen=True)
class Process:
    """What the daemon's process holds."""

    descriptors: int
    threads: int
    memory_kb: int
    maps: int

    @classmethod
    def of(cls, number: int) -> "Process":
        at = Path(f"/proc/{number}")
        status = dict(line.split(":", 1) for line in (at / "status").read_text().splitlines())
        # Of guests, whose number does not change at rest.
        maps = sum("memfd" in line for line in (at / "maps").read_text().splitlines())
        return cls(
            len(os.listdir(at / "fd")), int(status["Threads"]), int(status["RssAnon"].split()[0]), maps
        )  # fmt: skip


def _live(path: Path) -> None:
    """What a front end does until it is killed."""
    with suppress(Exception):
        stayer = Stayer.of(path)
        while True:
            for slot in range(1, SLOTS):
                stayer.report(wire.OP_REGISTER, slot)


def kill_one(path: Path, life_s: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            _live(path)
        finally:
            os._exit(0)
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def daemon_in(directory: Path) -> Daemon:
    sockets = directory / "sockets"
    sockets.mkdir(parents=True, exist_ok=True)
    vms = "".join(f'[vm.{name}]\nsocket = "{sockets}/{name}.sock"\ngroup = "g"\n' for name in ("stays", "dies"))
    return Daemon(directory, f"[group.g]\n{vms}", directory / "control", log_level="warn")


def process_of(daemon: Daemon) -> int:
    """Its number, as the kernel knows who listens."""
    assert daemon._process is not None
    return daemon._process.pid


def coupled(daemon: Daemon) -> int:
    """Flows of the one that stays, however late the daemon answers."""
    return daemon.coupled_flows("stays", TIMEOUT_S)


def at_rest(daemon: Daemon, before: Process | None = None) -> Process:
    """What it holds once it has seen that the killed ones are gone, and has closed what it had not before."""
    until("the killed one's flows have left", lambda: daemon.get("/v1/vms/dies")["flows"] == 0)
    # The control socket's clients leave after that, too.
    time.sleep(0.3)

    def has_closed() -> bool:
        now = Process.of(process_of(daemon))
        return before is None or (now.descriptors <= before.descriptors and now.maps <= before.maps)

    with suppress(TimedOut):
        until("it has closed what it had open", has_closed)
    return Process.of(process_of(daemon))


def kills(directory: Path, count: int, seed: int) -> tuple[dict, list[Score]]:
    """So many front ends killed."""
    chance = random.Random(seed)
    path = directory / "sockets" / "dies.sock"
    lost = 0
    with daemon_in(directory) as daemon:
        stayer = Stayer.of(directory / "sockets" / "stays.sock")
        until("it is coupled", lambda: stayer.coupled)
        before = None
        for number in range(WARM + count):
            if number == WARM:
                before = at_rest(daemon)
            kill_one(path, chance.uniform(*LIFE_S))
            stayer.report()
            if number % LOOK_EACH == 0:
                lost += coupled(daemon) != 1
        assert before is not None
        after = at_rest(daemon, before)
        panics = daemon.log.count("panicked")
        registered = daemon.get("/v1/vms/dies")["counters"]["registered"]
    grown = {name: vars(after)[name] - held for name, held in vars(before).items()}
    scores = [
        Score("front ends killed: times the other was not coupled", lost, "times", "<=", 0),
        Score("front ends killed: descriptors left", grown["descriptors"], "", "<=", 0),
        Score("front ends killed: mappings of guests left", grown["maps"], "", "<=", 0),
        Score("front ends killed: threads more", grown["threads"], "", "<=", CLOSERS),
        Score("front ends killed: memory grown", grown["memory_kb"], "kB", "<=", MEMORY_KB),
        Score("front ends killed: flows they had registered", registered, "flows", ">=", count),
        Score("front ends killed: panics", panics, "", "<=", 0),
    ]
    return {"front_end_kills": count, "seed": seed, "before": vars(before), "after": vars(after)}, scores


def hang(directory: Path) -> tuple[dict, list[Score]]:
    """SIGSTOP for 10 s: what was rung meanwhile counts once it goes on."""
    with daemon_in(directory) as daemon:
        stayer = Stayer.of(directory / "sockets" / "stays.sock")
        until("it is coupled", lambda: stayer.coupled)
        daemon.hang()
        end = time.monotonic() + HANG_S
        slots = iter(range(1, SLOTS))
        while time.monotonic() < end:
            stayer.report()
            if (slot := next(slots, None)) is not None:
                stayer.report(wire.OP_REGISTER, slot)
            time.sleep(0.1)
        daemon.resume()
        took = until("all its flows count", lambda: coupled(daemon) == SLOTS, poll_s=0.01)
        panics = daemon.log.count("panicked")
    scores = [
        Score("stopped for 10 s: until all flows that came meanwhile are coupled", took, "s", "<=", SOON_S),
        Score("stopped for 10 s: panics", panics, "", "<=", 0),
    ]
    return {"stopped_s": HANG_S, "coupled_after_s": round(took, 3)}, scores


def directory_gone(directory: Path) -> tuple[dict, list[Score]]:
    """The sockets' directory is removed: who is connected stays; a restart makes it anew."""
    with daemon_in(directory) as daemon:
        stayer = Stayer.of(directory / "sockets" / "stays.sock")
        until("it is coupled", lambda: stayer.coupled)
        for name in ("stays", "dies"):
            (directory / "sockets" / f"{name}.sock").unlink()
        (directory / "sockets").rmdir()
        stayer.report()
        served = coupled(daemon)
        daemon.kill()
        (directory / "sockets").mkdir()
        daemon.start()
        again = Stayer.of(directory / "sockets" / "stays.sock")
        until("it is coupled again", lambda: again.coupled)
    return {"served_without_directory": served}, [
        Score("directory of the sockets gone: flows of who is connected", served, "flows", ">=", 1)
    ]


def memory_short(directory: Path) -> tuple[dict, list[Score]]:
    """No memory for more guests: they are refused, who is there is served, later ones are taken."""
    with daemon_in(directory) as daemon:
        stayer = Stayer.of(directory / "sockets" / "stays.sock")
        until("it is coupled", lambda: stayer.coupled)
        number = process_of(daemon)
        pages = int(Path(f"/proc/{number}/statm").read_text().split()[0])
        _, hard = resource.prlimit(number, resource.RLIMIT_AS)
        # Not a page more for a guest's memory; what the allocator has stays.
        resource.prlimit(number, resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))
        refused = 0
        for _ in range(20):
            try:
                FrontEnd(directory / "sockets" / "dies.sock", SLOTS, LINES).close()
            except Exception:
                refused += 1
            stayer.report()
        served = coupled(daemon)
        resource.prlimit(number, resource.RLIMIT_AS, (hard, hard))
        FrontEnd(directory / "sockets" / "dies.sock", SLOTS, LINES).close()
    return {"refused_of_20": refused, "served": served}, [
        Score("no memory for more guests: refused of 20", refused, "", ">=", 20),
        Score("no memory for more guests: flows of who is there", served, "flows", ">=", 1),
    ]
