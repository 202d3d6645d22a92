# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The FreeBSD guest's flows in user space: traces of the laboratory's packets are shown to them,
and the real daemon couples them."""

import ctypes
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from ccc_experiments import lab
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from testbed import virtio_ccc as wire
from testbed.artefacts import PROJECT
from testbed.daemon import Daemon
from testbed.front_end import FrontEnd
from testbed.wait import until

FIN, SYN, RST = 1, 2, 4
SACK, END, PADDING = 5, 0, 1
MSS = 1448
WAY_US = 40_000
# Reports of a flow are that far behind it: an eighth of a window, of which it sends a message.
LATE = 16 * MSS
# FreeBSD's TCP sends no less often than with this window.
LEAST = 2 * MSS
COUNTS = {"one": 1, "four": 4}


@dataclass(frozen=True)
class Segment:
    """A segment of TCP on a VM's cable."""

    time_us: int
    source: tuple[bytes, int]
    destination: tuple[bytes, int]
    seq: int
    ack: int
    flags: int
    sacks: bool
    size: int


def segments(pcap: Path) -> Iterator[Segment]:
    """The segments of a capture by the laboratory, in their order."""
    content, at = pcap.read_bytes(), 24
    while at < len(content):
        seconds, nanoseconds, size, _ = struct.unpack_from("<IIII", content, at)
        ip = content[at + 16 + 14 : at + 16 + size]
        at += 16 + size
        if ip[0] >> 4 != 4 or ip[9] != socket.IPPROTO_TCP:
            continue
        tcp = ip[4 * (ip[0] & 15) : int.from_bytes(ip[2:4])]
        sport, dport, seq, ack, length, flags = struct.unpack_from(">HHIIBB", tcp)
        header = length >> 4 << 2
        yield Segment(
            seconds * 1_000_000 + nanoseconds // 1000, (ip[12:16], sport), (ip[16:20], dport), seq, ack, flags,
            _has_sack(tcp[20:header]), len(tcp) - header,
        )  # fmt: skip


def _has_sack(options: bytes) -> bool:
    at = 0
    while at < len(options) and options[at] != END:
        if options[at] == SACK:
            return True
        at += 1 if options[at] == PADDING else options[at + 1]
    return False


def _is_before(one: int, other: int) -> bool:
    return (one - other) % 2**32 >= 2**31


DOORBELL = ctypes.CFUNCTYPE(None, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint32)


class Tables(ctypes.Structure):
    """struct replay_tables"""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("report", "status", "line", "grant")),
        ("doorbell", DOORBELL),
        *((name, ctypes.c_uint32) for name in ("slots", "lines", "stale_us")),
    )


