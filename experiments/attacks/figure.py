# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Honest VMs of four flows, mostly three, and beside them an attacker or one more honest one."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Measure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Bottleneck, Flows, Queue, Request, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import several_kernels

from .attacker import FLOWS, Attack

Enforce = Literal["off", "observe", "on"]

ATTACKED = "coupled, attacked"
# The same with an honest VM in the attacker's place.
HONEST = "coupled"
HONEST_VM = Vm((Flows(count=FLOWS),))
DURATION_S = 60.0
# The attacker's best of so long, once all flows have begun.
WINDOW_S = 10
BEGIN_S = 5

# Losses are drawn by their powers of ten from here on.
LINEAR_PERCENT = 0.1

# At the end the daemon is asked what it has counted.
CONDUCT = Action(DURATION_S - 0.5, control=Request("GET", "/v1/groups/uplink"))

# What has to hold of each attack, in this order.
KEPT = "honest VMs keep"
MOST = "attacker's most of its share in 10 s"
LOSS = "lost more than beside an honest VM"
QUEUE = "queue, of that beside an honest VM"
WHAT = (KEPT, MOST, LOSS, QUEUE)
# And of each that the daemon counts: an attack that moves nothing tests nothing.
COUNTED = "counted by the daemon"


def honest_mbit(run: Run) -> float:
    """Goodput of the VMs that are honest in any case."""
    return sum(run.measured.vm_goodput_mbit[:-1])


def last_mbit(run: Run) -> float:
    """Goodput of the VM beside them, datagrams included."""
    return run.measured.vm_goodput_mbit[-1] + datagrams_mbit(run)


def last_vm(run: Run) -> str:
    return f"vm{len(run.measured.vm_goodput_mbit)}"


def datagrams_mbit(run: Run) -> float:
    counted = run.raw / f"{last_vm(run)}.flood.json"
    if not counted.exists():
        return 0.0
    return json.loads(counted.read_text())["received_bytes"] * 8 / 1e6 / DURATION_S


def most_mbit(run: Run) -> float:
    """The most that this VM has in a window of time; datagrams come evenly."""
    if datagrams_mbit(run):
        return last_mbit(run)
    starts = range(BEGIN_S, int(DURATION_S) - WINDOW_S + 1)
    return max(run.rate_mbit(last_vm(run), start, start + WINDOW_S) for start in starts)


def loss_percent(run: Run) -> float:
    return run.loss_percent()


def queue_ms(run: Run) -> float:
    return run.measured.queue_ms_mean


def counted(run: Run, counter: str) -> float:
    """What the daemon has counted of the attacker."""
    [asked] = json.loads((run.raw / "actions.json").read_text())
    return next(member["conduct"][counter] for member in asked["answer"]["vms"] if member["name"] == last_vm(run))


MEASURES = {
    "honest Mbit/s": honest_mbit,
    "attacker Mbit/s": last_mbit,
    "its most of 10 s": most_mbit,
    "loss %": loss_percent,
    "queue ms": queue_ms,
}


@dataclass(frozen=True)
class Kit:
    """Attacks, each of them a case."""

    attacks: tuple[Attack, ...]
    # The bottleneck's: one for all, or one for each VM.
    queue: Queue = "fifo"
    # What the daemon does to who takes what is others', by their taps.
    enforce: Enforce = "off"

    def points(self, effort: Effort) -> Iterator[Point]:
        cases = [attack.name for attack in self.attacks if attack.quick or not effort.quick]
        return grid("attacks", effort, cases, (ATTACKED,), self.scenario, (HONEST,))

    def scenario(self, case: str, kind: str, seed: int) -> Scenario:
        attack = self.attack(case)
        vms = (HONEST_VM,) * attack.honest + (attack.vm if kind == ATTACKED else HONEST_VM,)
        group = {} if self.enforce == "off" else {"enforce": self.enforce}
        bottleneck = Bottleneck(queue=self.queue)
        return several_kernels(HONEST, seed, DURATION_S, *vms, bottleneck=bottleneck, group=group,
                               actions=(CONDUCT,))  # fmt: skip

    def attack(self, name: str) -> Attack:
        return next(attack for attack in self.attacks if attack.name == name)

    def scores(self, data: Data) -> list[Score]:
        bounds = [score for case in data.cases for score in scores(data, case)]
        return bounds + [score for case in data.cases for score in counts(data, self.attack(case))]

    def plot(self, data: Data, stem: Path) -> None:
        figure, axes = plots.subplots(10, 0.28 * len(data.cases) + 1.2, 1, 3)
        colours = [plots.COUPLED if self.attack(case).obeys else plots.UNCOUPLED for case in data.cases]
        panels = (
            ("honest VMs' goodput, of that beside an honest VM", honest_mbit, 0.9),
            (MOST, most_mbit, 1.1),
            ("packets lost, %", loss_percent, None),
        )
        for axis, (label, measure, bound) in zip(axes, panels, strict=True):
            bars(axis, data, measure, bound, colours)
            axis.set_xlabel(label, fontsize=7)
        for axis in axes[1:]:
            axis.set_yticklabels([])
        plots.save(figure, stem)


def scores(data: Data, case: str) -> list[Score]:
    """What has to hold of an attack."""

    def ratio(what: str, measure: Measure, relation: str, limit: float) -> Score:
        return Score.mean(f"{case}: {what}", data.ratio(case, ATTACKED, HONEST, measure), "ratio", relation, limit)

    more = data.more(case, ATTACKED, HONEST, loss_percent)
    return [
        ratio(KEPT, honest_mbit, ">=", 0.9),
        ratio(MOST, most_mbit, "<=", 1.1),
        # A fifth more than beside an honest VM would be less than chance is.
        Score.mean(f"{case}: {LOSS}", more, "percent", "<=", 0.1),
        ratio(QUEUE, queue_ms, "<=", 1.2),
    ]


def counts(data: Data, attack: Attack) -> list[Score]:
    """The daemon's counter of an attack has moved in each run."""
    if attack.counter is None:
        return []
    values = [counted(run, attack.counter) for run in data.runs(attack.name, ATTACKED)]
    return [Score.worst(f"{attack.name}: {attack.counter} {COUNTED}", values, "count", ">=", 1)]


def bars(axis, data: Data, measure: Measure, bound: float | None, colours: list[str]) -> None:
    """A bar for each attack; with a bound, of what is measured beside an honest VM."""
    places = range(len(data.cases))[::-1]
    if bound is None:
        axis.set_xscale("symlog", linthresh=LINEAR_PERCENT)
        means = [data.mean(case, ATTACKED, measure) for case in data.cases]
    else:
        means = [data.ratio(case, ATTACKED, HONEST, measure) for case in data.cases]
        axis.axvline(bound, color="black", lw=0.7, ls=":")
    axis.barh(places, [mean.mean for mean in means], xerr=[mean.half or 0 for mean in means], color=colours)
    axis.set_yticks(places, data.cases, fontsize=7)


def figure(title: str, kit: Kit, known: Mapping[str, Known]) -> Figure:
    return Figure(title, "none: new", kit.points, kit.scores, kit.plot, MEASURES, known)
