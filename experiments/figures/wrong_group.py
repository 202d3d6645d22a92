# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""VMs in one group that share no bottleneck: what it costs, and when the daemon says so.

Beside them groups that are right, of whose VMs nothing may be said.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Bottleneck, Flows, Link, Request, Scenario, Vm
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, is_coupled, several_kernels, vm_of

DURATION_S = 40.0
# From here on all flows are there.
BEGIN_S = 5.0
# How often the daemon is asked.
LOOK_S = 0.5
# Until then it has to be said.
SAID_S = 20.0
RIGHT = "right: "


def _own(kind: str, mbit: float, count: int = 1) -> Vm:
    """A VM with a link of its own, of one product of queue."""
    link = Link(mbit, limit_packets=round(mbit * 8.3), past_bottleneck=True)
    return vm_of(kind, Flows(count=count), link=link)


def _nobody(kind: str) -> tuple[Vm, ...]:
    return tuple(_own(kind, mbit) for mbit in (10, 20, 40))


def _one(kind: str) -> tuple[Vm, ...]:
    return vm_of(kind, Flows()), vm_of(kind, Flows()), _own(kind, 10)


def _two(kind: str) -> tuple[Vm, ...]:
    return _own(kind, 10, count=4), _own(kind, 20)


def _right(kind: str) -> tuple[Vm, ...]:
    return tuple(vm_of(kind, Flows(count=count)) for count in (1, 1, 4))


def _distances(kind: str) -> tuple[Vm, ...]:
    return tuple(vm_of(kind, Flows(), delay_ms=delay_ms) for delay_ms in (20, 80, 200))


def _limited(kind: str) -> tuple[Vm, ...]:
    return vm_of(kind, Flows()), vm_of(kind, Flows()), vm_of(kind, Flows(rate_kbit=1000))


# The VMs and packets of the bottleneck's queue.
CASES = {
    "one of three": (_one, 83),
    "nobody of two": (_two, 83),
    "nobody of three": (_nobody, 83),
    RIGHT + "1, 1, 4 flows": (_right, 83),
    RIGHT + "queue of 20": (_right, 20),
    RIGHT + "20 to 200 ms": (_distances, 83),
    RIGHT + "one limited": (_limited, 83),
}


def scenario(case: str, kind: str, seed: int) -> Scenario:
    vms, packets = CASES[case]
    bottleneck = Bottleneck(limit_packets=packets)
    plain = several_kernels(kind, seed, DURATION_S, *vms(kind), bottleneck=bottleneck)
    request = Request("GET", "/v1/groups/uplink")
    looks = (Action(i * LOOK_S, control=request) for i in range(1, int(DURATION_S / LOOK_S)))
    return replace(plain, actions=tuple(looks)) if is_coupled(kind) else plain


def points(effort: Effort) -> Iterator[Point]:
    cases = effort.pick(tuple(CASES), ("one of three", RIGHT + "1, 1, 4 flows"))
    for case, kind, seed in product(cases, KINDS, effort.seeds):
        name = "".join(letter if letter.isalnum() else "-" for letter in case)
        yield Point(case, kind, replace(scenario(case, kind, seed), name=f"wrong-group-{name}-{kind}-{seed}"))


def goodput(run: Run) -> float:
    """Of all VMs, Mbit/s."""
    return sum(_each_goodput(run))


def _each_goodput(run: Run) -> list[float]:
    vms = range(1, len(run.scenario.vms) + 1)
    return [run.rate_mbit(f"vm{i}", BEGIN_S, DURATION_S) for i in vms]


def first_said(run: Run) -> float:
    """When a VM was first said to be apart, s; the run's length if none was."""
    if not run.scenario.coupled:
        return DURATION_S
    records = json.loads((run.raw / "actions.json").read_text())
    said = (
        record["action"]["at_s"]
        for record in records
        if any(vm["evidence"]["apart"] for vm in record["answer"]["vms"])
    )
    return next(said, DURATION_S)


MEASURES = {
    "goodput Mbit/s": goodput,
    "first VM": lambda run: _each_goodput(run)[0],
    "second VM": lambda run: _each_goodput(run)[1],
    "last VM": lambda run: _each_goodput(run)[-1],
    "said after s": first_said,
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        said = data.each(case, "coupled", first_said)
        if case.startswith(RIGHT):
            alarms = [at_s < DURATION_S for at_s in said]
            result.append(Score.worst(f"{case}: a VM was said to be apart (1) or none (0)", alarms, "1", "<=", 0))
        else:
            result.append(Score.worst(f"{case}: latest time at which it was said", said, "s", "<=", SAID_S))
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput of all VMs, Mbit/s", goodput, {"bottom": 0}),
        Panel(f"said after, s ({DURATION_S:g}: not)", first_said, {"bottom": 0, "top": DURATION_S + 2}),
    ]
    plots.against_case(data, panels, "which VMs are not behind the bottleneck", stem)


FIGURE = Figure(
    "VMs in one group that share no bottleneck", "none: new", points, scores, plot, MEASURES
)
