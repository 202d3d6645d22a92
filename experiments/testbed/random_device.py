# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A coupling device that does everything a device should not, at random.

It is the other end of QEMU's vhost-user socket, for any number of connections one after
the other.  All that is random comes from a seed; when the guest looks does not, so a seed
repeats what the device does and not what becomes of it."""

import contextlib
import os
import random
import select
import socket
import struct
from collections import Counter
from pathlib import Path

from . import virtio_ccc as wire
from .coupling_device import CouplingDevice, HeldExtent
from .vhost_user import F_EVENT_IDX, F_INDIRECT_DESC, Server

_QUEUES = (wire.VQ_TABLE, wire.VQ_DOORBELL, wire.VQ_EVENT)
_U64 = [0, 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
_U32 = [0, 1, 2, 2**15, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
# How long one mood lasts, and how often the device acts in it.
_MOOD_S, _TICK_S = 1.0, 0.002
# Slots of an extent that get a grant.
_GRANTS = 64


class RandomDevice:
    """The device, until it is closed or QEMU has gone for good."""

    def __init__(self, path: Path, seed: int, *, breaks_rings: bool = True) -> None:
        """Without `breaks_rings` it uses only what the driver has made available, for
        kernels that take a ring's word for that."""
        self.did: Counter[str] = Counter()
        self._random, self._breaks_rings = random.Random(seed), breaks_rings
        self._server = Server(path, self._serve)

    @property
    def error(self) -> BaseException | None:
        """Why the device itself failed."""
        return self._server.error

    def close(self) -> None:
        self._server.close()

    def _serve(self, connection: socket.socket) -> None:
        self.did["connections"] += 1
        # QEMU may hang up at any time.
        with (
            contextlib.suppress(ConnectionError),
            contextlib.closing(Session(connection, self._random, self.did, self._breaks_rings)) as session,
        ):
            session.serve()