class State(ctypes.Structure):
    """struct replay_state"""

    _fields_ = (
        ("delivered_bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("cwnd", "ssthresh", "events", "timeouts", "slot")),
        ("has_slot", ctypes.c_bool),
        ("coupled", ctypes.c_bool),
    )


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    """guest/freebsd-ccc/tests/replay.c"""
    directory = PROJECT / "guest" / "freebsd-ccc" / "tests"
    make = ("make", "--silent", "-C", directory, "-f", "user.mk", "replay")
    made = subprocess.run(make, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    library = ctypes.CDLL(made)
    word, half, pointer = ctypes.c_uint32, ctypes.c_uint16, ctypes.c_void_p
    signatures = {
        "replay_device": (pointer, [ctypes.POINTER(Tables)]),
        "replay_open": (pointer, [pointer, word, word, half, half, word, word]),
        "replay_sent": (None, [pointer, ctypes.c_uint64, word, word, ctypes.c_bool]),
        "replay_acked": (None, [pointer, ctypes.c_uint64, word, ctypes.c_bool]),
        "replay_closed": (None, [pointer, ctypes.c_uint64]),
        "replay_state": (State, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> list[Segment]:
    """Uncoupled Reno of two VMs, with 1 and 4 flows, that overflow a queue; one of the four
    ends in time, the others are cut off."""
    long, short = partial(Flows, start_s=0.2, stop_s=5.0), Flows(start_s=0.2, bytes=2_500_000)
    vms = tuple(
        Vm(flows, name=name, congestion_control="reno", device=False)
        for name, flows in {"one": (long(count=1),), "four": (long(count=3), short)}.items()
    )
    path = Bottleneck(rate_mbit=30.0, delay_ms=WAY_US / 1000, limit_packets=120)
    scenario = Scenario("freebsd-flows", vms, 3001, 6.0, bottleneck=path)
    raw = lab.run(scenario, lab.Parts.built(), tmp_path_factory.mktemp("trace"), pcap=True)
    return list(segments(raw / "packets.pcap"))


@dataclass
class Flow:
    """A connection of the library's, and what the trace says of it."""

    connection: int
    first: int
    highest: int
    recovered: int
    acknowledged: int = 0
    # How often the sender began to send again what was lost.
    losses: int = 0
    ended: bool = False

    @classmethod
    def of(cls, connection: int, first: int) -> "Flow":
        return cls(connection, first, first, first)

    def note_sent(self, segment: Segment) -> None:
        if not _is_before(segment.seq, self.highest):
            self.highest = (segment.seq + segment.size) % 2**32
        elif not _is_before(segment.seq, self.recovered):
            self.losses += 1
            self.recovered = self.highest


class Guest:
    """A VM whose flows the library is."""

    def __init__(self, library: ctypes.CDLL, front: FrontEnd) -> None:
        self._library, self._front = library, front
        self.flows: dict[int, Flow] = {}
        # Messages to the daemon, by what they say.
        self.told: Counter[int] = Counter()
        self._tables = Tables(
            *(front.address_of(name) for name in ("report", "status", "line", "grant")),
            DOORBELL(self._ring), front.slots, front.lines, front.config.stale_us,
        )  # fmt: skip
        self._device = library.replay_device(ctypes.byref(self._tables))

    def _ring(self, op: int, slot: int, generation: int) -> None:
        self.told[op] += 1
        self._front.ring(op, slot, generation)

    def sends(self, segment: Segment, now_us: int) -> None:
        port, ends = segment.source[1], (segment.source, segment.destination)
        if segment.flags & SYN:
            addresses = (int.from_bytes(address, "little") for address, _ in ends)
            first = (segment.seq + 1) % 2**32
            opened = self._library.replay_open(self._device, *addresses, port, ends[1][1], MSS, first)
            self.flows[port] = Flow.of(opened, first)
            return
        flow = self.flows[port]
        if segment.flags & RST:
            flow.ended = True
            self._library.replay_closed(flow.connection, now_us)
        elif segment.size or segment.flags & FIN:
            flow.note_sent(segment)
            fin = bool(segment.flags & FIN)
            self._library.replay_sent(flow.connection, now_us, segment.seq, segment.size, fin)

    def receives(self, segment: Segment, now_us: int) -> None:
        flow = self.flows[segment.destination[1]]
        if segment.flags & SYN or flow.ended:
            return
        flow.acknowledged = (segment.ack - flow.first) % 2**32
        self._library.replay_acked(flow.connection, now_us, segment.ack, segment.sacks)

    def states(self) -> dict[int, State]:
        """Of the flows that have a slot, by source port."""
        states = {port: self._library.replay_state(flow.connection) for port, flow in self.flows.items()}
        return {port: state for port, state in states.items() if state.has_slot}


class Replay:
    """A trace, shown to guests at the pace at which it was."""

    def __init__(self, trace: list[Segment], guests: dict[str, Guest]) -> None:
        self._left = iter(trace)
        # As the laboratory numbers its VMs.
        self._guests = {bytes((10, 1, number, 2)): guests[name] for number, name in enumerate(COUNTS, 1)}
        self._next: Segment | None = next(self._left)
        self._began_us = time.monotonic_ns() // 1000 - self._next.time_us

    def until(self, time_s: float = float("inf")) -> None:
        while self._next and self._next.time_us < time_s * 1e6:
            now_us = time.monotonic_ns() // 1000
            due_us = self._began_us + self._next.time_us - now_us
            if due_us > 0:
                time.sleep(due_us / 1e6)
            self._show(self._next, time.monotonic_ns() // 1000)
            self._next = next(self._left, None)

    def _show(self, segment: Segment, now_us: int) -> None:
        if sender := self._guests.get(segment.source[0]):
            sender.sends(segment, now_us)
        elif receiver := self._guests.get(segment.destination[0]):
            receiver.receives(segment, now_us)


@pytest.fixture
def weight() -> float:
    """Of the VM with one flow; the other's is 1."""
    return 1


@pytest.fixture
def daemon(tmp_path: Path, weight: float) -> Iterator[Daemon]:
    # A busy machine shows the trace late, and that is in the round-trip times.
    sections = '[group.uplink]\nshare = "window"\n' + "\n".join(
        f'[vm.{name}]\nsocket = "{tmp_path}/{name}.sock"\ngroup = "uplink"\nweight = {number}'
        for name, number in {"one": weight, "four": 1}.items()
    )
    with Daemon(tmp_path, sections, tmp_path / "control", log_level="debug") as daemon:
        yield daemon


@pytest.fixture
def guests(tmp_path: Path, library: ctypes.CDLL, daemon: Daemon) -> Iterator[dict[str, Guest]]:
    fronts = {name: FrontEnd(tmp_path / f"{name}.sock", 16, 4) for name in COUNTS}
    yield {name: Guest(library, front) for name, front in fronts.items()}
    for front in fronts.values():
        front.close()


def flows_of(daemon: Daemon, name: str) -> dict[int, dict]:
    """What the daemon says of a VM's flows, by source port."""
    return {flow["source_port"]: flow for flow in daemon.get(f"/v1/vms/{name}/flows")["flows"]}


def granted(daemon: Daemon, name: str) -> int:
    """To all flows of a VM, in bytes."""
    return sum(flow["granted"] or 0 for flow in flows_of(daemon, name).values())


def follows(daemon: Daemon, guests: dict[str, Guest]) -> list[bool]:
    """Of each coupled flow, whether its window is what it is granted, or two segments from it."""
    pairs = [
        (state.cwnd, said["granted"])
        for name, guest in guests.items()
        for port, said in flows_of(daemon, name).items()
        if (state := guest.states()[port]).coupled and said["granted"] is not None
    ]
    return [abs(cwnd - max(grant, LEAST)) <= 2 * MSS for cwnd, grant in pairs]


def test_a_trace_is_reported_as_it_was_and_grants_are_followed(trace, daemon, guests):
    replay = Replay(trace, guests)
    followed = []
    for tenth in range(15, 46, 3):
        replay.until(tenth / 10)
        followed += follows(daemon, guests)
    for name, guest in guests.items():
        said, states = flows_of(daemon, name), guest.states()
        assert len(guest.flows) == COUNTS[name]
        # One has ended.
        assert sorted(said) == sorted(states) and len(said) == {"one": 1, "four": 3}[name]
        for port, state in states.items():
            flow, traced = said[port], guest.flows[port]
            assert flow["algorithm"] == "newreno" and flow["destination"] == "10.2.0.2"
            assert flow["events"] == state.events == traced.losses > 0
            assert 0 <= state.delivered_bytes - flow["delivered"] <= LATE
            assert state.delivered_bytes == pytest.approx(traced.acknowledged, abs=LATE)
            assert flow["srtt_us"] >= WAY_US
    # Four or five flows, eleven times; a reduction takes a round trip.
    assert len(followed) >= 44 and sum(followed) >= 0.8 * len(followed), followed
    replay.until()
    for name, guest in guests.items():
        until(f"{name}: all flows have left", lambda: not flows_of(daemon, name), 10)
        assert not guest.states()
        assert guest.told[wire.OP_REGISTER] == guest.told[wire.OP_LEAVE] == COUNTS[name]


@pytest.mark.parametrize("weight", [1, 3])
def test_vms_have_their_shares(trace, daemon, guests, weight):
    # The trace does not heed grants, so only until the daemon has seen that.
    replay, ratios = Replay(trace, guests), []
    for tenth in range(10, 21):
        replay.until(tenth / 10)
        ratios.append(granted(daemon, "one") / granted(daemon, "four"))
    # Four uncoupled flows would have four times what one has.
    assert median(ratios) == pytest.approx(weight, rel=0.3)
