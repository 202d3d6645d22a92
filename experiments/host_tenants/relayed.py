# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A tenant behind the relay: what becomes of its flows when the agent, the relay or the daemon is killed,
and whether another one that says anything at all to the relay disturbs it.

The agent is on this machine, as that of a guest would be in the guest; it so uses a Unix socket.
"""

import json
import random
import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import Popen

from ccc_experiments.scores import Score

from . import cgroups
from .dumbbell import Dumbbell
from .service import Service, until

FLOWS = 4
PORT = 1063
# What comes before the structures: kind, nothing, number; and how long those are.
_HEAD = struct.Struct("<HHI")
_HELLO, _REPORT, _MESSAGE = 1, 2, 3
_LENGTHS = {_HELLO: 16, _REPORT: 128, _MESSAGE: 16, 4: 0, 5: 64, 6: 64, 7: 16}
_REVISION = 1
_LIES_S = 5.0
# An agent's address space: more than enough, and the steps to what is too little.  A table has
# more than a step.
_MEMORY = 1 << 30
_STEP = 1 << 17


def run(out: Path, kills: int, back_within_s: float) -> list[Score]:
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start_daemon()
        service.start_relay()
        bed = Dumbbell("ccc-relayed")
        stack.callback(bed.end)
        bed.make()
        place = cgroups.make("relayed")
        for name in ("vm", "liar"):
            service.add(name, "vsock", str(service.run / name), "g")
        service.agent = (str(service.run / f"vm_{PORT}"), place)
        service.start_agent()
        service.await_connected("vm")
        receiver = bed.receive(60 + 60 * kills)
        bed.send(0, FLOWS, 60 + 60 * kills, "reno", cgroups.path("relayed"))
        until("flows coupled", lambda: coupled(service) == FLOWS)
        parts = {
            "agent": (service.kill_agent, service.start_agent),
            "relay": (service.kill_relay, service.start_relay),
            "daemon": (service.kill_daemon, service.start_daemon),
        }
        back: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(kills // len(parts)):
            for name, (kill, start) in parts.items():
                back[name].append(killed(service, kill, start))
        before = service.show("vm")["counters"]["updated"]
        lies(service.run / f"liar_{PORT}")
        until("the liar has gone", lambda: not service.tenants()["liar"]["connected"])
        during = service.show("vm")["counters"]["updated"] - before
        still = coupled(service)
        told = tells_of_another_release(service, "liar")
        receiver.terminate()
        received = json.loads(receiver.communicate()[0])
    (out / "relayed.json").write_text(json.dumps({"back_s": back, "received": received}, indent=1) + "\n")
    return [
        *(
            Score.worst(
                f"{what} of a relayed tenant killed: until all is coupled again", times, "s", "<=", back_within_s
            )
            for what, times in back.items()
        ),
        Score("relayed: connections ended", len(received["ended"]), "1", "<=", 0),
        Score(f"relayed: flows coupled after {_LIES_S:g} s of a guest that lies", still, "1", ">=", FLOWS),
        Score("relayed: reports taken meanwhile, a second", during / _LIES_S, "1", ">=", 1),
        Score("doctor tells of an agent of another release, and what to upgrade", told, "1", ">=", 1),
    ]


def short_at_first(out: Path) -> list[Score]:
    """An agent that has no room for its table, and then has."""
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        # The program is there, and no table.
        service.start()
        until("the program is loaded", lambda: any(service.pins.glob("*/complete")))
        service.kill_loader()
        service.start_relay()
        service.add("vm", "vsock", str(service.run / "vm"), "g")
        service.agent = (str(service.run / f"vm_{PORT}"), cgroups.make("relayed"))
        agent = with_the_least_memory(service, out / "agent.log")
        resource.prlimit(agent.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        connected = 0
        with suppress(TimeoutError):
            service.await_connected("vm")
            connected = 1
    return [Score("agent coupled that could not make its table at first", connected, "1", ">=", 1)]


def with_the_least_memory(service: Service, log: Path) -> Popen:
    """An agent that goes on, but for its table; with less it ends."""
    log.unlink(missing_ok=True)

    def says_so() -> bool:
        return bool(re.search("ERROR.* tenant guest: ", log.read_text()))

    for most in range(_STEP, _MEMORY, _STEP):
        agent = service.start_agent("prlimit", f"--as={most}:{_MEMORY}")
        until("it ends, or says so", lambda agent=agent: says_so() or agent.poll() is not None)
        if says_so():
            return agent
    raise RuntimeError("no agent had too little memory for its table alone")


def killed(service: Service, kill, start) -> float:
    """Seconds from a program's start until all flows are coupled."""
    kill()
    # Longer than a lease, so that all flows go on alone.
    time.sleep(1.5)
    began = time.monotonic()
    start()
    until("flows coupled again", lambda: coupled(service) == FLOWS)
    back = time.monotonic() - began
    time.sleep(0.5)
    return back


def coupled(service: Service) -> int:
    # A daemon that has just been started knows no tenant yet.
    with suppress(KeyError):
        return service.tenants()["vm"]["coupled_flows"]
    return 0


def tells_of_another_release(service: Service, name: str) -> int:
    """Whether an operator hears of an agent that the relay refuses for its tables' revision."""
    with suppress(TimeoutError):
        until("doctor tells of it", lambda: doctor_tells_of_a_newer_agent(service, name), 10)
    return doctor_tells_of_a_newer_agent(service, name)


def doctor_tells_of_a_newer_agent(service: Service, name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(service.run / f"{name}_{PORT}"))
        stream.sendall(_HEAD.pack(_HELLO, 0, _REVISION + 1) + struct.pack("<IIII", 0, 64, 1, 0))
        stream.settimeout(1)
        # The relay tells the daemon once a second of such.
        with suppress(OSError):
            stream.recv(1)
    words = ("its agent says it is newer than the daemon", "install their release of ccc-agent in the guest")
    of_it = [f"{one['what']} {one['remedy']}" for one in service.doctor() if one["of"] == name]
    # A guest's word has nothing of the host restarted.
    return any(all(word in told for word in words) and "restart ccc" not in told for told in of_it)


def lies(path: Path, seed: int = 1) -> None:
    """Says anything at all to the relay for some seconds, again and again from the beginning."""
    draw = random.Random(seed)
    end = time.monotonic() + _LIES_S
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(path))
            stream.settimeout(1)
            with suppress(OSError):
                for frame in _frames(draw):
                    stream.sendall(frame)
                    if time.monotonic() > end:
                        break


def _frames(draw: random.Random) -> Iterator[bytes]:
    """A hello that may be one, then frames of which some are none."""
    slots, lines = draw.choice([(1024, 16), (1024, 16), (64, 1), (0, 0), (1 << 31, 1 << 31)])
    yield _HEAD.pack(_HELLO, 0, draw.choice([_REVISION] * 4 + [0])) + struct.pack("<IIII", 0, slots, lines, 0)
    for _ in range(draw.randrange(20000)):
        kind = draw.choices([_REPORT, _MESSAGE, *range(9)], [40, 40, *[0.01] * 9])[0]
        likely, any_slot, any_number = draw.randrange(64), draw.randrange(1024), draw.getrandbits(32)
        number = draw.choices([likely, any_slot, any_number], [1998, 1, 1])[0]
        yield _HEAD.pack(kind, 0, number) + _structure(kind, draw)


def _structure(kind: int, draw: random.Random) -> bytes:
    if kind == _MESSAGE:
        return struct.pack("<HHIII", draw.randrange(7), 0, draw.randrange(80), draw.randrange(4), 0)
    return draw.randbytes(_LENGTHS.get(kind, 8))
