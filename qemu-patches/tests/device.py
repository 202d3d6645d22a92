#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The vhost-user-ccc device under real guests with the real daemon.

Each test prints a line of JSON with what it measured.  Guests are emulated, so
times are those of a slow machine."""
import argparse
import json
import sys
import time
from pathlib import Path

from lab import Failed, Lab, require, until

RESTARTS = 100
SLEEP_AT = 20
ASLEEP = 3
# Flows of plain Reno beside those of the module; when they move again at the latest, and how
# long after them the others.
CONTROLS = 2
AWAKE_WITHIN = 120
AFTER_THE_CONTROLS = 20
PROCESSORS = 2
PLUGS = 20
# Coupled again after a migration, by the daemon at the destination.
COUPLED_WITHIN = 1.0


def boots(lab):
    """A guest boots and its flows are coupled."""
    daemon = lab.daemon()
    guest = lab.guest("boots", backend=daemon.socket)
    return coupled(lab, guest, daemon)


def coupled(lab, guest, daemon):
    took = lab.await_coupled(guest, daemon)
    lab.receiver.check(lab.flows, "coupled")
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"flows": lab.flows, "coupled_after_s": round(took, 2)}


def alone(lab, guest, what):
    """Until the guest has its device and sends, each flow by itself."""
    until(f"{what}: flows, not coupled", 180, lambda: guest.sees() == (lab.flows, 0, 1))
    lab.receiver.check(lab.flows, what)


def o5_starts_alone(lab):
    """A guest boots, and a device is plugged in, while there is no daemon; it comes later."""
    daemon = lab.daemon(started=False)
    guest = lab.guest("alone", backend=daemon.socket)
    alone(lab, guest, "booted without a daemon")
    daemon.start()
    first = lab.await_coupled(guest, daemon)
    daemon.kill()
    guest.unplug()
    guest.plug(daemon.socket)
    alone(lab, guest, "plugged in without a daemon")
    daemon.start()
    second = lab.await_coupled(guest, daemon)
    lab.receiver.check(lab.flows, "in the end")
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"flows": lab.flows, "resets": 0,
            "coupled_after_the_daemon_s": [round(first, 2), round(second, 2)]}


def o11_daemon_hangs(lab):
    """A daemon that hangs costs the guest its coupling, and no command hangs with it."""
    daemon = lab.daemon()
    daemon.hang()
    guest = lab.guest("hung", backend=daemon.socket)
    alone(lab, guest, "booted beside a hung daemon")
    daemon.go_on()
    lab.await_coupled(guest, daemon)
    daemon.hang()
    begin = time.monotonic()
    guest.ask("stop")
    stopped = time.monotonic() - begin
    guest.ask("cont")
    lab.receiver.check(lab.flows, "stopped and continued beside a hung daemon")
    guest.unplug()
    guest.plug(daemon.socket)
    alone(lab, guest, "plugged in beside a hung daemon")
    daemon.go_on()
    took = lab.await_coupled(guest, daemon)
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"flows": lab.flows, "resets": 0, "stop_took_s": round(stopped, 2),
            "coupled_again_s": round(took, 2)}


def restarts(lab):
    """The daemon is killed under load again and again."""
    daemon = lab.daemon()
    guest = lab.guest("restarts", backend=daemon.socket)
    lab.await_coupled(guest, daemon)
    times, begin = [], time.time()
    for number in range(RESTARTS):
        daemon.kill()
        daemon.start()
        _, took = until(f"restart {number}: all flows coupled", 20,
                        lambda: daemon.coupled() == lab.flows)
        times.append(took)
    lab.await_coupled(guest, daemon)
    standstill = lab.receiver.standstill(begin)
    lab.receiver.check(lab.flows, "after the restarts")
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"restarts": RESTARTS, "flows": lab.flows, "resets": 0,
            "coupled_again_s": {"mean": round(sum(times) / len(times), 3), "max": round(max(times), 3)},
            "longest_standstill_s": round(standstill, 2)}


def plugs(lab):
    """The device comes and goes while flows run."""
    daemon = lab.daemon()
    guest = lab.guest("plugs")
    until("flows without a device", 180, lambda: guest.sees() == (lab.flows, 0, 0))
    begin, plugged, unplugged = time.time(), [], []
    for number in range(PLUGS):
        guest.plug(daemon.socket)
        plugged.append(lab.await_coupled(guest, daemon))
        guest.unplug()
        _, took = until(f"unplugged {number}", 20, lambda: guest.sees() == (lab.flows, 0, 0))
        unplugged.append(took)
        require(not daemon.coupled(), f"unplugged {number}: the daemon still has flows")
    standstill = lab.receiver.standstill(begin)
    lab.receiver.check(lab.flows, "after the last unplug")
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"plugs": PLUGS, "flows": lab.flows, "resets": 0,
            "coupled_after_plug_s_max": round(max(plugged), 2),
            "alone_after_unplug_s_max": round(max(unplugged), 2),
            "longest_standstill_s": round(standstill, 2)}


def incoming(lab, guest):
    """Where the guest listens for the one that migrates."""
    uri = f"unix:{lab.directory / guest.name}.migration"
    guest.ask("migrate-incoming", uri=uri)
    return uri


def migration_status(guest):
    return guest.ask("query-migrate").get("status")


def migrate(lab, source, target):
    """Until the target runs; when that was, and how long the guest stood still."""
    source.ask("migrate", uri=incoming(lab, target))
    until(f"{source.name} to {target.name}", 120,
          lambda: migration_status(source) in ("completed", "failed"))
    status = source.ask("query-migrate")
    require(status["status"] == "completed", f"{source.name} to {target.name}: {status}; {source.said()}")
    return target.event("RESUME"), status["downtime"]


def migrations(lab):
    """There and back again, with daemons of their own at both ends."""
    here, there = lab.daemon("here"), lab.daemon("there")
    guest = lab.guest("first", backend=here.socket)
    lab.await_coupled(guest, here)
    runs = []
    for name, daemon in (("second", there), ("third", here)):
        target = lab.guest(name, backend=daemon.socket, incoming=True)
        begin = time.time()
        resumed, downtime = migrate(lab, guest, target)
        until(f"{name}: all flows coupled", 20, lambda: daemon.coupled() == lab.flows)
        coupled_after = time.time() - resumed
        guest.close()
        guest = target
        lab.await_coupled(guest, daemon)
        lab.receiver.check(lab.flows, name)
        require(coupled_after <= COUPLED_WITHIN,
                f"{name}: coupled again only {coupled_after:.2f} s after the guest went on")
        runs.append({"to": name, "downtime_ms": downtime, "coupled_again_s": round(coupled_after, 3),
                     "longest_standstill_s": round(lab.receiver.standstill(begin), 2)})
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"flows": lab.flows, "resets": 0, "migrations": runs}


def refused(lab, guest, target, why):
    """The migration fails, says why, and the source was not even paused."""
    guest.events.clear()
    uri = incoming(lab, target)
    try:
        guest.ask("migrate", uri=uri)
    except Failed as failed:
        said = str(failed)
    else:
        until("an end of the migration", 60,
              lambda: migration_status(guest) in ("failed", "completed"))
        status = guest.ask("query-migrate")
        require(status["status"] == "failed", f"not refused: {status}")
        said = "\n".join((target.said(), guest.said(), status.get("error-desc", "")))
    require(why in said, f"refused, but without '{why}': {said}")
    require(guest.running(), "the source does not run")
    require(not any(event["event"] == "STOP" for event in guest.events), "the source was paused")
    target.close()
    return next(line for line in said.splitlines() if why in line).partition(": ")[2]


def refusals(lab):
    """Destinations that cannot take the guest, and a source that cannot give it."""
    daemon, old = lab.daemon(), lab.older_daemon("old")
    guest = lab.guest("source", backend=daemon.socket)
    lab.await_coupled(guest, daemon)
    said = {}
    without = lab.guest("without", incoming=True)
    said["no device"] = refused(lab, guest, without, "vhost-user-ccc-promise")
    behind = lab.guest("behind", backend=old.socket, incoming=True)
    said["older daemon"] = refused(lab, guest, behind, "too old")
    lab.await_coupled(guest, daemon)
    lab.receiver.check(lab.flows, "after the refusals")
    guest.close()

    stuck = lab.guest("stuck", backend=old.socket)
    until("the guest has the older daemon", 180, lambda: stuck.sees()[2] and old.connected())
    target = lab.guest("target", backend=daemon.socket, incoming=True)
    said["older daemon at the source"] = refused(lab, stuck, target, "backend lacks")
    return {"flows": lab.flows, "resets": 0, "source_paused": False, "said": said}


def processors(lab):
    """Flows of one guest on several processors, for half a minute."""
    daemon = lab.daemon()
    guest = lab.guest("processors", backend=daemon.socket, processors=PROCESSORS)
    took = lab.await_coupled(guest, daemon)
    begin = time.time()
    time.sleep(30)
    lab.receiver.check(lab.flows, "after half a minute")
    lab.await_coupled(guest, daemon)
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"processors": PROCESSORS, "flows": lab.flows, "coupled_after_s": round(took, 2),
            "longest_standstill_s": round(lab.receiver.standstill(begin), 2)}


def f10_sleeps(lab):
    """The guest sleeps (s2idle) and wakes with flows open, coupled ones and plain ones.

    TCP's timers go on through the sleep and back off, so after it all flows wait about as
    long again: those of plain Reno are the measure.  The network card is not a virtio-net:
    Linux 6.1's driver of that detaches the device before it stops its polling, which may
    wake the queue again, and breaks the ring so."""
    daemon = lab.daemon()
    guest = lab.guest("sleeps", backend=daemon.socket, sleep_at=SLEEP_AT, plain=CONTROLS,
                      network_card="vmxnet3")
    lab.await_coupled(guest, daemon)
    # The guest's driver resets the device.
    until("asleep: the daemon has no flows", 120, lambda: not daemon.coupled())
    time.sleep(ASLEEP)
    ours, plain = lab.receiver.arrived(), lab.receiver.arrived(plain=True)
    require(len(plain) == CONTROLS, f"{len(plain)} plain flows, not {CONTROLS}")
    begin = time.monotonic()
    guest.ask("system_powerdown")
    moved = awake(lab, ours, plain, begin)
    until("awake: all flows coupled", 60, lambda: daemon.coupled() == lab.flows)
    took = time.monotonic() - begin
    lab.await_coupled(guest, daemon)
    lab.receiver.check(lab.flows, "awake")
    require(not guest.complaints(), f"the guest complains: {guest.complaints()}")
    return {"flows": lab.flows, "resets": 0, "asleep_s": ASLEEP, "move_after_waking_s": moved,
            "coupled_after_waking_s": round(took, 2)}


def awake(lab, ours, plain, begin):
    """When all flows moved again; says whose fault it is if they do not."""
    moved = {}
    for kind, before, seconds, whose in (
            ("plain", plain, AWAKE_WITHIN, "that is the guest's kernel or its network card"),
            ("coupled", ours, AFTER_THE_CONTROLS, "flows of plain Reno move: that is the module")):
        until(f"awake: every {kind} flow moves ({whose}, if not)", seconds,
              lambda: lab.receiver.moves(before, plain=kind == "plain"))
        moved[kind] = round(time.monotonic() - begin, 2)
    return moved


TESTS = {test.__name__: test for test in (
    boots, o5_starts_alone, o11_daemon_hangs, restarts, plugs, processors, f10_sleeps, migrations,
    refusals)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--qemu", required=True, type=Path)
    parser.add_argument("--image", required=True, type=Path)
    parser.add_argument("--vhost", required=True, type=Path)
    parser.add_argument("--out", default="out/test-qemu", type=Path)
    parser.add_argument("tests", nargs="*", default=list(TESTS), metavar="TEST",
                        help=f"of {', '.join(TESTS)}; all if none is named")
    args = parser.parse_args()
    if unknown := [name for name in args.tests if name not in TESTS]:
        parser.error(f"no test {unknown[0]}; there are {', '.join(TESTS)}")
    failed = 0
    for name in args.tests:
        begin = time.monotonic()
        try:
            with Lab(args, args.out / name) as lab:
                result = {"test": name, "ok": True, **TESTS[name](lab)}
        except Failed as why:
            failed += 1
            result = {"test": name, "ok": False, "why": str(why), "logs": str(args.out / name)}
        result["took_s"] = round(time.monotonic() - begin, 1)
        print(json.dumps(result), flush=True)
    print(f"{len(args.tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
