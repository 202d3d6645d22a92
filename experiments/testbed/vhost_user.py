# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The back end of a vhost-user device in Python, for devices that misbehave in tests.

It trusts its front end and knows no more of the protocol than User Mode Linux and QEMU
need (QEMU's docs/interop/vhost-user.rst); the host's real program is ccc-vhost."""

import contextlib
import mmap
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

HEADER = struct.Struct("<III")
FLAG_REPLY, FLAG_NEED_REPLY, VERSION = 4, 8, 1


class Request(IntEnum):
    """Messages from the front end."""

    GET_FEATURES = 1
    SET_FEATURES = 2
    SET_OWNER = 3
    SET_MEM_TABLE = 5
    SET_VRING_NUM = 8
    SET_VRING_ADDR = 9
    SET_VRING_BASE = 10
    GET_VRING_BASE = 11
    SET_VRING_KICK = 12
    SET_VRING_CALL = 13
    GET_PROTOCOL_FEATURES = 15
    SET_PROTOCOL_FEATURES = 16
    GET_QUEUE_NUM = 17
    SET_VRING_ENABLE = 18
    SET_BACKEND_REQ_FD = 21
    GET_CONFIG = 24
    VRING_KICK = 35


# The message to the front end.
BACKEND_VRING_CALL = 4
# Device features: VIRTIO 6, and vhost-user's own.
F_INDIRECT_DESC, F_EVENT_IDX, F_PROTOCOL_FEATURES, F_VERSION_1 = 1 << 28, 1 << 29, 1 << 30, 1 << 32
# Protocol features
P_MQ, P_REPLY_ACK, P_BACKEND_REQ, P_CONFIG, P_INBAND_NOTIFICATIONS = 1 << 0, 1 << 3, 1 << 5, 1 << 9, 1 << 14

_U64 = struct.Struct("<Q")
_VRING_STATE = struct.Struct("<II")
_VRING_ADDR = struct.Struct("<IIQQQQ")
_CONFIG = struct.Struct("<III")
_REGION = struct.Struct("<QQQQ")
_INVALID_FD = 1 << 8
_MAX_FDS = 32
# VIRTIO 2.7: descriptors, and the rings' index fields behind their flags.
_DESCRIPTOR = struct.Struct("<QIHH")
_DESC_F_NEXT = 1
_USED_ELEMENT = struct.Struct("<II")
_U16 = struct.Struct("<H")
_INDEX, _RING = 2, 4


@dataclass(frozen=True)
class _Region:
    guest: int
    size: int
    user: int
    offset: int
    area: mmap.mmap


class GuestMemory:
    """The guest's memory, by its physical addresses."""

    def __init__(self, payload: bytes, fds: list[int]) -> None:
        self._regions = []
        for number, fd in enumerate(fds):
            guest, size, user, offset = _REGION.unpack_from(payload, 8 + _REGION.size * number)
            self._regions.append(_Region(guest, size, user, offset, mmap.mmap(fd, size + offset)))
            os.close(fd)

    def guest_address(self, user: int) -> int:
        """Of an address in the front end's own space."""
        for region in self._regions:
            if region.user <= user < region.user + region.size:
                return user - region.user + region.guest
        raise ValueError(f"user address {user:#x} is in no memory region")

    def read(self, address: int, size: int) -> bytes:
        area, at = self._place(address)
        return area[at : at + size]

    def write(self, address: int, data: bytes) -> None:
        area, at = self._place(address)
        area[at : at + len(data)] = data

    def _place(self, address: int) -> tuple[mmap.mmap, int]:
        for region in self._regions:
            if region.guest <= address < region.guest + region.size:
                return region.area, address - region.guest + region.offset
        raise ValueError(f"address {address:#x} is in no memory region")


@dataclass(frozen=True)
class Chain:
    """A descriptor chain: its head, and address and length of each descriptor."""

    head: int
    buffers: list[tuple[int, int]]


class Virtqueue:
    """The device's side of a split virtqueue (VIRTIO 2.7)."""

    def __init__(self, memory: GuestMemory, size: int) -> None:
        self._memory = memory
        self.size = size
        self.descriptors = self.available = self.used = 0
        self.next_available = self.next_used = 0

    def pop(self) -> Chain | None:
        """The next chain that the driver made available."""
        if self._u16(self.available + _INDEX) == self.next_available & 0xFFFF:
            return None
        head = self._u16(self.available + _RING + _U16.size * (self.next_available % self.size))
        self.next_available += 1
        buffers, index = [], head
        while True:
            at = self.descriptors + _DESCRIPTOR.size * index
            address, length, flags, index = _DESCRIPTOR.unpack(self._memory.read(at, _DESCRIPTOR.size))
            buffers.append((address, length))
            if not flags & _DESC_F_NEXT:
                return Chain(head, buffers)

    def add_used(self, head: int, length: int = 0) -> None:
        """Returns a chain to the driver."""
        at = self.used + _RING + _USED_ELEMENT.size * (self.next_used % self.size)
        self._memory.write(at, _USED_ELEMENT.pack(head, length))
        self.advance_used(1)

    def advance_used(self, count: int) -> None:
        """Moves the used index, whatever the ring has there."""
        self.next_used += count
        self._memory.write(self.used + _INDEX, _U16.pack(self.next_used & 0xFFFF))

    def _u16(self, address: int) -> int:
        return int(_U16.unpack(self._memory.read(address, _U16.size))[0])


class Server:
    """Serves connections to a socket, one after the other in a thread, until it is closed."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]) -> None:
        # For the test to see.
        self.error: BaseException | None = None
        self._serve = serve
        self._closing = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._closing = True
        # Wakes accept(), unless the thread has failed and closed it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        try:
            while True:
                connection = self._listener.accept()[0]
                with connection:
                    self._serve(connection)
        except BaseException as error:
            if not self._closing:
                # A front end that connects again would wait for an answer for ever.
                self._listener.close()
                self.error = error


class BackEnd:
    """The protocol's side of a device with three virtqueues, for one front end.

    A device is a subclass, which says what its features and its configuration space are,
    and what it does when it is `kicked` in band, and when it `forgets` what is in memory."""

    features = F_VERSION_1 | F_PROTOCOL_FEATURES
    protocol_features = P_REPLY_ACK | P_CONFIG
    queue_count = 3

    def __init__(self, config: bytes) -> None:
        self._config = config
        self.memory: GuestMemory | None = None
        self.queues: dict[int, Virtqueue] = {}
        self.kicks: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        self._backend_channel: socket.socket | None = None

    def kicked(self, queue: int) -> None:
        """The front end stands still until this returns."""

    def forget(self) -> None:
        """The queues have stopped."""

    def call(self, queue: int) -> None:
        """Interrupts the driver."""
        if self._backend_channel:
            message = HEADER.pack(BACKEND_VRING_CALL, VERSION, _VRING_STATE.size) + _VRING_STATE.pack(queue, 0)
            self._backend_channel.sendall(message)
        elif queue in self._calls:
            os.write(self._calls[queue], _U64.pack(1))

    def close(self) -> None:
        """Closes what came over the connection."""
        for fd in (*self.kicks.values(), *self._calls.values()):
            os.close(fd)

    def receive(self, connection: socket.socket) -> bool:
        """Handles the front end's next message; false when it has gone."""
        message = receive_message(connection)
        if message is None:
            return False
        request, flags, payload, fds = message
        reply = self._reply(request, payload)
        if reply is None:
            self._take(request, payload, fds)
            reply = _U64.pack(0) if flags & FLAG_NEED_REPLY else None
        if reply is not None:
            connection.sendall(HEADER.pack(request, VERSION | FLAG_REPLY, len(reply)) + reply)
        return True

    def _reply(self, request: int, payload: bytes) -> bytes | None:
        """The answer to a question."""
        match request:
            case Request.GET_FEATURES:
                return _U64.pack(self.features)
            case Request.GET_PROTOCOL_FEATURES:
                return _U64.pack(self.protocol_features)
            case Request.GET_QUEUE_NUM:
                return _U64.pack(self.queue_count)
            case Request.GET_CONFIG:
                offset, size, _ = _CONFIG.unpack_from(payload)
                return payload[: _CONFIG.size] + self._config[offset : offset + size].ljust(size, b"\0")
            case Request.GET_VRING_BASE:
                return self._stop(payload)
        return None

    def _stop(self, payload: bytes) -> bytes:
        (index, _) = _VRING_STATE.unpack_from(payload)
        queue = self.queues.pop(index, None)
        # The front end clears it once it has the answer; who read it then would fail.
        kick = self.kicks.pop(index, None)
        if kick is not None:
            os.close(kick)
        self.forget()
        return _VRING_STATE.pack(index, queue.next_available & 0xFFFF if queue else 0)

    def _take(self, request: int, payload: bytes, fds: list[int]) -> None:
        """What the front end gives or tells."""
        match request:
            case Request.SET_MEM_TABLE:
                self.memory = GuestMemory(payload, fds)
                self.queues.clear()
                self.forget()
            case Request.SET_VRING_NUM:
                assert self.memory
                index, size = _VRING_STATE.unpack(payload)
                self.queues[index] = Virtqueue(self.memory, size)
            case Request.SET_VRING_ADDR:
                self._place(payload)
            case Request.SET_VRING_BASE:
                index, base = _VRING_STATE.unpack(payload)
                self.queues[index].next_available = self.queues[index].next_used = base
            case Request.SET_VRING_KICK:
                _keep(self.kicks, payload, fds)
            case Request.SET_VRING_CALL:
                _keep(self._calls, payload, fds)
            case Request.SET_BACKEND_REQ_FD:
                self._backend_channel = socket.socket(fileno=fds[0])
            case Request.VRING_KICK:
                self.kicked(_VRING_STATE.unpack_from(payload)[0])
            case _:
                for fd in fds:
                    os.close(fd)

    def _place(self, payload: bytes) -> None:
        assert self.memory
        index, _, descriptors, used, available, _ = _VRING_ADDR.unpack(payload)
        queue = self.queues[index]
        addresses = map(self.memory.guest_address, (descriptors, used, available))
        queue.descriptors, queue.used, queue.available = addresses


def _keep(where: dict[int, int], payload: bytes, fds: list[int]) -> None:
    """The file descriptor of a queue in the place of the one before."""
    (value,) = _U64.unpack(payload)
    old = where.pop(value & 0xFF, None)
    if old is not None:
        os.close(old)
    if not value & _INVALID_FD:
        where[value & 0xFF] = fds[0]


def receive_message(source: socket.socket) -> tuple[int, int, bytes, list[int]] | None:
    """Request, flags, payload and file descriptors; nothing at the connection's end."""
    # The descriptors come with the first byte.
    data, fds, _, _ = socket.recv_fds(source, HEADER.size, _MAX_FDS)
    if not data:
        return None
    data += _exactly(source, HEADER.size - len(data))
    request, flags, size = HEADER.unpack(data)
    return request, flags, _exactly(source, size), fds


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the connection ends in the middle of a message")
        data += part
    return data
