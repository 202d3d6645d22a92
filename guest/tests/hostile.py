# SPDX-License-Identifier: GPL-2.0
"""A coupling device that misbehaves on demand, for tests of the Linux driver.

It is the other end of a guest's vhost-user socket (User Mode Linux, messages
and kicks in band) and grants what a test tells it to. It couples nothing: the
host's real program is ccc-vhost. What it does follows the phase that the guest
names in a file, read at each kick, while the guest stands still.
"""

import mmap
import os
import random
import socket
import struct
import threading
from collections import Counter
from pathlib import Path

OP_REGISTER, OP_UPDATE, OP_LEAVE, OP_RESCAN, OP_RELEASE = range(1, 6)
LENT_YES, LENT_BAD = 1, 2
EV_RESYNC, EV_POLICY, EV_RELEASE = 1, 2, 3
LINE_COUPLED = 1
ACCEPTED = 1
LEVEL_UNSET = 2**64 - 1
REPORT, LINE, GRANT, HEAD = 128, 64, 16, 64
PRIORITY_ONE = 256

GET_FEATURES, SET_MEM_TABLE, SET_NUM, SET_ADDR, SET_BASE, GET_BASE = 1, 5, 8, 9, 10, 11
GET_PROTOCOL, QUEUE_NUM, REQ_FD, GET_CONFIG, KICK = 15, 17, 21, 24, 35
CALL = 4
VERSION_1 = 1 << 32
PROTOCOL = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14


class Memory:
    """The guest's memory, by its physical addresses."""

    def __init__(self, payload: bytes, fds: list[int]) -> None:
        self.regions = []
        for i, fd in enumerate(fds):
            guest, size, user, offset = struct.unpack_from("<QQQQ", payload, 8 + 32 * i)
            self.regions.append((guest, user, size, mmap.mmap(fd, size + offset), offset))
            os.close(fd)

    def _find(self, address: int, which: int) -> tuple[mmap.mmap, int]:
        for region in self.regions:
            if region[which] <= address < region[which] + region[2]:
                return region[3], address - region[which] + region[4]
        raise ValueError(f"address {address:#x} is in no region")

    def guest_of(self, user: int) -> int:
        for guest, base, size, _, _ in self.regions:
            if base <= user < base + size:
                return user - base + guest
        raise ValueError(f"user address {user:#x} is in no region")

    def read(self, address: int, size: int) -> bytes:
        area, at = self._find(address, 0)
        return area[at : at + size]

    def write(self, address: int, data: bytes) -> None:
        area, at = self._find(address, 0)
        area[at : at + len(data)] = data


