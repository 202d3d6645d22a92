# SPDX-License-Identifier: GPL-2.0
"""A coupling device that does everything a device should not, at random.

It is the other end of QEMU's vhost-user socket, for any number of connections
one after the other. All that is random comes from a seed; when the guest looks
does not, so a seed repeats what the device does and not what becomes of it.
"""

import contextlib
import os
import random
import select
import socket
import struct
import sys
import threading
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from hostile import (  # noqa: E402
    ACCEPTED,
    EV_RELEASE,
    GRANT,
    HEAD,
    LENT_BAD,
    LENT_YES,
    LINE,
    OP_RELEASE,
    REPORT,
    Chunk,
    Memory,
    Queue,
)

GET_FEATURES, SET_MEM_TABLE, SET_NUM, SET_ADDR, SET_BASE, GET_BASE = 1, 5, 8, 9, 10, 11
SET_KICK, SET_CALL, GET_PROTOCOL, QUEUE_NUM, GET_CONFIG = 12, 13, 15, 17, 24
# Indirect descriptors and the event index are what QEMU wants of a back end; the
# guest is not offered them.
FEATURES = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 3
# REPLY_ACK, CONFIG
PROTOCOL = 1 << 3 | 1 << 9
NO_FD = 1 << 8
TABLE, DOORBELL, EVENT = range(3)

