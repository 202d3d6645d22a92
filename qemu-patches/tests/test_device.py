# SPDX-License-Identifier: GPL-2.0
"""The vhost-user-ccc device under real guests with the real daemon."""

import time

import pytest
from guests import BUS, FLOWS
from testbed.wait import until

RESTARTS = 100
PLUGS = 20
PROCESSORS = 2
SLEEP_AT = 20
ASLEEP_S = 3
# Flows of plain Reno beside those of the module; when they move again at the latest, and how
# long after them the others.
CONTROLS = 2
AWAKE_WITHIN_S = 120
AFTER_THE_CONTROLS_S = 20


def test_boots(bed, measured):
    """A guest boots and its flows are coupled."""
    daemon = bed.daemon()
    guest = bed.guest("boots", backend=daemon.backend)
    took_s = bed.await_coupled(guest, daemon)
    bed.receiver.check(FLOWS, "coupled")
    measured(coupled_after_s=took_s)


@pytest.mark.slow
def test_o5_starts_alone(bed, measured):
    """A guest boots, and a device is plugged in, while there is no daemon; it comes later."""
    daemon = bed.daemon(started=False)
    guest = bed.guest("alone", backend=daemon.backend)
    bed.await_alone(guest, "booted without a daemon")
    daemon.start()
    first_s = bed.await_coupled(guest, daemon)
    daemon.kill()
    daemon.backend.unlink()
    guest.unplug()
    guest.plug(daemon.backend, BUS)
    bed.await_alone(guest, "plugged in without a daemon")
    daemon.start()
    second_s = bed.await_coupled(guest, daemon)
    bed.receiver.check(FLOWS, "in the end")
    measured(booted_coupled_after_s=first_s, plugged_coupled_after_s=second_s)


@pytest.mark.slow
def test_o11_daemon_hangs(bed, measured):
    """A daemon that hangs costs the guest its coupling, and no command hangs with it."""
    daemon = bed.daemon()
    daemon.hang()
    guest = bed.guest("hung", backend=daemon.backend)
    bed.await_alone(guest, "booted beside a hung daemon")
    daemon.resume()
    bed.await_coupled(guest, daemon)
    daemon.hang()
    began = time.monotonic()
    guest.ask("stop")
    stop_s = time.monotonic() - began
    guest.ask("cont")
    bed.receiver.check(FLOWS, "stopped and continued beside a hung daemon")
    guest.unplug()
    guest.plug(daemon.backend, BUS)
    bed.await_alone(guest, "plugged in beside a hung daemon")
    daemon.resume()
    took_s = bed.await_coupled(guest, daemon)
    measured(stop_took_s=stop_s, coupled_again_s=took_s)


def test_restarts(bed, measured):
    """The daemon is killed under load again and again."""
    daemon = bed.daemon()
    guest = bed.guest("restarts", backend=daemon.backend)
    bed.await_coupled(guest, daemon)
    took_s, began = [], time.time()
    for number in range(RESTARTS):
        daemon.kill()
        daemon.start()
        what = f"restart {number}: all flows coupled"
        took_s.append(until(what, lambda: daemon.coupled_flows("guest") == FLOWS, 20))
    bed.await_coupled(guest, daemon)
    standstill_s = bed.receiver.standstill_s(began)
    bed.receiver.check(FLOWS, "after the restarts")
    mean_s = sum(took_s) / len(took_s)
    measured(restarts=RESTARTS, coupled_again_mean_s=mean_s, coupled_again_max_s=max(took_s), standstill_s=standstill_s)


@pytest.mark.slow
def test_plugs(bed, measured):
    """The device comes and goes while flows run."""
    daemon = bed.daemon()
    guest = bed.guest("plugs")
    until("flows without a device", lambda: guest.sees() == (FLOWS, 0, 0), 180)
    began, plugged_s, unplugged_s = time.time(), [], []
    for number in range(PLUGS):
        guest.plug(daemon.backend, BUS)
        plugged_s.append(bed.await_coupled(guest, daemon))
        guest.unplug()
        unplugged_s.append(until(f"unplugged {number}", lambda: guest.sees() == (FLOWS, 0, 0), 20))
        assert not daemon.coupled_flows("guest"), f"unplugged {number}: the daemon still has flows"
    standstill_s = bed.receiver.standstill_s(began)
    bed.receiver.check(FLOWS, "after the last unplug")
    longest = {"coupled_max_s": max(plugged_s), "alone_max_s": max(unplugged_s), "standstill_s": standstill_s}
    measured(plugs=PLUGS, **longest)


@pytest.mark.slow
def test_processors(bed, measured):
    """Flows of one guest on several processors, for half a minute."""
    daemon = bed.daemon()
    guest = bed.guest("processors", backend=daemon.backend, processors=PROCESSORS)
    took_s = bed.await_coupled(guest, daemon)
    began = time.time()
    time.sleep(30)
    bed.receiver.check(FLOWS, "after half a minute")
    bed.await_coupled(guest, daemon)
    standstill_s = bed.receiver.standstill_s(began)
    measured(processors=PROCESSORS, coupled_after_s=took_s, standstill_s=standstill_s)


@pytest.mark.slow
def test_f10_sleeps(bed, measured):
    """The guest sleeps (s2idle) and wakes with flows open, coupled ones and plain ones.

    TCP's timers go on through the sleep and back off, so after it all flows wait about as
    long again: those of plain Reno are the measure.  The network card is not a virtio-net:
    Linux 6.1's driver of that detaches the device before it stops its polling, which may
    wake the queue again, and breaks the ring so."""
    daemon = bed.daemon()
    device = {"backend": daemon.backend, "network_card": "vmxnet3"}
    guest = bed.guest("sleeps", sleep_at=SLEEP_AT, plain=CONTROLS, **device)
    bed.await_coupled(guest, daemon)
    # The guest's driver resets the device.
    until("asleep: the daemon has no flows", lambda: not daemon.coupled_flows("guest"), 120)
    time.sleep(ASLEEP_S)
    ours, plain = bed.receiver.arrived(), bed.receiver.arrived(plain=True)
    assert len(plain) == CONTROLS
    began = time.monotonic()
    guest.ask("system_powerdown")
    moved_s = awake(bed.receiver, ours, plain, began)
    until("awake: all flows coupled", lambda: daemon.coupled_flows("guest") == FLOWS)
    took_s = time.monotonic() - began
    bed.await_coupled(guest, daemon)
    bed.receiver.check(FLOWS, "awake")
    measured(asleep_s=ASLEEP_S, coupled_after_waking_s=took_s, **moved_s)


def awake(receiver, ours, plain, began) -> dict[str, float]:
    """When all flows moved again; says whose fault it is if they do not."""
    moved_s = {}
    for kind, before, seconds, whose in (
        ("plain", plain, AWAKE_WITHIN_S, "that is the guest's kernel or its network card"),
        ("coupled", ours, AFTER_THE_CONTROLS_S, "flows of plain Reno move: that is the module"),
    ):
        what = f"awake: every {kind} flow moves ({whose}, if not)"
        until(what, lambda: receiver.moves(before, plain=kind == "plain"), seconds)
        moved_s[f"{kind}_move_after_waking_s"] = time.monotonic() - began
    return moved_s
