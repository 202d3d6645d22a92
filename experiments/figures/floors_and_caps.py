# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Floors and caps of VMs, set while flows run: who has what of 10 Mbit/s.

Two VMs, of one flow and of four, uncoupled and coupled; only the coupled ones have bounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Flows, Request, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, is_coupled, several_kernels, vm_of

DURATION_S = 60.0
# Bounds are set then: flows are there, and none has its share yet.
SET_S = 1.0
# From here on all is as it stays.
BEGIN_S = 10.0
# The cap that comes and goes.
FROM_S, TO_S = 20.0, 40.0
# A round trip with a full queue, and one more.
AT_ONCE_S = 0.5
NONE = "none"
CAP = "VM2 at most 2"
FLOOR = "1 : 3, VM1 at least 6"
ALL = "at most 2 and 3"
WHILE = "VM2 at most 2, from 20 to 40 s"


@dataclass(frozen=True)
class Case:
    """The VMs' weights, and what is set: when, of which VM, what."""

    weights: tuple[float, float] = (1, 1)
    sets: tuple[tuple[float, int, dict], ...] = ()


CASES = {
    NONE: Case(),
    CAP: Case(sets=((SET_S, 2, {"cap_mbit": 2}),)),
    FLOOR: Case((1, 3), ((SET_S, 1, {"floor_mbit": 6}),)),
    ALL: Case(sets=((SET_S, 1, {"cap_mbit": 2}), (SET_S, 2, {"cap_mbit": 3}))),
    WHILE: Case(sets=((FROM_S, 2, {"cap_mbit": 2}), (TO_S, 2, {"cap_mbit": None}))),
}


def scenario(case: str, kind: str, seed: int) -> Scenario:
    described = CASES[case]
    counts = zip((1, 4), described.weights, strict=True)
    vms = (vm_of(kind, Flows(count=count), weight=weight) for count, weight in counts)
    plain = several_kernels(kind, seed, DURATION_S, *vms)
    actions = tuple(
        Action(at_s, control=Request("PATCH", f"/v1/vms/vm{vm}", body=body)) for at_s, vm, body in described.sets
    )
    return replace(plain, actions=actions) if is_coupled(kind) else plain


def points(effort: Effort) -> Iterator[Point]:
    cases = effort.pick(tuple(CASES), (CAP, FLOOR))
    for case, kind, seed in product(cases, KINDS, effort.seeds):
        name = "".join(letter if letter.isalnum() else "-" for letter in case)
        yield Point(case, kind, replace(scenario(case, kind, seed), name=f"floors-and-caps-{name}-{kind}-{seed}"))


def rate(vm: int, start_s: float = BEGIN_S, end_s: float = DURATION_S) -> Callable[[Run], float]:
    """A VM's goodput in that time, Mbit/s."""
    return lambda run: run.rate_mbit(f"vm{vm}", start_s, end_s)


def of_both(run: Run) -> float:
    """Goodput of both VMs, Mbit/s."""
    return rate(1)(run) + rate(2)(run)


def drops(run: Run) -> int:
    """Packets dropped from 10 s on: slow start, before anything is set, may lose some."""
    dropped = run.queue["dropped_packets"]
    earlier = dropped[run.queue["time_s"] <= BEGIN_S]
    return int(dropped[-1]) - int(earlier[-1])


MEASURES = {
    "VM1 Mbit/s": rate(1),
    "VM2 Mbit/s": rate(2),
    "both Mbit/s": of_both,
    "VM2 from 20.5 to 40 s": rate(2, FROM_S + AT_ONCE_S, TO_S),
    "VM2 from 50 s": rate(2, 50.0),
}


def _off(data: Data, case: str, measure: Callable[[Run], float], expected: float) -> list[float]:
    """How far it is from what is expected, percentages."""
    return [100 * abs(got / expected - 1) for got in data.each(case, "coupled", measure)]


def _bound_scores(data: Data) -> Iterator[Score]:
    within = {
        CAP: (("VM2 is off its cap by", rate(2), 2.0),),
        FLOOR: (("VM1 is off its floor by", rate(1), 6.0),),
        ALL: (("VM1 is off its cap by", rate(1), 2.0), ("VM2 is off its cap by", rate(2), 3.0)),
        WHILE: (("VM2 is off its cap by, from half a second after", rate(2, FROM_S + AT_ONCE_S, TO_S), 2.0),),
    }
    for case in (case for case in within if case in data.cases):
        for name, measure, expected in within[case]:
            yield Score.worst(f"{case}: {name}", _off(data, case, measure, expected), "%", "<=", 5)


def scores(data: Data) -> list[Score]:
    result = list(_bound_scores(data))
    for case in (CAP, FLOOR):
        both = data.each(case, "coupled", of_both)
        result.append(Score.worst(f"{case}: goodput of both", both, "Mbit/s", ">=", 9.3))
    if WHILE in data.cases:
        parts = [
            100 * abs(2 * second / (first + second) - 1)
            for first, second in zip(
                data.each(WHILE, "coupled", rate(1, 50.0)), data.each(WHILE, "coupled", rate(2, 50.0)), strict=True
            )
        ]
        result.append(Score.worst(f"{WHILE}: half is missed by, ten seconds after", parts, "%", "<=", 10))
    if ALL in data.cases:
        result.append(Score.worst(f"{ALL}: drops", data.each(ALL, "coupled", drops), "packets", "<=", 0))
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("VM1, one flow: goodput, Mbit/s", rate(1), {"bottom": 0}),
        Panel("VM2, four flows: goodput, Mbit/s", rate(2), {"bottom": 0}),
    ]
    plots.against_case(data, panels, "what is set, Mbit/s", stem)


FIGURE = Figure("Floors and caps of VMs", "none: new", points, scores, plot, MEASURES)
