# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Three honest VMs of four flows, and beside them an attacker or an honest fourth."""

import json
from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario, Vm
from ccc_experiments.scores import Score
from ccc_experiments.setups import several_kernels

from .attacker import ATTACKS, FLOWS, Attack
from .known import KNOWN

KIND = "coupled, attacked"
# The same with an honest VM in the attacker's place.
HONEST = "coupled"
HONEST_VMS = 3
ATTACKER = f"vm{HONEST_VMS + 1}"
DURATION_S = 60.0
# The attacker's best of so long, once all flows have begun.
WINDOW_S = 10
BEGIN_S = 5

BY_NAME = {attack.name: attack for attack in ATTACKS}
HONEST_VM = Vm((Flows(count=FLOWS),))


def scenario(case: str, kind: str, seed: int) -> Scenario:
    fourth = BY_NAME[case].vm if kind == KIND else HONEST_VM
    return several_kernels(HONEST, seed, DURATION_S, *(HONEST_VM,) * HONEST_VMS, fourth)


def points(effort: Effort) -> Iterator[Point]:
    cases = [attack.name for attack in ATTACKS if attack.quick or not effort.quick]
    return grid("attacks", effort, cases, (KIND,), scenario, (HONEST,))


def honest_mbit(run: Run) -> float:
    """Goodput of the VMs that are honest in any case."""
    return sum(run.measured.vm_goodput_mbit[:HONEST_VMS])


def fourth_mbit(run: Run) -> float:
    """Goodput of the VM beside them, datagrams included."""
    return run.measured.vm_goodput_mbit[HONEST_VMS] + datagrams_mbit(run)


def datagrams_mbit(run: Run) -> float:
    counted = run.raw / f"{ATTACKER}.flood.json"
    if not counted.exists():
        return 0.0
    return json.loads(counted.read_text())["received_bytes"] * 8 / 1e6 / DURATION_S


def most_mbit(run: Run) -> float:
    """The most that this VM has in a window of time; datagrams come evenly."""
    if datagrams_mbit(run):
        return fourth_mbit(run)
    starts = range(BEGIN_S, int(DURATION_S) - WINDOW_S + 1)
    return max(run.rate_mbit(ATTACKER, start, start + WINDOW_S) for start in starts)


MEASURES = {
    "honest Mbit/s": honest_mbit,
    "attacker Mbit/s": fourth_mbit,
    "its most of 10 s": most_mbit,
    "loss %": lambda run: run.loss_percent(),
    "queue ms": lambda run: run.measured.queue_ms_mean,
}


def kept(data: Data, case: str):
    """What honest VMs have, of what they have beside an honest fourth."""
    return data.ratio(case, KIND, HONEST, honest_mbit)


def scores(data: Data) -> list[Score]:
    return [score for case in data.cases for score in _scores(data, BY_NAME[case])]


def _scores(data: Data, attack: Attack) -> list[Score]:
    case = attack.name

    def ratio(what: str, measure, relation: str, limit: float) -> Score:
        return Score.mean(f"{case}: {what}", data.ratio(case, KIND, HONEST, measure), "ratio", relation, limit)

    loss, queue = MEASURES["loss %"], MEASURES["queue ms"]
    return [
        Score.mean(f"{case}: honest VMs keep", kept(data, case), "ratio", ">=", 0.9),
        ratio("attacker's most of its share in 10 s", most_mbit, "<=", 1.1),
        ratio("loss, of that beside an honest VM", loss, "<=", 1.2),
        ratio("queue, of that beside an honest VM", queue, "<=", 1.2),
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(10, 0.28 * len(data.cases) + 1.2, 1, 3)
    panels = (
        ("honest VMs' goodput, of that beside an honest fourth", honest_mbit, 0.9),
        ("attacker's most in 10 s, of its share", most_mbit, 1.1),
        ("packets lost, %", MEASURES["loss %"], None),
    )
    places = range(len(data.cases))[::-1]
    for axis, (label, measure, bound) in zip(axes, panels, strict=True):
        means = [_value(data, case, measure, relative=bound is not None) for case in data.cases]
        colours = [plots.COUPLED if BY_NAME[case].obeys else plots.UNCOUPLED for case in data.cases]
        axis.barh(places, [mean.mean for mean in means], xerr=[mean.half or 0 for mean in means], color=colours)
        if bound is not None:
            axis.axvline(bound, color="black", lw=0.7, ls=":")
        axis.set_xlabel(label, fontsize=7)
        axis.set_yticks(places, data.cases if axis is axes[0] else [""] * len(data.cases), fontsize=7)
    plots.save(figure, stem)


def _value(data: Data, case: str, measure, relative: bool):
    return data.ratio(case, KIND, HONEST, measure) if relative else data.mean(case, KIND, measure)


FIGURE = Figure("three honest VMs and an attacker", "none: new", points, scores, plot, MEASURES, KNOWN)