U64 = [0, 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
U32 = [0, 1, 2, 2**15, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
# How long one mood lasts, and how often the device acts in it, in seconds.
MOOD, TICK = 1.0, 0.002


class RandomDevice:
    """Until it is closed, or QEMU has gone for good."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.did: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._closing = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._closing = True
        # Wakes accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        try:
            while True:
                self._serve(self._listener.accept()[0])
        except BaseException as error:  # for the test to see
            if not self._closing:
                self.error = error

    def _serve(self, connection: socket.socket) -> None:
        self.did["connections"] += 1
        # QEMU may hang up at any time.
        with connection, contextlib.suppress(ConnectionError):
            Session(connection, self.random, self.did).serve()


class Session:
    """One connection: the protocol's side, and what is done to the guest."""

    def __init__(self, connection: socket.socket, choice: random.Random, did: Counter) -> None:
        self.connection, self.random, self.did = connection, choice, did
        self.memory: Memory | None = None
        self.queues: dict[int, Queue] = {}
        self.kicks: dict[int, int] = {}
        self.calls: dict[int, int] = {}
        self.chunks: dict[int, Chunk] = {}
        self.seq = 0
        self.config = struct.pack(
            "<IIII",
            1,
            choice.choice([1, 2, 7, 64, 300, 4096, 2**32 - 1]),
            choice.choice([1, 2, 4, 16, 2**32 - 1]),
            choice.choice([0, 1, 1000, 10**6, 2**32 - 1]),
        )
        self.mood, self.ticks = self.plain, 0
        self.moods = [
            self.plain, self.plain, self.huge, self.flicker, self.flicker, self.scatter,
            self.refuse, self.release, self.events, self.silent,
        ]

    # ---- the protocol ------------------------------------------------------

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self.connection, *self.kicks.values()], [], [], TICK)
            if self.connection in ready and not self._message():
                break
            for fd in ready:
                if fd is not self.connection and fd in self.kicks.values():
                    os.read(fd, 8)
            if not ready or self.random.random() < 0.2:
                if not self._act():
                    break
        for fd in (*self.kicks.values(), *self.calls.values()):
            os.close(fd)

    def _message(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.connection, 12, 8)
        if len(data) < 12:
            return False
        request, flags, size = struct.unpack("<III", data)
        payload = b""
        while len(payload) < size:
            part, more, _, _ = socket.recv_fds(self.connection, size - len(payload), 8)
            payload, fds = payload + part, fds + more
        reply = self._handle(request, payload, fds)
        if reply is None and flags & 8:
            reply = struct.pack("<Q", 0)
        if reply is not None:
            self.connection.sendall(struct.pack("<III", request, 5, len(reply)) + reply)
        return True

    def _handle(self, request: int, payload: bytes, fds: list[int]) -> bytes | None:
        if request == GET_FEATURES:
            return struct.pack("<Q", FEATURES)
        if request == GET_PROTOCOL:
            return struct.pack("<Q", PROTOCOL)
        if request == QUEUE_NUM:
            return struct.pack("<Q", 3)
        if request == GET_CONFIG:
            offset, size, _ = struct.unpack_from("<III", payload)
            return payload[:12] + self.config[offset : offset + size].ljust(size, b"\0")
        if request == GET_BASE:
            return self._stop(payload)
        if request == SET_MEM_TABLE:
            self.memory = Memory(payload, fds)
            self.queues.clear()
            self.chunks.clear()
        elif request == SET_NUM:
            index, number = struct.unpack("<II", payload)
            self.queues[index] = Queue(self.memory)
            self.queues[index].size = number
        elif request == SET_ADDR:
            self._place(payload)
        elif request == SET_BASE:
            index, base = struct.unpack("<II", payload)
            self.queues[index].seen = self.queues[index].done = base
        elif request == SET_KICK:
            self._keep(self.kicks, payload, fds)
        elif request == SET_CALL:
            self._keep(self.calls, payload, fds)
        else:
            for fd in fds:
                os.close(fd)
        return None

    def _stop(self, payload: bytes) -> bytes:
        index = struct.unpack_from("<I", payload)[0]
        queue = self.queues.pop(index, None)
        self.chunks.clear()
        return struct.pack("<II", index, queue.seen & 0xFFFF if queue else 0)

    def _place(self, payload: bytes) -> None:
        index, _, desc, used, avail, _ = struct.unpack("<IIQQQQ", payload)
        queue = self.queues[index]
        queue.desc, queue.used, queue.avail = map(self.memory.guest_of, (desc, used, avail))

    def _keep(self, where: dict[int, int], payload: bytes, fds: list[int]) -> None:
        (value,) = struct.unpack("<Q", payload)
        old = where.pop(value & 0xFF, None)
        if old is not None:
            os.close(old)
        if not value & NO_FD:
            where[value & 0xFF] = fds[0]

    # ---- what it does ------------------------------------------------------

    def _act(self) -> bool:
        """One turn; false ends the connection."""
        if not all(index in self.queues and self.queues[index].avail for index in range(3)):
            return True
        self.ticks += 1
        if self.ticks * TICK > MOOD:
            self.ticks = 0
            self.mood = self.random.choice(self.moods)
            self.did[self.mood.__name__] += 1
            if self.random.random() < 0.05:
                self.did["hang-ups"] += 1
                return False
            if self.random.random() < 0.1:
                self.garbage()
        try:
            self.take_chunks()
            if self.mood != self.silent:
                self.take_messages()
            self.mood()
        except (ValueError, struct.error, IndexError):
            # The rings are as broken as this device has made them.
            self.did["lost its way"] += 1
        return True

    def call(self, index: int) -> None:
        if index in self.calls:
            os.write(self.calls[index], struct.pack("<Q", 1))

    def take_chunks(self) -> None:
        for _ in range(64):
            chain = self.queues[TABLE].pop()
            if not chain:
                return
            chunk = Chunk(self.memory, *chain)
            if chunk.first and self.mood == self.refuse:
                chunk.set_status(self.random.choice([LENT_BAD, 77]), 1)
                self.queues[TABLE].push(chunk.chain)
                self.call(TABLE)
                continue
            self.chunks[chunk.first] = chunk
            chunk.set_status(LENT_YES, 1)
            self.did["chunks"] += 1

    def take_messages(self) -> None:
        for _ in range(256):
            chain = self.queues[DOORBELL].pop()
            if not chain:
                return
            head, ((address, _),) = chain
            op, _, slot, _, _ = struct.unpack("<HHIII", self.memory.read(address, 16))
            self.did["messages"] += 1
            if op == OP_RELEASE:
                self.give_back(slot)
            self.queues[DOORBELL].push(head, self.random.choice([0, 0, 16, 2**32 - 1]))

    def give_back(self, first: int) -> None:
        chunk = self.chunks.pop(first, None)
        if chunk:
            self.queues[TABLE].push(chunk.chain)
            self.call(TABLE)

    def some_chunk(self) -> Chunk | None:
        return self.random.choice(list(self.chunks.values())) if self.chunks else None

    def line(self, n: int, level: int, ssthresh: int, flags: int, seq: int, epoch: int) -> None:
        chunk = self.chunks.get(0)
        if chunk and n < chunk.lines:
            phase = self.random.choice(U32)
            data = struct.pack("<IIIIQQI", seq, epoch, flags, phase, level, ssthresh, 1)
            self.memory.write(chunk.head + HEAD + LINE * n, data)
            self.did["lines"] += 1

    def next_seq(self) -> int:
        self.seq = (self.seq + 2) & 0xFFFFFFFF
        return self.seq

    def accept_all(self, line: int = 0, cap: int = 2**64 - 1) -> None:
        for chunk in self.chunks.values():
            for n in range(min(chunk.slots, 64)):
                raw = chunk.memory.read(chunk.report + REPORT * n, REPORT)
                (generation,) = struct.unpack_from("<I", raw, 64)
                if generation:
                    entry = struct.pack("<IHHQ", generation, line, ACCEPTED, cap)
                    chunk.memory.write(chunk.grant + GRANT * n, entry)

    # ---- moods: so that each state is there for long enough to be used ------

    def plain(self) -> None:
        """A good device, so that flows have something to lose."""
        level = (self.random.choice([4, 40, 400]) * 1448 << 32) // 256
        self.accept_all()
        self.line(0, level, level, self.random.choice([1, 1, 3]), self.next_seq(), self.ticks // 100)

    def huge(self) -> None:
        """Windows beyond all bounds, for flows whose own begin again and again."""
        self.accept_all()
        flags = self.random.choice([1, 1, 1, 0, 3, 5])
        level = self.random.choice([2**64 - 2, 2**63, 2**63 - 1, 2**62, 2**50])
        self.line(0, level, self.random.choice(U64), flags, self.next_seq(), self.ticks)

    def flicker(self) -> None:
        """Coupled, alone, tiny, huge, in turn."""
        self.accept_all(cap=self.random.choice([2**64 - 1, 2**64 - 1, 0, 1, 3000]))
        level = self.random.choice([*U64, self.random.getrandbits(64), self.random.getrandbits(36)])
        self.line(
            0, level, self.random.choice([level, *U64]), self.random.getrandbits(3),
            self.next_seq(), self.random.choice([self.ticks // 10, self.random.getrandbits(32)]),
        )

    def scatter(self) -> None:
        """Random words wherever the device may write."""
        chunk = self.some_chunk()
        if not chunk:
            return
        size = HEAD + LINE * chunk.lines + GRANT * chunk.slots
        for _ in range(8):
            at = self.random.randrange(8, size // 8) * 8
            word = self.random.choice([*U64, self.random.getrandbits(64)])
            self.memory.write(chunk.head + at, struct.pack("<Q", word))
        for n in range(min(chunk.lines, 16)):
            self.line(
                n,
                *(self.random.getrandbits(64) for _ in range(2)),
                *(self.random.getrandbits(32) for _ in range(3)),
            )
        self.accept_all(line=self.random.choice([0, 1, 3, 15, 16, 0xFFFF]))
        if self.random.random() < 0.05:
            chunk.set_status(self.random.choice([0, 1, 2, 3, 2**32 - 1]), self.random.getrandbits(32))

    def refuse(self) -> None:
        """Takes no more chunks."""
        self.plain()

    def release(self) -> None:
        """Takes chunks away, asked or not."""
        self.plain()
        if self.ticks % 50 == 0:
            chunk = self.some_chunk()
            if chunk and self.random.random() < 0.5:
                self.give_back(chunk.first)
            elif chunk:
                self.event(EV_RELEASE, chunk.first, 8)

    def events(self) -> None:
        """Events of every kind, known and unknown, short and long."""
        kind = self.random.choice([0, 1, 2, 3, 4, 0xFFFF])
        value = self.random.choice([0, 1, 256, 2**32 - 1])
        self.event(kind, value, self.random.choice([8, 8, 0, 7, 2**32 - 1]))

    def silent(self) -> None:
        """Answers nothing."""

    def event(self, kind: int, value: int, length: int) -> None:
        chain = self.queues[EVENT].pop()
        if not chain:
            return
        head, ((address, _),) = chain
        self.memory.write(address, struct.pack("<HHI", kind, 0, value))
        self.queues[EVENT].push(head, length)
        self.call(EVENT)
        self.did["events"] += 1

    def garbage(self) -> None:
        """Ends one queue: the driver finds an entry there that it never offered."""
        queue = self.queues[self.random.choice([TABLE, DOORBELL, EVENT])]
        if self.random.random() < 0.5:
            queue.push(self.random.choice([queue.size, 0xFFFF, 2**32 - 1, 0]), 2**32 - 1)
        else:
            queue.done += self.random.choice([2, queue.size, 1000, 40000])
            self.memory.write(queue.used + 2, struct.pack("<H", queue.done & 0xFFFF))
        for index in range(3):
            self.call(index)
        self.did["garbage"] += 1
