# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A coupling device that misbehaves on demand, for tests of a guest's driver.

It is the other end of the vhost-user socket of a User Mode Linux, which notifies in band.
What it does follows the behaviour that the guest names in a file, which is read at each
kick, while the guest stands still."""

import contextlib
import random
import socket
from collections import Counter
from pathlib import Path

from . import virtio_ccc as wire
from .coupling_device import CouplingDevice, HeldExtent
from .vhost_user import P_BACKEND_REQ, P_CONFIG, P_INBAND_NOTIFICATIONS, P_MQ, P_REPLY_ACK, Server

_GRANT_LINES = 4


def _level_of(window_bytes: int) -> int:
    """Of a flow of priority 1."""
    return (window_bytes << wire.LEVEL_SHIFT) // wire.PRIORITY_ONE


class ScriptedDevice(CouplingDevice):
    """Behaves as the guest asks for: `NAME` or `NAME=VALUE`, as in `_behave`."""

    protocol_features = P_MQ | P_REPLY_ACK | P_BACKEND_REQ | P_CONFIG | P_INBAND_NOTIFICATIONS

    def __init__(
        self, directory: Path, max_slots: int = 4096, stale_us: int = 0, revision: int = 1, features: int = 0
    ) -> None:
        super().__init__(wire.Config(revision, max_slots, _GRANT_LINES, stale_us))
        self.path = directory / "device"
        self.features |= features
        self.doorbells: Counter[int] = Counter()
        self.updates: Counter[str] = Counter()  # by behaviour
        self.reports: list[wire.Report] = []
        self.refuse_after: int | None = None
        self.refusals = 0
        self._behaviour_file = directory / "behaviour"
        self._behaviour = ""
        self._random = random.Random(1)
        self._level = wire.LEVEL_UNSET
        self._window_bytes = 40 * 1448
        self._line, self._seq, self._epoch = 0, 0, 1
        self._report_interval_us = 0
        self._aggregate_bytes = 0
        self._server = Server(self.path, self._serve)

    @property
    def error(self) -> BaseException | None:
        """Why the device itself failed."""
        return self._server.error

    def close(self) -> None:
        self._server.close()
        super().close()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            while self.receive(connection):
                pass

    def kicked(self, queue: int) -> None:
        behaviour = self._behaviour_file.read_text() if self._behaviour_file.exists() else ""
        if behaviour != self._behaviour:
            self._behaviour = behaviour
            self._behave(behaviour)
        if queue == wire.VQ_TABLE:
            self._take_extents()
        elif queue == wire.VQ_DOORBELL and behaviour != "stall":
            self._take_doorbells()
        if behaviour == "anything":
            self._write_anything()

    def _behave(self, behaviour: str) -> None:
        """At the first kick with a behaviour."""
        name, _, value = behaviour.partition("=")
        self._level, self._line = wire.LEVEL_UNSET, 0
        match name:
            case "level":
                self._level = int(value)
            case "window":
                self._window_bytes = int(value)
            case "line":
                self._line = int(value)
            case "interval":
                self._report_interval_us = int(value)
            case "aggregate":
                self._aggregate_bytes = int(value)
            case "reduce":
                self._window_bytes //= 2
                self._epoch += 1
            case "release":
                self._send_event(wire.EV_RELEASE, int(value))
            case "event":
                self._send_event(int(value), 0)
            case "accept":
                self.refuse_after = None
        self._write_line(torn=name == "torn")
        self._look_at_all()

    def _send_event(self, kind: int, value: int) -> None:
        assert self.send_event(kind, value), "no buffer on the event queue"

    def _take_extents(self) -> None:
        while extent := self.next_extent():
            if self.refuse_after is not None and extent.first_slot >= self.refuse_after:
                self.refusals += 1
                self.refuse(extent)
                continue
            self.extents[extent.first_slot] = extent
            if extent.first_slot == 0:
                self._write_line()
            self.accept(extent)

    def _take_doorbells(self) -> None:
        while taken := self.next_doorbell():
            head, doorbell = taken
            self.doorbells[doorbell.op] += 1
            self.updates[self._behaviour] += doorbell.op == wire.OP_UPDATE
            if doorbell.op == wire.OP_RELEASE:
                self.release(doorbell.slot)
            elif doorbell.op == wire.OP_RESCAN:
                self._look_at_all()
            else:
                self._look(doorbell.slot)
            self.queues[wire.VQ_DOORBELL].add_used(head)

    def _look_at_all(self) -> None:
        for extent in self.extents.values():
            for number in range(extent.slots):
                self._answer(extent, number)

    def _look(self, slot: int) -> None:
        for extent in self.extents.values():
            if extent.first_slot <= slot < extent.first_slot + extent.slots:
                self._answer(extent, slot - extent.first_slot)

    def _answer(self, extent: HeldExtent, number: int) -> None:
        """Accepts whatever is in the slot."""
        report = extent.report(number)
        if report.generation:
            self.reports.append(report)
        flags = wire.G_ACCEPTED if report.state else 0
        extent.grant(number, wire.SlotGrant(report.generation, self._line, flags, wire.CAP_NONE))

    def _write_line(self, torn: bool = False) -> None:
        if 0 not in self.extents:
            return
        level = self._level
        if level == wire.LEVEL_UNSET:
            level = _level_of(self._window_bytes)
        self._seq += 1 if torn else 2
        content = (wire.L_COUPLED, 0, level, level, 1, self._report_interval_us, _level_of(self._aggregate_bytes))
        self.extents[0].set_line(0, wire.GrantLine(self._seq, self._epoch, *content))
        # The next one is whole again.
        self._seq += self._seq & 1

    def _write_anything(self) -> None:
        """Lines and grants of whatever content, but coupled most of the time."""
        if 0 not in self.extents:
            return
        first = self.extents[0]
        for number in range(first.grant_lines):
            flags = self._random.randrange(8) | (self._random.random() < 0.8)
            levels = (self._anything(64), self._anything(64))
            content = (self._anything(32), flags, self._anything(32), *levels, 1, 0, self._anything(64))
            first.set_line(number, wire.GrantLine(self._seq, *content))
        for extent in self.extents.values():
            for number in range(extent.slots):
                generation = extent.report(number).generation
                line = self._random.randrange(first.grant_lines)
                grant = wire.SlotGrant(generation, line, wire.G_ACCEPTED, self._anything(64))
                extent.grant(number, grant)

    def _anything(self, bits: int) -> int:
        """Any number of so many bits, often at one of the ends."""
        end = 1 << bits
        ends = (0, 1, 2, end - 1, end - 2, end >> 1, 1 << self._random.randrange(bits))
        if self._random.random() < 0.5:
            return self._random.choice(ends)
        return self._random.randrange(end) >> self._random.randrange(bits)
