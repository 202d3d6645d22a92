# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Far VMs come, leave and come back beside a near one that its application limits.

While the near one is alone its flows have a segment or two in flight, and at its distance
a segment is a large rate: times the round-trip time of far flows more than any path holds.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

NEAR_MS, FAR_MS = (1.0, 2.0, 5.0), 100.0
# Of each of the near VM's flows; the path has 10 Mbit/s.
NEAR_FLOWS, NEAR_KBIT = 4, 300.0
FAR_FLOWS = 2
FIRST_S, PERIOD_S, SPAN_S, DURATION_S = 3, 5, 3, 43
# The far VMs are there from, and until.
SPANS = tuple((at_s, at_s + SPAN_S) for at_s in range(FIRST_S, DURATION_S - SPAN_S, PERIOD_S))


def scenario(near_ms: float, kind: str, seed: int) -> Scenario:
    there = [Flows(count=FAR_FLOWS, start_s=start_s, stop_s=stop_s) for start_s, stop_s in SPANS]
    far = [vm_of(kind, *there, delay_ms=FAR_MS) for _ in range(2)]
    near = vm_of(kind, Flows(count=NEAR_FLOWS, rate_kbit=NEAR_KBIT), delay_ms=near_ms)
    return several_kernels(kind, seed, DURATION_S, near, *far)


def points(effort: Effort) -> Iterator[Point]:
    return grid("returns", effort, effort.pick(NEAR_MS, NEAR_MS[:1]), KINDS, scenario)


def far_mbit(run: Run) -> float:
    """Of both far VMs, while they are there."""
    return fmean(sum(run.rate_mbit(vm, *span) for vm in ("vm2", "vm3")) for span in SPANS)


MEASURES = {
    "far VMs Mbit/s": far_mbit,
    "near VM Mbit/s": lambda run: run.rate_mbit("vm1", FIRST_S, DURATION_S),
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for near_ms in data.cases:
        far, near, dropped = (data.ratio(near_ms, "coupled", "uncoupled", measure) for measure in MEASURES.values())
        result += [
            Score.ratio(f"{near_ms:g} ms: coupled over uncoupled goodput of far VMs", far, ">=", 0.98),
            Score.ratio(f"{near_ms:g} ms: coupled over uncoupled goodput of the near VM", near, ">=", 0.95),
            Score.ratio(f"{near_ms:g} ms: coupled over uncoupled dropped", dropped, "<=", 0.2),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("far VMs while they are there, Mbit/s", far_mbit, {"bottom": 0, "top": 10.4}),
        Panel("near VM, Mbit/s", MEASURES["near VM Mbit/s"], {"bottom": 0}),
        Panel("packets dropped", MEASURES["dropped"], {"bottom": 0}),
    ]
    plots.against_case(data, panels, "round-trip time of the near VM without a queue, ms", stem)


FIGURE = Figure(
    "far VMs come back beside a near one that its application limits", "none: new", points, scores, plot, MEASURES
)