class Queue:
    """A split virtqueue."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.size = self.desc = self.avail = self.used = self.seen = self.done = 0

    def pop(self):
        """The next chain that the driver made available: its head and its parts."""
        (index,) = struct.unpack("<H", self.memory.read(self.avail + 2, 2))
        if index == self.seen & 0xFFFF:
            return None
        slot = self.avail + 4 + 2 * (self.seen % self.size)
        (head,) = struct.unpack("<H", self.memory.read(slot, 2))
        self.seen += 1
        parts, at = [], head
        while True:
            address, length, flags, following = struct.unpack(
                "<QIHH", self.memory.read(self.desc + 16 * at, 16)
            )
            parts.append((address, length))
            if not flags & 1:
                return head, parts
            at = following

    def push(self, head: int, length: int = 0) -> None:
        entry = struct.pack("<II", head, length)
        self.memory.write(self.used + 4 + 8 * (self.done % self.size), entry)
        self.done += 1
        self.memory.write(self.used + 2, struct.pack("<H", self.done & 0xFFFF))


class Chunk:
    """A part of the tables."""

    def __init__(self, memory: Memory, head: int, parts) -> None:
        (lend, _), (self.report, _), (self.head, _) = parts
        self.memory, self.chain = memory, head
        self.first, self.slots, self.lines, _ = struct.unpack("<IIII", memory.read(lend, 16))
        self.grant = self.head + HEAD + LINE * self.lines

    def set_status(self, status: int, instance: int) -> None:
        self.memory.write(self.head, struct.pack("<II", status, instance))


class Report:
    """What the guest says of a flow."""

    def __init__(self, raw: bytes) -> None:
        self.seq, self.state, self.flags, self.priority = struct.unpack_from("<IBBH", raw, 0)
        self.acked, self.delivered, self.grown = struct.unpack_from("<QQI", raw, 8)
        self.events, self.timeouts, self.undos, self.beta = struct.unpack_from("<HHHH", raw, 28)
        self.event_epoch, self.cwnd = struct.unpack_from("<II", raw, 36)
        self.generation, self.family = struct.unpack_from("<IB", raw, 64)
        self.saddr, self.daddr = raw[80:96], raw[96:112]


class Device:
    """Misbehaves as `phase` says; the phases are the methods' names below."""

    def __init__(
        self,
        directory: Path,
        max_slots: int = 4096,
        stale_us: int = 0,
        revision: int = 1,
        features: int = 0,
    ) -> None:
        self.path = directory / "device"
        self.phase_file = directory / "phase"
        self.config = struct.pack("<IIII", revision, max_slots, 4, stale_us)
        self.features = features
        self.random = random.Random(1)
        self.ops: Counter[int] = Counter()
        self.reports: list[Report] = []
        self.chunks: dict[int, Chunk] = {}
        self.refuse_after: int | None = None
        self.refusals = 0
        self.level = LEVEL_UNSET
        self.window = 40 * 1448
        self.line_flags, self.line_number, self.seq, self.epoch = LINE_COUPLED, 0, 0, 1
        self.phase = ""
        self.error: BaseException | None = None
        self.queues: dict[int, Queue] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    # ---- what it does ------------------------------------------------------

    def enter(self, phase: str) -> None:
        """Once at the first kick in a phase."""
        name, _, value = phase.partition("=")
        self.level, self.line_flags, self.line_number = LEVEL_UNSET, LINE_COUPLED, 0
        if name == "level":
            self.level = int(value)
        elif name == "window":
            self.window = int(value)
        elif name == "line":
            self.line_number = int(value)
        elif name == "reduce":
            self.window //= 2
            self.epoch += 1
        elif name == "release":
            self.event(EV_RELEASE, int(value))
        elif name == "event":
            self.event(int(value), 0)
        elif name == "accept":
            self.refuse_after = None
        self.write_line(torn=name == "torn")
        for chunk in self.chunks.values():
            for slot in range(chunk.slots):
                self.look(chunk.first + slot)

    def kicked(self, queue: int) -> None:
        phase = self.phase_file.read_text() if self.phase_file.exists() else ""
        if phase != self.phase:
            self.phase = phase
            self.enter(phase)
        if queue == 0:
            self.take_chunks()
        elif queue == 1 and self.phase != "stall":
            self.take_messages()
        if self.phase == "anything":
            self.write_anything()

    def take_chunks(self) -> None:
        while chain := self.queues[0].pop():
            chunk = Chunk(self.queues[0].memory, *chain)
            bad = self.refuse_after is not None and chunk.first >= self.refuse_after
            if bad:
                self.refusals += 1
                chunk.set_status(LENT_BAD, 1)
                self.queues[0].push(chunk.chain)
                self.call(0)
                continue
            self.chunks[chunk.first] = chunk
            if chunk.first == 0:
                self.write_line()
            chunk.set_status(LENT_YES, 1)

    def take_messages(self) -> None:
        while chain := self.queues[1].pop():
            head, ((address, _),) = chain
            op, _, slot, _, _ = struct.unpack("<HHIII", self.queues[1].memory.read(address, 16))
            self.ops[op] += 1
            if op == OP_RELEASE:
                self.release(slot)
            elif op == OP_RESCAN:
                for chunk in self.chunks.values():
                    for i in range(chunk.slots):
                        self.look(chunk.first + i)
            else:
                self.look(slot)
            self.queues[1].push(head)

    def look(self, slot: int) -> None:
        """Accepts whatever is in the slot."""
        for chunk in self.chunks.values():
            if chunk.first <= slot < chunk.first + chunk.slots:
                break
        else:
            return
        index = slot - chunk.first
        report = Report(chunk.memory.read(chunk.report + REPORT * index, REPORT))
        if report.generation:
            self.reports.append(report)
        flags = ACCEPTED if report.state else 0
        entry = struct.pack("<IHHQ", report.generation, self.line_number, flags, 2**64 - 1)
        chunk.memory.write(chunk.grant + GRANT * index, entry)

    def write_line(self, torn: bool = False) -> None:
        if 0 not in self.chunks:
            return
        chunk = self.chunks[0]
        level = self.level
        if level == LEVEL_UNSET:
            level = (self.window << 32) // PRIORITY_ONE
        self.seq += 1 if torn else 2
        line = struct.pack("<IIIIQQI", self.seq, self.epoch, self.line_flags, 0, level, level, 1)
        chunk.memory.write(chunk.head + HEAD, line)
        # The next one is whole again.
        self.seq += self.seq & 1

    def anything(self, bits: int) -> int:
        """Any number of so many bits, often at one of the ends."""
        end = 1 << bits
        ends = (0, 1, 2, end - 1, end - 2, end >> 1, 1 << self.random.randrange(bits))
        if self.random.random() < 0.5:
            return self.random.choice(ends)
        return self.random.randrange(end) >> self.random.randrange(bits)

    def write_anything(self) -> None:
        """Lines and grants of whatever content, but coupled most of the time."""
        if 0 not in self.chunks:
            return
        first = self.chunks[0]
        for line in range(first.lines):
            flags = self.random.randrange(8) | (self.random.random() < 0.8)
            content = struct.pack(
                "<IIIIQQI", self.seq, self.anything(32), flags, self.anything(32),
                self.anything(64), self.anything(64), 1,
            )  # fmt: skip
            first.memory.write(first.head + HEAD + LINE * line, content)
        for chunk in self.chunks.values():
            for slot in range(chunk.slots):
                at = chunk.report + REPORT * slot
                (generation,) = struct.unpack("<I", chunk.memory.read(at + 64, 4))
                line = self.random.randrange(first.lines)
                entry = struct.pack("<IHHQ", generation, line, ACCEPTED, self.anything(64))
                chunk.memory.write(chunk.grant + GRANT * slot, entry)

    def release(self, first: int) -> None:
        chunk = self.chunks.pop(first, None)
        if chunk:
            self.queues[0].push(chunk.chain)
            self.call(0)

    def event(self, kind: int, value: int) -> None:
        chain = self.queues[2].pop()
        assert chain, "no buffer on the event queue"
        head, ((address, _),) = chain
        self.queues[2].memory.write(address, struct.pack("<HHI", kind, 0, value))
        self.queues[2].push(head, 8)
        self.call(2)

    def call(self, queue: int) -> None:
        self._requests.sendall(struct.pack("<IIIII", CALL, 1, 8, queue, 0))

    # ---- the protocol ------------------------------------------------------

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
            while self._message(connection):
                pass
        except ConnectionError:
            pass
        except BaseException as error:  # for the test to see
            self.error = error
            connection.close()

    def _message(self, connection: socket.socket) -> bool:
        data, fds, _, _ = socket.recv_fds(connection, 12, 8)
        if len(data) < 12:
            return False
        request, flags, size = struct.unpack("<III", data)
        payload = b""
        while len(payload) < size:
            part, more, _, _ = socket.recv_fds(connection, size - len(payload), 8)
            payload += part
            fds += more
        reply = self._handle(request, payload, fds)
        if reply is None and flags & 8:
            reply = struct.pack("<Q", 0)
        if reply is not None:
            connection.sendall(struct.pack("<III", request, 5, len(reply)) + reply)
        return True

    def _handle(self, request: int, payload: bytes, fds: list[int]) -> bytes | None:
        if request == GET_FEATURES:
            return struct.pack("<Q", VERSION_1 | 1 << 30 | self.features)
        if request == GET_PROTOCOL:
            return struct.pack("<Q", PROTOCOL)
        if request == QUEUE_NUM:
            return struct.pack("<Q", 3)
        if request == REQ_FD:
            self._requests = socket.socket(fileno=fds[0])
        elif request == GET_CONFIG:
            offset, size, _ = struct.unpack_from("<III", payload)
            return payload[:12] + self.config[offset : offset + size].ljust(size, b"\0")
        elif request == SET_MEM_TABLE:
            self._memory = Memory(payload, fds)
            self.queues.clear()
            self.chunks.clear()
        elif request == SET_NUM:
            index, number = struct.unpack("<II", payload)
            queue = self.queues[index] = Queue(self._memory)
            queue.size = number
        elif request == SET_ADDR:
            index, _, desc, used, avail, _ = struct.unpack("<IIQQQQ", payload)
            queue = self.queues[index]
            queue.desc, queue.used, queue.avail = map(self._memory.guest_of, (desc, used, avail))
        elif request == GET_BASE:
            return payload
        elif request == KICK:
            self.kicked(struct.unpack_from("<I", payload)[0])
        return None
