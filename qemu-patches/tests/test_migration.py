# SPDX-License-Identifier: GPL-2.0
"""Live migration of guests with the device, between daemons of their own."""

import re
import struct
import time
from pathlib import Path

import pytest
from guests import FLOWS, SendingGuest
from testbed.errors import GuestError
from testbed.wait import until

pytestmark = pytest.mark.slow

# Coupled again, by the daemon at the destination.
COUPLED_WITHIN_S = 1.0


def migrate(source: SendingGuest, target: SendingGuest) -> tuple[float, int]:
    """When the target ran, and for how many ms the guest stood still."""
    source.ask("migrate", uri=target.listen())
    until(f"{source.name} to {target.name}", lambda: source.migration().get("status") in ("completed", "failed"), 120)
    state = source.migration()
    assert state["status"] == "completed", (state, source.log)
    return target.event("RESUME"), state["downtime"]


def test_migrations(bed, measured):
    """There and back again."""
    here, there = bed.daemon("here"), bed.daemon("there")
    guest = bed.guest("first", backend=here.backend)
    bed.await_coupled(guest, here)
    for name, daemon in (("second", there), ("third", here)):
        target = bed.guest(name, backend=daemon.backend, incoming=True)
        began = time.time()
        resumed, downtime_ms = migrate(guest, target)
        until(f"{name}: all flows coupled", lambda: daemon.coupled_flows("guest") == FLOWS, 20)
        coupled_again_s = time.time() - resumed
        guest.close()
        guest = target
        bed.await_coupled(guest, daemon)
        bed.receiver.check(FLOWS, name)
        assert coupled_again_s <= COUPLED_WITHIN_S
        standstill_s = bed.receiver.standstill_s(began)
        measured(to=name, downtime_ms=downtime_ms, coupled_again_s=coupled_again_s, standstill_s=standstill_s)


def as_sent_before(stream: bytes, state: bytes) -> bytes:
    """A saved state as QEMU wrote it when the daemon's state went along: in a subsection
    of the device, its last."""
    # A section's kind, number, name, instance and version; at its end its number again.
    (section,) = re.finditer(rb"\x04(.{4})[\x10-\xff][ -~]+/vhost-user-ccc\x00{4}\x00{3}\x01", stream, re.S)
    end = stream.index(b"\x7e" + section[1], section.end())
    name = b"vhost-user-ccc/back-end"
    return stream[:end] + struct.pack(f">BB{len(name)}sI", 5, len(name), name, 1) + state + stream[end:]


def save(guest: SendingGuest, file: Path) -> None:
    """Ends the guest with its state in a file."""
    guest.ask("migrate", uri=f"file:{file}")
    until("the saved state", lambda: guest.migration().get("status") in ("completed", "failed"), 120)
    assert guest.migration()["status"] == "completed", guest.log
    guest.close()


def test_loads_older_state(bed, logs):
    """What the series before saved or sent: with the daemon's state, which is dropped."""
    daemon, file = bed.daemon(), logs / "saved"
    guest = bed.guest("source", backend=daemon.backend)
    bed.await_coupled(guest, daemon)
    save(guest, file)
    stream = file.read_bytes()

    broken = bed.guest("broken", backend=daemon.backend, incoming=True)
    file.write_bytes(as_sent_before(stream, struct.pack(">I", 1 << 31)))
    broken.ask("migrate-incoming", uri=f"file:{file}")
    until("an end", lambda: not broken.is_running())
    assert "expected at most 4096 more bytes, got 2147483648" in broken.log

    older = bed.guest("older", backend=daemon.backend, incoming=True)
    file.write_bytes(as_sent_before(stream, struct.pack(">I16sI", 16, bytes(range(16)), 0)))
    older.ask("migrate-incoming", uri=f"file:{file}")
    older.event("RESUME")
    bed.await_coupled(older, daemon)
    bed.receiver.check(FLOWS, "restored")
    file.unlink()


def refusal(guest: SendingGuest, target: SendingGuest, why: str) -> str:
    """The words with which the migration fails; the source was not even paused."""
    guest.events.clear()
    uri = target.listen()
    try:
        guest.ask("migrate", uri=uri)
    except GuestError as error:
        said = str(error)
    else:
        until("an end of the migration", lambda: guest.migration().get("status") in ("failed", "completed"))
        state = guest.migration()
        assert state["status"] == "failed"
        said = "\n".join((target.log, guest.log, str(state.get("error-desc", ""))))
    assert why in said
    assert guest.plays(), "the source does not run"
    assert not any(event["event"] == "STOP" for event in guest.events), "the source was paused"
    target.close()
    return next(line for line in said.splitlines() if why in line).partition(": ")[2]


def test_refusals(bed, measured):
    """Destinations that cannot take the guest, and a source that cannot give it."""
    daemon, older = bed.daemon(), bed.older_daemon("old")
    guest = bed.guest("source", backend=daemon.backend)
    bed.await_coupled(guest, daemon)
    said = {}
    without = bed.guest("without", incoming=True)
    said["no device"] = refusal(guest, without, "vhost-user-ccc-promise")
    behind = bed.guest("behind", backend=older.backend, incoming=True)
    said["older daemon"] = refusal(guest, behind, "too old")
    bed.await_coupled(guest, daemon)
    bed.receiver.check(FLOWS, "after the refusals")
    guest.close()

    stuck = bed.guest("stuck", backend=older.backend)
    until("the guest has the older daemon", lambda: stuck.sees()[2] and older.daemon.vm("guest")["connected"], 180)
    target = bed.guest("target", backend=daemon.backend, incoming=True)
    said["older daemon at the source"] = refusal(stuck, target, "backend lacks")
    measured(source_paused=False, **said)
