# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A front end of the daemon's in Python, which stands for QEMU and a driver: its guest's memory
is a file that this process writes, with one extent of tables in it."""

import ctypes
import mmap
import os
import socket
import struct
import time
from pathlib import Path

from . import virtio_ccc as wire
from .errors import require
from .vhost_user import (
    F_PROTOCOL_FEATURES,
    F_VERSION_1,
    FLAG_NEED_REPLY,
    FLAG_REPLY,
    HEADER,
    P_CONFIG,
    P_REPLY_ACK,
    VERSION,
)
from .vhost_user import Request as Ask
from .wait import TIMEOUT_S, until

# Where the guest's memory begins in its own addresses, and what is where in it.
_BASE = 0x10_0000
_QUEUE, _QUEUE_BYTES, _AVAIL, _USED, _BUFFERS = 256, 0x4000, 0x1000, 0x2000, 0x3000
_QUEUES = 2
_HEADER = _QUEUES * _QUEUE_BYTES
_REPORTS = _HEADER + 0x1000
_DESCRIPTOR = struct.Struct("<QIHH")
_NEXT, _WRITE = 1, 2


class FrontEnd:
    """A VM at the daemon, whose tables have so many slots and lines; its memory is a file, or has no name."""

    def __init__(self, path: Path, slots: int, lines: int, memory: Path | None = None) -> None:
        self.slots, self.lines = slots, lines
        self._status = _REPORTS + mmap.PAGESIZE * -(-slots * ctypes.sizeof(wire.Report) // mmap.PAGESIZE)
        self._line = self._status + ctypes.sizeof(wire.ExtentStatus)
        self._grant = self._line + lines * ctypes.sizeof(wire.GrantLine)
        size = mmap.PAGESIZE * -(-(self._grant + slots * ctypes.sizeof(wire.SlotGrant)) // mmap.PAGESIZE)
        self._file = os.open(memory, os.O_RDWR | os.O_CREAT) if memory else os.memfd_create("guest")
        os.ftruncate(self._file, size)
        self._memory = mmap.mmap(self._file, size)
        self._kick = os.eventfd(0)
        self._offered = 0
        self._stream = socket.socket(socket.AF_UNIX)
        self._stream.settimeout(TIMEOUT_S)
        self._stream.connect(str(path))
        self._agree()
        self._give_memory(size)
        self._offer_tables()
        for queue in range(_QUEUES):
            self._start(queue)
        status = wire.ExtentStatus.from_buffer(self._memory, self._status)
        until("the daemon accepts the tables", lambda: status.status == wire.EXTENT_ACCEPTED)

    def close(self) -> None:
        self._stream.close()
        os.close(self._kick)
        os.close(self._file)

    def address_of(self, what: str) -> int:
        """Where this process has its `report`, `status`, `line` or `grant` tables."""
        offset = {"report": _REPORTS, "status": self._status, "line": self._line, "grant": self._grant}[what]
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory, offset))

    def ring(self, op: int, slot: int, generation: int) -> None:
        """Sends a message to the daemon; waits for room."""
        end = time.monotonic() + TIMEOUT_S
        while (self._offered - self._used()) % 0x1_0000 >= _QUEUE:
            require(time.monotonic() < end, "the daemon takes no messages")
        place = self._offered % _QUEUE
        at = _QUEUE_BYTES * wire.VQ_DOORBELL
        buffer = at + _BUFFERS + 16 * place
        self._put(buffer, bytes(wire.Doorbell(op=op, slot=slot, generation=generation)))
        self._put(at + 16 * place, _DESCRIPTOR.pack(_BASE + buffer, ctypes.sizeof(wire.Doorbell), 0, 0))
        self._make_available(wire.VQ_DOORBELL, self._offered, place)
        self._offered += 1
        os.eventfd_write(self._kick, 1)

    def _used(self) -> int:
        (index,) = struct.unpack_from("<H", self._memory, _QUEUE_BYTES * wire.VQ_DOORBELL + _USED + 2)
        return int(index)

    def _put(self, offset: int, content: bytes) -> None:
        self._memory[offset : offset + len(content)] = content

    def _make_available(self, queue: int, index: int, head: int) -> None:
        avail = _QUEUE_BYTES * queue + _AVAIL
        self._put(avail + 4 + 2 * (index % _QUEUE), struct.pack("<H", head))
        self._put(avail + 2, struct.pack("<H", (index + 1) % 0x1_0000))

    def _tell(self, request: Ask, payload: bytes = b"", fds: tuple[int, ...] = (), flags: int = 0) -> None:
        socket.send_fds(self._stream, [HEADER.pack(request, VERSION | flags, len(payload)) + payload], fds)

    def _set(self, request: Ask, payload: bytes, fds: tuple[int, ...] = ()) -> None:
        """Has the daemon do something, and waits until it has."""
        self._tell(request, payload, fds, FLAG_NEED_REPLY)
        require(not any(self._answer(request)), f"{request.name}: the daemon refuses it; its log says why")

    def _ask(self, request: Ask, payload: bytes = b"") -> bytes:
        self._tell(request, payload)
        return self._answer(request)

    def _answer(self, request: Ask) -> bytes:
        answered, flags, size = HEADER.unpack(self._receive(HEADER.size))
        answer = self._receive(size)
        require(answered == request and bool(flags & FLAG_REPLY), f"{request.name}: an answer to {answered}")
        return answer

    def _receive(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            more = self._stream.recv(size - len(content))
            require(bool(more), "the daemon has closed the connection; its log says why")
            content += more
        return content

    def _agree(self) -> None:
        """On features, by which shares go by rate."""
        wanted = F_VERSION_1 | F_PROTOCOL_FEATURES | 1 << wire.F_RATE_SHARE
        self._tell(Ask.SET_OWNER)
        (offered,) = struct.unpack("<Q", self._ask(Ask.GET_FEATURES))
        require(offered & wanted == wanted, f"the daemon offers {offered:#x}, without {wanted & ~offered:#x}")
        self._ask(Ask.GET_PROTOCOL_FEATURES)
        # Answers to other messages are agreed on with it.
        self._tell(Ask.SET_PROTOCOL_FEATURES, struct.pack("<Q", P_REPLY_ACK | P_CONFIG))
        self._set(Ask.SET_FEATURES, struct.pack("<Q", wanted))
        size = ctypes.sizeof(wire.Config)
        answer = self._ask(Ask.GET_CONFIG, struct.pack("<III", 0, size, 0) + bytes(size))
        self.config = wire.Config.from_buffer_copy(answer[12:])

    def _give_memory(self, size: int) -> None:
        region = struct.pack("<QQQQ", _BASE, size, _BASE, 0)
        self._set(Ask.SET_MEM_TABLE, struct.pack("<II", 1, 0) + region, (self._file,))

    def _offer_tables(self) -> None:
        """The chain of the table's queue: header, reports, and what the daemon writes."""
        header = bytes(wire.Extent(first_slot=0, slots=self.slots, grant_lines=self.lines))
        self._put(_HEADER, header)
        written = self._grant - self._status + self.slots * ctypes.sizeof(wire.SlotGrant)
        pieces = [
            (_HEADER, len(header), _NEXT, 1),
            (_REPORTS, self.slots * ctypes.sizeof(wire.Report), _NEXT, 2),
            (self._status, written, _WRITE, 0),
        ]
        for index, (offset, size, flags, following) in enumerate(pieces):
            self._put(16 * index, _DESCRIPTOR.pack(_BASE + offset, size, flags, following))
        self._make_available(wire.VQ_TABLE, 0, 0)

    def _start(self, queue: int) -> None:
        at = _BASE + _QUEUE_BYTES * queue
        self._set(Ask.SET_VRING_NUM, struct.pack("<II", queue, _QUEUE))
        self._set(Ask.SET_VRING_BASE, struct.pack("<II", queue, 0))
        self._set(Ask.SET_VRING_ADDR, struct.pack("<IIQQQQ", queue, 0, at, at + _USED, at + _AVAIL, 0))
        kick = self._kick if queue == wire.VQ_DOORBELL else os.eventfd(0)
        self._set(Ask.SET_VRING_KICK, struct.pack("<Q", queue), (kick,))
        self._set(Ask.SET_VRING_ENABLE, struct.pack("<II", queue, 1))
