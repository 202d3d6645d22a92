# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an outside flow keeps beside coupled ones, by the queue's length.

It is compared with what it has beside one uncoupled Reno TCP in place of them.  Two Reno
TCPs have the same in the mean, so there that is half of what both have; beside Reno CUBIC
takes more than half of itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import UNCOUPLED, Data, Effort, Figure, Point, grid
from ccc_experiments.interval import Interval
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import is_coupled, several_kernels, vm_of

DURATION_S = 100.0
# Nine cases of some kinds and six seeds are some minutes; more would say no more.
MOST_SEEDS = 6
COUNTS = {f"coupled, {count} flows": count for count in (1, 4, 16, 64)}
FEW = tuple(COUNTS)[:3]
_PACKET_BITS = 1514 * 8

# Why a bound is not shown to hold.
STRAYS = (
    "the mean keeps the bound, but an outside flow's part strays by a tenth from run to run, "
    "and few runs do not show it"
)
_NAME = "outside flow beside them over beside one TCP"


@dataclass(frozen=True)
class Case:
    """A path, its queue in bandwidth-delay products, and the outside flow's algorithm."""

    products: float
    outside: str = "reno"
    rate_mbit: float = 10
    delay_ms: float = 100
    policy: str = "ctrltcp"

    def __str__(self) -> str:
        policy = ", policy delay" if self.policy == "delay" else ""
        return f"{self.rate_mbit:g} Mbit/s {self.products:g} {self.outside}{policy}"

    @property
    def kept(self) -> tuple[float, float]:
        """What an outside flow is to keep of its part; a group with a target yields first."""
        return (0.8, 1.2) if self.policy == "delay" else (0.88, 1.12)

    @property
    def bottleneck(self) -> Bottleneck:
        product_packets = self.rate_mbit * 1000 * self.delay_ms / _PACKET_BITS
        return Bottleneck(
            rate_mbit=self.rate_mbit, delay_ms=self.delay_ms, limit_packets=round(self.products * product_packets)
        )


RENO = tuple(Case(products) for products in (0.125, 0.25, 0.5, 1, 2))
NEARER = tuple(Case(products, rate_mbit=40, delay_ms=40) for products in (0.125, 1))
CUBIC = tuple(Case(products, "cubic") for products in (0.25, 1))
DELAY = tuple(Case(1, outside, policy="delay") for outside in ("reno", "cubic"))


def scenario(case: Case, kind: str, seed: int) -> Scenario:
    """The flows of VM1 beside one of VM2, which has no device."""
    ours = vm_of(kind, Flows(count=COUNTS.get(kind, 1)))
    theirs = Vm((Flows(),), congestion_control=case.outside, device=False)
    more = {"group": {"policy": case.policy}} if is_coupled(kind) else {}
    return several_kernels(kind, seed, DURATION_S, ours, theirs, bottleneck=case.bottleneck, **more)


def points(effort: Effort) -> Iterator[Point]:
    fewer = replace(effort, seeds=effort.seeds[:MOST_SEEDS])
    cases = effort.pick((*RENO, *NEARER, *CUBIC, *DELAY), RENO[1:2])
    for case in cases:
        # 64 flows of a segment and a half are all that a product and its queue hold.
        kinds = COUNTS if case in (RENO[3], CUBIC[1]) else FEW
        yield from grid("outside-queues", fewer, [case], (UNCOUPLED, *kinds), scenario)


def outside(run: Run) -> float:
    """Goodput of the outside flow; of two that are alike, of either."""
    both = run.measured.vm_goodput_mbit
    ours, theirs = (vm.congestion_control for vm in run.scenario.vms)
    return sum(both) / 2 if ours == theirs else both[1]


def kept(data: Data, case: Case, kind: str) -> Interval:
    """Of what it has beside one TCP in the mean: of two runs neither is the other's."""
    alone = data.mean(case, UNCOUPLED, outside).mean
    return Interval.of([each / alone for each in data.each(case, kind, outside)])


MEASURES = {
    "outside Mbit/s": lambda run: run.measured.vm_goodput_mbit[1],
    "group Mbit/s": lambda run: run.measured.vm_goodput_mbit[0],
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for case, kind in product(data.cases, COUNTS):
        if not data.has(case, kind):
            continue
        name = f"{case}, {kind}: {_NAME}"
        part = kept(data, case, kind)
        least, most = case.kept
        result += [
            Score.mean(f"{name}, at least", part, "ratio", ">=", least, uncoupled=1, guard=True),
            Score.mean(f"{name}, at most", part, "ratio", "<=", most, uncoupled=1, guard=True),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    figure, axis = plots.subplots(9, 3.8)
    panel = plots.Panel("goodput of the outside flow, % of the rate", share)
    plots.draw(axis, data, panel)
    axis.set_xlabel("rate, queue in bandwidth-delay products, outside flow")
    axis.tick_params(axis="x", labelrotation=20)
    plots.outside_legend(figure, axis, data.seeds)
    plots.save(figure, stem)


def share(run: Run) -> float:
    """The outside flow's part of the rate, percent."""
    return 100 * run.measured.vm_goodput_mbit[1] / run.scenario.bottleneck.rate_mbit


# Where the mean of some runs keeps the bound, and their interval does not.
_STRAYING = [
    *product((RENO[2], *NEARER), FEW, ("at least", "at most")),
    (RENO[3], FEW[1], "at least"),
    (RENO[3], tuple(COUNTS)[3], "at most"),
    (CUBIC[1], FEW[0], "at most"),
    *((CUBIC[1], kind, "at least") for kind in tuple(COUNTS)[1:]),
    (DELAY[0], FEW[1], "at most"),
]


def _known(case: Case, bound: str) -> Known:
    least, most = case.kept
    return Known(STRAYS, least - 0.03 if bound == "at least" else most + 0.03)


FIGURE = Figure(
    "an outside flow beside coupled ones, by the queue", "none: new", points, scores, plot, MEASURES,
    {f"{case}, {kind}: {_NAME}, {bound}": _known(case, bound) for case, kind, bound in _STRAYING},
)  # fmt: skip