class Session(CouplingDevice):
    """One connection, and what is done to the guest over it."""

    # Indirect descriptors and the event index are what QEMU wants of a back end; the guest
    # is not offered them.
    features = CouplingDevice.features | F_INDIRECT_DESC | F_EVENT_IDX | 1 << wire.F_RATE_SHARE | 1 << wire.F_SLOT_CAP

    def __init__(
        self, connection: socket.socket, choice: random.Random, did: Counter[str], breaks_rings: bool
    ) -> None:
        super().__init__(
            wire.Config(
                wire.REVISION,
                choice.choice([1, 2, 7, 64, 300, 4096, 2**32 - 1]),
                choice.choice([1, 2, 4, 16, 2**32 - 1]),
                choice.choice([0, 1, 1000, 10**6, 2**32 - 1]),
            ),
        )
        self._connection, self._random, self._did = connection, choice, did
        self._breaks_rings = breaks_rings
        self._seq = self._ticks = 0
        self._mood = self.plain
        self._moods = [
            *(self.plain, self.plain, self.huge, self.flicker, self.flicker, self.scatter),
            *(self.refusing, self.releasing, self.events, self.silent),
        ]

    def serve(self) -> None:
        """Until the front end, or the device, hangs up."""
        while True:
            socket_fd = self._connection.fileno()
            ready, _, _ = select.select([socket_fd, *self.kicks.values()], [], [], _TICK_S)
            # Kicks first: after an answer to GET_VRING_BASE they are the front end's.
            for fd in set(ready) - {socket_fd}:
                os.read(fd, 8)
            if socket_fd in ready and not self.receive(self._connection):
                return
            if (not ready or self._random.random() < 0.2) and not self._act():
                return

    def _act(self) -> bool:
        """One turn; false ends the connection."""
        if not all(index in self.queues and self.queues[index].available for index in _QUEUES):
            return True
        self._ticks += 1
        if self._ticks * _TICK_S > _MOOD_S and not self._change_mood():
            return False
        try:
            self._take_extents()
            if self._mood != self.silent:
                self._take_doorbells()
            self._mood()
        except (ValueError, struct.error, IndexError):
            # The rings are as broken as this device has made them.
            self._did["lost its way"] += 1
        return True

    def _change_mood(self) -> bool:
        self._ticks = 0
        self._mood = self._random.choice(self._moods)
        self._did[self._mood.__name__] += 1
        if self._random.random() < 0.05:
            self._did["hang-ups"] += 1
            return False
        if self._random.random() < 0.1 and self._breaks_rings:
            self._break_a_queue()
        return True

    def _take_extents(self) -> None:
        for _ in range(64):
            extent = self.next_extent()
            if not extent:
                return
            if extent.first_slot and self._mood == self.refusing:
                self.refuse(extent, self._random.choice([wire.EXTENT_REFUSED, 77]))
                continue
            self.accept(extent)
            self._did["extents"] += 1

    def _take_doorbells(self) -> None:
        for _ in range(256):
            taken = self.next_doorbell()
            if not taken:
                return
            head, doorbell = taken
            self._did["doorbells"] += 1
            if doorbell.op == wire.OP_RELEASE:
                self.release(doorbell.slot)
            self.queues[wire.VQ_DOORBELL].add_used(head, self._random.choice([0, 0, 16, 2**32 - 1]))

    def _some_extent(self) -> HeldExtent | None:
        return self._random.choice(list(self.extents.values())) if self.extents else None

    def _line(self, number: int, level: int, ssthresh_level: int, flags: int, seq: int, epoch: int) -> None:
        first = self.extents.get(0)
        if first and number < first.grant_lines:
            rounding_offset = self._random.choice(_U32)
            line = (seq, epoch, flags, rounding_offset, level, ssthresh_level, 1, 0, self._random.choice(_U64))
            first.set_line(number, wire.GrantLine(*line))
            self._did["lines"] += 1

    def _next_seq(self) -> int:
        self._seq = (self._seq + 2) & 0xFFFFFFFF
        return self._seq

    def _accept_flows(self, line: int = 0, cap_bytes: int = wire.CAP_NONE) -> None:
        for extent in self.extents.values():
            for number in range(min(extent.slots, _GRANTS)):
                if generation := extent.report(number).generation:
                    extent.grant(number, wire.SlotGrant(generation, line, wire.G_ACCEPTED, cap_bytes))

    # ---- moods: so that each state lasts long enough to be used ------------

    def plain(self) -> None:
        """A good device, so that flows have something to lose."""
        window_bytes = self._random.choice([4, 40, 400]) * 1448
        level = (window_bytes << wire.LEVEL_SHIFT) // wire.PRIORITY_ONE
        self._accept_flows()
        self._line(0, level, level, self._random.choice([1, 1, 3]), self._next_seq(), self._ticks // 100)

    def huge(self) -> None:
        """Windows beyond all bounds, for flows whose own begin again and again."""
        self._accept_flows()
        flags = self._random.choice([1, 1, 1, 0, 3, 5])
        level = self._random.choice([2**64 - 2, 2**63, 2**63 - 1, 2**62, 2**50])
        self._line(0, level, self._random.choice(_U64), flags, self._next_seq(), self._ticks)

    def flicker(self) -> None:
        """Coupled, alone, tiny, huge, in turn."""
        pick, bits = self._random.choice, self._random.getrandbits
        self._accept_flows(cap_bytes=pick([wire.CAP_NONE, wire.CAP_NONE, 0, 1, 3000]))
        level = pick([*_U64, bits(64), bits(36)])
        ssthresh_level, flags = pick([level, *_U64]), bits(3)
        self._line(0, level, ssthresh_level, flags, self._next_seq(), pick([self._ticks // 10, bits(32)]))

    def scatter(self) -> None:
        """Random words wherever the device may write."""
        extent = self._some_extent()
        if not extent:
            return
        for _ in range(8):
            at = self._random.randrange(8, extent.writable_bytes // 8) * 8
            word = self._random.choice([*_U64, self._random.getrandbits(64)])
            extent.memory.write(extent.status + at, struct.pack("<Q", word))
        for number in range(min(extent.grant_lines, 16)):
            self._line(number, *(self._random.getrandbits(bits) for bits in (64, 64, 32, 32, 32)))
        self._accept_flows(line=self._random.choice([0, 1, 3, 15, 16, 0xFFFF]))
        if self._random.random() < 0.05:
            extent.set_status(self._random.choice([0, 1, 2, 3, 2**32 - 1]), self._random.getrandbits(32))

    def refusing(self) -> None:
        """Accepts no more extents."""
        self.plain()

    def releasing(self) -> None:
        """Returns extents, asked or not."""
        self.plain()
        extent = self._some_extent() if self._ticks % 50 == 0 else None
        if extent and self._random.random() < 0.5:
            self.release(extent.first_slot)
        elif extent:
            self._event(wire.EV_RELEASE, extent.first_slot, 8)

    def events(self) -> None:
        """Events of every kind, known and unknown, short and long."""
        kind = self._random.choice([0, 1, 2, 3, 4, 0xFFFF])
        value = self._random.choice([0, 1, 256, 2**32 - 1])
        self._event(kind, value, self._random.choice([8, 8, 0, 7, 2**32 - 1]))

    def silent(self) -> None:
        """Answers nothing."""

    def _event(self, kind: int, value: int, length: int) -> None:
        self._did["events"] += self.send_event(kind, value, length)

    def _break_a_queue(self) -> None:
        """The driver finds an entry there that it never made available."""
        queue = self.queues[self._random.choice(_QUEUES)]
        if self._random.random() < 0.5:
            queue.add_used(self._random.choice([queue.size, 0xFFFF, 2**32 - 1, 0]), 2**32 - 1)
        else:
            queue.advance_used(self._random.choice([2, queue.size, 1000, 40000]))
        for index in _QUEUES:
            self.call(index)
        self._did["garbage"] += 1
