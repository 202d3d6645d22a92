# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""VMs share the bottleneck by their weights, however many flows each opens."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import FIRST_SECOND_MS, KINDS, several_kernels, vm_of
from ccc_experiments.sharing import MEASURES, PANELS, jain, share_error_scores, uneven_seconds

DURATION_S = 60.0
# At 100 Mbit/s.
FAST_S = 30.0


@dataclass(frozen=True)
class Case:
    """Flows of each VM, and its weight."""

    flows: tuple[int, ...]
    weights: tuple[float, ...]
    path: Bottleneck = Bottleneck()
    # Whether all start within 0.1 s, in place of the first second.
    at_once: bool = False

    @property
    def alike(self) -> bool:
        """Whether each VM has as many flows for its weight as any other: then so has TCP by itself."""
        return len({count / weight for count, weight in zip(self.flows, self.weights)}) == 1

    def __str__(self) -> str:
        flows = ":".join(map(str, self.flows))
        if len(set(self.weights)) > 1:
            flows += f" ({':'.join(f'{weight:g}' for weight in self.weights)})"
        if self.path != Bottleneck():
            flows += f", {self.path.rate_mbit:g} Mbit/s"
        return flows + (", at once" if self.at_once else "")


def equal(*flows: int, **more) -> Case:
    return Case(flows, (1,) * len(flows), **more)


# One bandwidth-delay product of queue at ten times the rate.
FAST = Bottleneck(rate_mbit=100, delay_ms=20, limit_packets=167)


CASES = (
    *(equal(1, count) for count in (1, 2, 3, 4, 8, 16)),
    equal(1, 3, 8),
    equal(1, 2, 4, 8),
    equal(1, 1, 2, 2, 4, 4, 8, 8),
    equal(1, 1, 2, 2, 4, 4, 8, 8, at_once=True),
    equal(1, 4, at_once=True),
    equal(1, 4, path=FAST),
    Case((1, 4), (3, 1)),
    Case((1, 16), (3, 1)),
    Case((1, 8, 3), (1, 2, 3)),
)
# Why a bound does not hold.
BURST = "begin within 0.1 s send more than the path holds before the first ACK"
QUICK = (equal(1, 4), equal(1, 16), Case((1, 4), (3, 1)))


def scenario(case: Case, kind: str, seed: int) -> Scenario:
    spread_ms = None if case.at_once else FIRST_SECOND_MS
    vms = tuple(
        vm_of(kind, Flows(count=count, start_spread_ms=spread_ms), weight=weight)
        for count, weight in zip(case.flows, case.weights)
    )
    duration_s = DURATION_S if case.path == Bottleneck() else FAST_S
    return several_kernels(kind, seed, duration_s, *vms, bottleneck=case.path)


def points(effort: Effort) -> Iterator[Point]:
    return grid("vm-fairness", effort, effort.pick(CASES, QUICK), KINDS, scenario)


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        name = f"{case}: least Jain's index of the VMs, by weight, coupled"
        goodput = data.ratio(case, "coupled", "uncoupled", MEASURES["sum Mbit/s"])
        result += [
            data.worst(name, case, "coupled", jain, "1", ">=", 0.995, guard=case.alike),
            *share_error_scores(data, case, guard=case.alike),
            Score.ratio(f"{case}: coupled over uncoupled goodput", goodput, ">=", 0.99),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    plots.against_case(data, PANELS, "flows of the VMs (weights)", stem)


FIGURE = Figure(
    "fairness of VMs with different numbers of flows",
    "dissertation Figures 3.1 and 9.13",
    points,
    scores,
    plot,
    MEASURES,
    {"1:1:2:2:4:4:8:8, at once: coupled over uncoupled goodput": Known(BURST, 0.97)}
    | {
        name: known
        for case in CASES
        if case.path != FAST
        for name, known in uneven_seconds(str(case), max(case.flows)).items()
    },
)
