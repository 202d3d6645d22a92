# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Some of the attacks of virtual time (`experiments/attacks`) on libvirt's domains: two honest
VMs and an attacker, each at a tap of a Linux host, which the daemon looks at and may hold."""

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from attacks.attacker import ATTACKS, Attack
from attacks.figure import HONEST_VM, WINDOW_S
from ccc_experiments import table
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Scenario
from ccc_experiments.scores import Known, Score, print_scores, write_result
from testbed import artefacts
from testbed.host import HERE
from testbed.libvirt import HostDaemon, Machine
from testbed.wait import until

from .dumbbell import Dumbbell, address

NAMES = ("reno 16", "deaf", "UDP 20 Mbit/s")
DURATION_S = 40.0
# When the attacker begins.
ATTACK_S = 5
HONEST_VMS = 2
ATTACKER = f"vm{HONEST_VMS + 1}"
ENFORCING = '[group.uplink]\nenforce = "on"'
# What comes through the attacker's tap before it attacks is less.
BEGUN_BYTES = 20_000
MODULE = "/run/ccc.ko"
# How often the daemon is asked, until the attacker is held and later.
_LOOK_S, _LATER_S = 0.02, 0.25
# Who has grants has to send more than them for three seconds before it is judged.
HELD_WITHIN_S, DEAF_WITHIN_S = 1.0, 10.0
# 89 % in two of three.
KEPT_KNOWN = Known("until the attacker is held, and some seconds until others have come back, are in it", 0.8)


@dataclass
class Tap:
    """The attacker's, and when the daemon had it held."""

    daemon: HostDaemon
    name: str
    held_after_s: float | None = None
    verdict: str | None = None
    shown: str = ""
    # What the daemon says of all in the course of it.
    course: list[dict] = field(default_factory=list)

    def watch(self) -> None:
        """Until most of the run is over."""
        before = self._received()
        until("the attacker sends", lambda: self._received() > before + BEGUN_BYTES, poll_s=0.01)
        began = time.monotonic()
        while (at_s := time.monotonic() - began) < DURATION_S - ATTACK_S:
            vm = self.daemon.vm(ATTACKER) or {}
            self.course.append({"at_s": round(at_s, 2), "held": vm.get("held"), "group": self.daemon.group("uplink")})
            self.verdict = self.verdict or vm.get("judged")
            if vm.get("held") and self.held_after_s is None:
                self.held_after_s = round(time.monotonic() - began, 2)
                self.shown = self.daemon.cccctl("show", ATTACKER)
            time.sleep(_LOOK_S if self.held_after_s is None else _LATER_S)

    def _received(self) -> int:
        """Bytes, by the counters of this network namespace."""
        lines = dict(line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:])
        return int({name.strip(): counters for name, counters in lines.items()}[self.name].split()[0])


@dataclass(frozen=True)
class Done:
    """A run, and what the daemon did meanwhile."""

    name: str
    run: Run
    tap: Tap

    @property
    def honest_mbit(self) -> float:
        """From when the attacker begins."""
        return sum(self.run.rate_mbit(f"vm{n + 1}", ATTACK_S, DURATION_S) for n in range(HONEST_VMS))

    @property
    def held_within_s(self) -> float:
        return DEAF_WITHIN_S if self.run.scenario.vms[-1].hostile else HELD_WITHIN_S

    @property
    def most_mbit(self) -> float:
        """The attacker's in a window of time, once all flows have begun and before any ends, by
        its receiver's clock, which begins with it."""
        starts = range(ATTACK_S, int(DURATION_S) - 2 * ATTACK_S - WINDOW_S + 1)
        return max(self.run.rate_mbit(ATTACKER, start, start + WINDOW_S) for start in starts)

    def document(self) -> dict:
        return self.run.measured.document() | {
            "attack": self.name,
            "honest_mbit": round(self.honest_mbit, 3),
            "attacker_most_mbit": round(self.most_mbit, 3),
            "verdict": self.tap.verdict,
            "held_after_s": self.tap.held_after_s,
        }


