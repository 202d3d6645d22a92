# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The fairness of 1 against 4 flows with other inner algorithms, marks in place
of losses, IPv6, and segments of different sizes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, is_coupled, several_kernels
from ccc_experiments.sharing import MEASURES, PANELS, jain

DURATION_S = 60.0


@dataclass(frozen=True)
class Case:
    """What is other than usual."""

    name: str
    algorithm: str = "reno"
    ecn: bool = False
    ipv6: bool = False
    # Of the flow of VM1, and of the flows of VM2.
    mss: tuple[int | None, ...] = (None,) * 5

    def __str__(self) -> str:
        return self.name


CASES = (
    Case("as usual"),
    Case("inner CUBIC", algorithm="cubic"),
    Case("ECN", ecn=True),
    Case("IPv6", ipv6=True),
    Case("mixed MSS", mss=(536, 1448, 1200, 900, 536)),
)
# Packets that waited longer are marked: about a third of the queue.
MARK_MS = 35.0


def vm(case: Case, kind: str, segments: tuple[int | None, ...]) -> Vm:
    flows = tuple(Flows(mss=mss) for mss in segments)
    control = "ccc" if is_coupled(kind) else case.algorithm
    options = f"inner={case.algorithm}"
    return Vm(flows, congestion_control=control, module_options=options, ecn=case.ecn)


def scenario(case: Case, kind: str, seed: int) -> Scenario:
    vms = (vm(case, kind, case.mss[:1]), vm(case, kind, case.mss[1:]))
    bottleneck = Bottleneck(mark_ms=MARK_MS if case.ecn else None)
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck, ipv6=case.ipv6)


def points(effort: Effort) -> Iterator[Point]:
    return grid("variants", effort, effort.pick(CASES, CASES[1:]), KINDS, scenario)


def scores(data: Data) -> list[Score]:
    return [
        data.worst(f"{case}: least Jain's index, coupled", case, "coupled", jain, "1", ">=", 0.995)
        for case in data.cases
    ]


def plot(data: Data, stem: Path) -> None:
    plots.against_case(data, PANELS, "", stem)


FIGURE = Figure(
    "fairness of 1 against 4 flows, variants", "none: new", points, scores, plot, MEASURES
)
