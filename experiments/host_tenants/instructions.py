# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Instructions that an acknowledgement costs: those that the kernel's machine code of the program executes
in an emulated processor, for a flow that is coupled and whose window is what it is granted.

Both programs are those that run in this kernel; the socket and the table are made here.
"""

import re
import struct
from dataclasses import dataclass
from statistics import median
from typing import Any

from .btf import KERNEL, Types, types
from .emulate import Processor, machine_code

_SOCK, _NET = 0xFFFF_8880_0100_0000, 0xFFFF_8880_0200_0000
# Of which the value begins with a page, as in the kernel.
_TABLE = 0xFFFF_C900_0100_0000
MSS, WINDOW, ACKED, RTT_US = 1448, 140, 2, 30_000
_SLOT, _GENERATION, _ID = 3, 7, 9
# Of virtio_ccc.h: shares by rate, as groups have them by default.
_COUPLED, _RATE, _PRIORITY_ONE = 1, 4, 256
# Until its averages have settled, and what is counted then.
_WARM, _ACKS = 3000, 2000
# What a socket knows, struct ccc_sock in bpf/flow.h, of which there is no type information; behind CUBIC's.
_KNOWN, _INNER_BYTES = struct.Struct("<QQIIIBBBBBB2xI"), 64
_LEVELS = ("level", "ssthresh_level")
_FIELDS = (
    "table_id", "look_us", "tenant", "slot", "generation", "cubic", "sender", "rated", "watched", "settled", "timed",
    "parked",
)  # fmt: skip
# Those of TCP's calls that are for each ACK, in their order.
_OF_ACK = ("in_ack_event", "cong_avoid", "min_tso_segs")


@dataclass
class Place:
    """A structure in the emulated memory."""

    processor: Processor
    types: Types
    kind: str
    address: int

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            bits, width = self.types.offset(self.kind, name)
            begin, length = self.address + bits // 8, (bits % 8 + width + 7) // 8
            word = int.from_bytes(self.processor.read(begin, length), "little")
            mask = ((1 << width) - 1) << bits % 8
            word = word & ~mask | (value << bits % 8 & mask)
            self.processor.write(begin, word.to_bytes(length, "little"))

    def get(self, name: str) -> int:
        bits, width = self.types.offset(self.kind, name)
        length = (bits % 8 + width + 7) // 8
        word = int.from_bytes(self.processor.read(self.address + bits // 8, length), "little")
        return word >> bits % 8 & (1 << width) - 1


class Flow:
    """One that the device has accepted."""

    def __init__(self, programs: dict[str, int]) -> None:
        self.processor = Processor()
        kernel, ours = types("file", str(KERNEL)), types("prog", "id", str(programs["cong_avoid"]))
        self.starts = {name: self.processor.load(number) for name, number in programs.items()}
        self.sock = Place(self.processor, kernel, "tcp_sock", _SOCK)
        value = kernel.offset("bpf_array", "value")[0] // 8
        # The table of tenant 0.
        self.processor.write(tables(programs["cong_avoid"], value), (_TABLE - value).to_bytes(8, "little"))

        def at(struct: str, path: str) -> Place:
            return Place(self.processor, ours, struct, _TABLE + ours.offset("ccc_table", path)[0] // 8)

        self.control, self.status, self.line = (
            at("ccc_control", "control"),
            at("virtio_ccc_extent_status", "status"),
            at("virtio_ccc_grant_line", "line"),
        )
        self.grant, self.flow = at("virtio_ccc_slot_grant", "grant"), at("ccc_flow", "flow")
        self.grant.address += _SLOT * ours.size("virtio_ccc_slot_grant")
        self.flow.address += _SLOT * ours.size("ccc_flow")
        self._private = _SOCK + kernel.offset("tcp_sock", "inet_conn.icsk_ca_priv")[0] // 8 + _INNER_BYTES
        self.processor.give("tcp_reno_cong_avoid", self._reno)
        self.know(table_id=_ID, slot=_SLOT, generation=_GENERATION, sender=1)
        self._begin()

    def know(self, **changed: int) -> None:
        """Changes what the socket knows."""
        self.processor.write(self._private, _KNOWN.pack(*(self.known() | changed).values()))

    def known(self) -> dict[str, int]:
        """What the socket knows."""
        return dict(zip(_FIELDS, _KNOWN.unpack(self.processor.read(self._private, _KNOWN.size))))

    def call(self, name: str, *arguments: int) -> int:
        """Instructions of one of TCP's calls for the socket."""
        return self.processor.run(self.starts[name], _SOCK, *arguments)

    def _begin(self) -> None:
        self.sock.set(
            **{"inet_conn.icsk_inet.sk.__sk_common.skc_net.net": _NET},
            **{"inet_conn.icsk_ca_state": 0}, snd_cwnd=WINDOW, snd_cwnd_clamp=0xFFFFFFFF, snd_ssthresh=WINDOW,
            packets_out=WINDOW, max_packets_out=WINDOW, mss_cache=MSS, srtt_us=RTT_US * 8,
            tcp_mstamp=1_000_000, snd_nxt=WINDOW * MSS, write_seq=1 << 30, is_cwnd_limited=1, delivered=1000,
        )  # fmt: skip
        self.control.set(id=_ID, lease_us=1 << 60)
        self.status.set(status=1, instance=5)
        level = self._level(WINDOW)
        self.line.set(seq=2, epoch=1, flags=_COUPLED | _RATE, level=level, ssthresh_level=level)
        self.grant.set(generation=_GENERATION, flags=1)
        self.flow.set(generation=_GENERATION, slot=_SLOT)

    def _reno(self, acked: int) -> None:
        """tcp_reno_cong_avoid() in congestion avoidance."""
        if not self.sock.get("is_cwnd_limited"):
            return
        window, count = self.sock.get("snd_cwnd"), self.sock.get("snd_cwnd_cnt") + acked
        if self.sock.get("snd_cwnd_cnt") >= window:
            window, count = window + 1, acked
        self.sock.set(snd_cwnd=window + count // window, snd_cwnd_cnt=count % window)

    @staticmethod
    def _level(packets: float) -> int:
        return int(packets * MSS * (1 << 32)) // (_PRIORITY_ONE * RTT_US)

    def ack(self, line_changes: bool, rtt_us: int = RTT_US) -> int:
        """Instructions that it costs; the line with a little more for everybody, if it changes."""
        self.sock.set(
            # As many in a round trip as its window has.
            tcp_mstamp=self.sock.get("tcp_mstamp") + RTT_US * ACKED // WINDOW,
            delivered=self.sock.get("delivered") + ACKED,
            snd_una=self.sock.get("snd_una") + ACKED * MSS,
            snd_nxt=self.sock.get("snd_nxt") + ACKED * MSS,
            **{"rack.rtt_us": rtt_us},
        )
        if line_changes:
            self.line.set(seq=self.line.get("seq") + 2, **{name: _more(self.line.get(name)) for name in _LEVELS})
        arguments = {"in_ack_event": (0x8,), "cong_avoid": (1, ACKED), "min_tso_segs": ()}
        return sum(self.call(name, *arguments[name]) for name in _OF_ACK if name in self.starts)


def _more(level: int) -> int:
    return level + level // 100_000


def tables(program: int, value: int) -> int:
    """Where the kernel has the elements of the map of tables: what the program first adds their offset to."""
    code = b"".join(machine_code(program).values())
    added = re.search(rb"\x48\xbf(.{8})\x48\x81\xc7" + re.escape(struct.pack("<I", value)), code, re.S)
    if not added:
        raise RuntimeError("the program looks no table up as expected of this kernel's compiler")
    return int.from_bytes(added[1], "little") + value


def count(ours: dict[str, int], plain: int) -> dict[str, Any]:
    """Instructions of the least BPF Reno, and of ours where no message is due, while the line stays and where it
    changes before each ACK; and of those that send one."""
    flow = Flow(ours)
    for _ in range(_WARM):
        flow.ack(False)
    quiet, _ = _measured(flow, False)
    # The device answers each message with another line, which the next finds.
    changed, telling = _measured(flow, True)
    if not flow.flow.get("grant.coupled"):
        raise RuntimeError("the flow that is made up is not coupled, as the program has it")
    reno = Processor()
    least = reno.run(reno.load(plain), _SOCK, 1, ACKED)
    return {"reno": least, "quiet": _spread(quiet), "line changes": _spread(changed), "message": _spread(telling)}


def _measured(flow: Flow, line_changes: bool) -> tuple[list[int], list[int]]:
    """What ACKs cost that send no message, and that do."""
    silent, telling = [], []
    for _ in range(_ACKS):
        told = flow.flow.get("report.notified_us")
        cost = flow.ack(line_changes)
        (silent if flow.flow.get("report.notified_us") == told else telling).append(cost)
    return silent, telling


def _spread(counts: list[int]) -> dict[str, float]:
    return {"mean": sum(counts) / len(counts), "least": min(counts), "median": median(counts), "most": max(counts)}