class Bed:
    """The domains at taps, and the daemon that looks at these."""

    def __init__(self, machine: Machine, daemon: HostDaemon, out: Path) -> None:
        self._key, self._daemon, self._out = machine.key, daemon, out
        self.dumbbell = Dumbbell(machine, daemon, out, vms=HONEST_VMS + 1)
        self._taps = {vm.name: vm.virsh("domiflist", vm.name).split()[0] for vm in self.dumbbell.vms}
        for name, tap in self._taps.items():
            # In the domain's metadata: what is only set in the daemon goes with it.
            daemon.cccctl("attach", name, "--tap", tap)

    def run(self, attack: Attack) -> Done:
        """With a daemon that has seen nothing before."""
        self._daemon.stop()
        self._daemon.start()
        until("all VMs have their devices", self._are_connected)
        if attack.vm.hostile:
            self._load(attack.vm.module_options)
        label = attack.name.replace(" ", "-").replace("/", "-per-").lower()
        vms = (HONEST_VM,) * HONEST_VMS + (attack.vm,)
        tap = Tap(self._daemon, self._taps[ATTACKER])
        done = self.dumbbell.run(Scenario(label, vms, 1, DURATION_S, coupled=True), tap.watch, ATTACK_S)
        (done.raw / "taps.json").write_text(json.dumps(tap.course))
        return Done(attack.name, done, tap)

    def _are_connected(self) -> bool:
        return all((self._daemon.vm(name) or {}).get("connected") for name in self._taps)

    def _load(self, options: str) -> None:
        """Has the attacker's guest take the module that lies."""
        module = artefacts.build("hostile-guest-module") / "ccc.ko"
        # What debuggers want is a hundred times as much.
        HERE.run("strip", "--strip-debug", "-o", self._out / "hostile.ko", module)
        text = base64.b64encode((self._out / "hostile.ko").read_bytes()).decode()
        HERE.run(*self._key.command(address(HONEST_VMS + 1)), f"base64 -d >{MODULE}", stdin=text)
        self.dumbbell.vms[-1].run(f"modprobe -r ccc; insmod {MODULE} {options}")


def chosen() -> list[Attack]:
    """None first, then those of the kit; the one that changes its module is the last."""
    kit = [attack for attack in ATTACKS if attack.name in NAMES]
    return [Attack("none", HONEST_VM), *sorted(kit, key=lambda attack: attack.vm.hostile)]


def scores(done: list[Done]) -> list[Score]:
    """As in virtual time."""
    honest, *attacked = done
    result = []
    for each in attacked:
        kept, most = each.honest_mbit / honest.honest_mbit, each.most_mbit / honest.most_mbit
        result += [
            Score(f"{each.name}: honest VMs keep", kept, "ratio", ">=", 0.9, known=KEPT_KNOWN),
            Score(f"{each.name}: attacker's most of its share in {WINDOW_S} s", most, "ratio", "<=", 1.1),
            Score(f"{each.name}: held after", each.tap.held_after_s or DURATION_S, "s", "<=", each.held_within_s),
        ]
    held = int(honest.tap.held_after_s is not None)
    return [*result, Score("none: VMs that are held", held, "1", "<=", 0)]


def run(out: Path, machine: Machine) -> bool:
    """All runs, their table and result; whether every score holds."""
    with HostDaemon(out, sections=ENFORCING) as daemon:
        bed = Bed(machine, daemon, out)
        done = [bed.run(attack) for attack in chosen()]
    for each in done:
        print(f"\n{each.name}: held after {each.tap.held_after_s} s, {each.tap.verdict}\n{each.tap.shown}")
    table.print_table([each.run.measured for each in done])
    judged = scores(done)
    about = {"experiment": "attacks-qemu", "accelerator": machine.accelerator, "host": bed.dumbbell.hosts}
    write_result(out / "result.json", [each.document() for each in done], judged, about)
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json; raw data in {out}/raw")
    return holds
