# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the coupling devices that misbehave have in common: extents, reports and grants.

They couple nothing: the host's real program is ccc-vhost."""

from ctypes import Structure, sizeof
from typing import TypeVar

from . import virtio_ccc as wire
from .vhost_user import BackEnd, GuestMemory

T = TypeVar("T", bound=Structure)


def read(memory: GuestMemory, address: int, kind: type[T]) -> T:
    """A struct of the wire layout in the guest's memory."""
    return kind.from_buffer_copy(memory.read(address, sizeof(kind)))


class HeldExtent:
    """An extent of the tables, which the device holds."""

    def __init__(self, memory: GuestMemory, head: int, buffers: list[tuple[int, int]]) -> None:
        (offer, _), (self._reports, _), (self.status, _) = buffers
        self.memory, self.head = memory, head
        extent = read(memory, offer, wire.Extent)
        self.first_slot, self.slots, self.grant_lines = extent.first_slot, extent.slots, extent.grant_lines
        self._lines = self.status + sizeof(wire.ExtentStatus)
        self._grants = self._lines + sizeof(wire.GrantLine) * self.grant_lines
        self.writable_bytes = self._grants + sizeof(wire.SlotGrant) * self.slots - self.status

    def set_status(self, status: int, instance: int = 1) -> None:
        self.memory.write(self.status, bytes(wire.ExtentStatus(status=status, instance=instance))[:8])

    def report(self, number: int) -> wire.Report:
        """Of the slot with this number in the extent."""
        return read(self.memory, self._reports + sizeof(wire.Report) * number, wire.Report)

    def grant(self, number: int, grant: wire.SlotGrant) -> None:
        self.memory.write(self._grants + sizeof(grant) * number, bytes(grant))

    def set_line(self, number: int, line: wire.GrantLine) -> None:
        self.memory.write(self._lines + sizeof(line) * number, bytes(line))


class CouplingDevice(BackEnd):
    """The device's side of the tables and the queues."""

    def __init__(self, config: wire.Config) -> None:
        super().__init__(bytes(config))
        self.extents: dict[int, HeldExtent] = {}

    def forget(self) -> None:
        self.extents.clear()

    def next_extent(self) -> HeldExtent | None:
        """The next one that the driver offers."""
        chain = self.queues[wire.VQ_TABLE].pop()
        return HeldExtent(self._memory, chain.head, chain.buffers) if chain else None

    def accept(self, extent: HeldExtent) -> None:
        self.extents[extent.first_slot] = extent
        extent.set_status(wire.EXTENT_ACCEPTED)

    def refuse(self, extent: HeldExtent, status: int = wire.EXTENT_REFUSED) -> None:
        extent.set_status(status)
        self._return(extent)

    def release(self, first_slot: int) -> None:
        """Returns an extent that it holds, if it does."""
        if extent := self.extents.pop(first_slot, None):
            self._return(extent)

    def _return(self, extent: HeldExtent) -> None:
        self.queues[wire.VQ_TABLE].add_used(extent.head)
        self.call(wire.VQ_TABLE)

    def next_doorbell(self) -> tuple[int, wire.Doorbell] | None:
        """The head of the next doorbell message's chain, and the message."""
        chain = self.queues[wire.VQ_DOORBELL].pop()
        return (chain.head, read(self._memory, chain.buffers[0][0], wire.Doorbell)) if chain else None

    def send_event(self, kind: int, value: int, length: int = sizeof(wire.Event)) -> bool:
        """Whether the driver had a buffer for it."""
        chain = self.queues[wire.VQ_EVENT].pop()
        if not chain:
            return False
        self._memory.write(chain.buffers[0][0], bytes(wire.Event(type=kind, value=value)))
        self.queues[wire.VQ_EVENT].add_used(chain.head, length)
        self.call(wire.VQ_EVENT)
        return True

    @property
    def _memory(self) -> GuestMemory:
        assert self.memory
        return self.memory
