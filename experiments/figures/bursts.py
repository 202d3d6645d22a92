# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Bulk flows of one VM beside VMs that write in bursts, as applications do.

Each burst wants its VM's share of the path at once, which is the others' between two of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Phase, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

BULK_FLOWS = 2
BEGIN_S, DURATION_S = 8.0, 24.0
# The bulk flows' slow start is over, and there have been bursts.
FROM_S = 10.0
# An application takes so long to write a burst.
WRITES_S = 0.1


@dataclass(frozen=True)
class Bursts:
    """So many kilobytes in the mean of each of these VMs, and again so many seconds later."""

    kbyte: float
    every_s: float
    delay_ms: float
    queue_packets: int
    vms: int = 1
    # Sizes and times are up to this part more or less than the mean.
    varies: float = 0.0

    def __str__(self) -> str:
        several = f"{self.vms} × " if self.vms > 1 else ""
        about = "about " if self.varies else ""
        return f"{several}{about}{self.kbyte:g} KB / {self.every_s:g} s, {self.delay_ms:g} ms, {self.queue_packets}"

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(delay_ms=self.delay_ms, limit_packets=self.queue_packets)

    def phases(self, random: Random) -> Iterator[Phase]:
        def drawn(mean: float) -> float:
            return mean * (1 + random.uniform(-self.varies, self.varies))

        at_s = BEGIN_S + random.random() * self.every_s
        while at_s + WRITES_S < DURATION_S:
            yield Phase(round(at_s, 3), rate_kbit=round(8 * drawn(self.kbyte) / WRITES_S))
            yield Phase(round(at_s + WRITES_S, 3), rate_kbit=0)
            at_s += drawn(self.every_s)


OFTEN = Bursts(75, 0.25, 100, 40)
FAR = Bursts(250, 0.8, 200, 83)
SEVERAL = Bursts(60, 0.5, 100, 20, vms=2, varies=0.6)
CASES = (
    Bursts(75, 0.5, 100, 20),
    FAR,
    Bursts(75, 0.5, 40, 20),
    Bursts(250, 1.0, 100, 40),
    OFTEN,
    SEVERAL,
)
# Why bounds do not hold.
CANNOT_TAKE = "in that time the others cannot take all"
STRAYS = "in the mean nothing is lost, but runs stray by a tenth"


def scenario(bursts: Bursts, kind: str, seed: int) -> Scenario:
    random = Random(seed)
    bulk = vm_of(kind, Flows(count=BULK_FLOWS))
    writers = [vm_of(kind, Flows(rate_kbit=0, phases=tuple(bursts.phases(random)))) for _ in range(bursts.vms)]
    return several_kernels(kind, seed, DURATION_S, bulk, *writers, bottleneck=bursts.bottleneck())


def points(effort: Effort) -> Iterator[Point]:
    return grid("bursts", effort, effort.pick(CASES, CASES[:1]), KINDS, scenario)


def sum_mbit(run: Run) -> float:
    return sum(run.all_flow_rates_mbit(FROM_S, DURATION_S))


def bulk_mbit(run: Run) -> float:
    return run.rate_mbit("vm1", FROM_S, DURATION_S)


MEASURES = {
    "sum Mbit/s": sum_mbit,
    "bulk Mbit/s": bulk_mbit,
    "dropped": lambda run: run.dropped(FROM_S, DURATION_S),
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        goodput = data.ratio(case, "coupled", "uncoupled", sum_mbit)
        dropped = data.ratio(case, "coupled", "uncoupled", MEASURES["dropped"])
        result += [
            Score.ratio(f"{case}: coupled over uncoupled goodput", goodput, ">=", 0.98),
            Score.ratio(f"{case}: coupled over uncoupled drops", dropped, "<=", 1.0),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    panels = {
        "sum of goodput, Mbit/s": sum_mbit,
        "of the bulk flows, Mbit/s": bulk_mbit,
        "packets dropped": MEASURES["dropped"],
    }
    plots.bars_by_case(data, panels, 11, "bursts, round-trip time, queue", stem)


FIGURE = Figure(
    f"{BULK_FLOWS} bulk flows beside VMs that write in bursts",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {
        f"{OFTEN}: coupled over uncoupled goodput": Known(CANNOT_TAKE, 0.85),
        f"{FAR}: coupled over uncoupled goodput": Known(STRAYS, 0.97),
        f"{SEVERAL}: coupled over uncoupled goodput": Known(STRAYS, 0.97),
    },
)
