# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Short flows of 50 KB that start at once, over a grid of paths.

`cold-start` has the papers' path; here are 2 to 100 Mbit/s and 20 to 150 ms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, one_kernel, vm_of

from .cold_start import BYTES, MEASURES, last_s

RATES_MBIT, DELAYS_MS, COUNTS = (2, 10, 50, 100), (20, 60, 150), (2, 8, 16, 32)
# What the link carries at least of what is sent, retransmissions and timeouts included.
LEAST_USED = 0.25
# One bandwidth-delay product of queue, but no fewer packets.
LEAST_QUEUE_PACKETS = 10


@dataclass(frozen=True)
class Case:
    """A path and the flows that start on it."""

    rate_mbit: int
    delay_ms: int
    count: int

    def __str__(self) -> str:
        return f"{self.rate_mbit} Mbit/s x {self.delay_ms} ms, {self.count} flows"

    @property
    def queue_packets(self) -> int:
        """One product."""
        return max(LEAST_QUEUE_PACKETS, round(self.rate_mbit * self.delay_ms * 1000 / 8 / 1514))

    @property
    def duration_s(self) -> float:
        """Enough for all of them."""
        return 3 + self.count * BYTES * 8 / (LEAST_USED * self.rate_mbit * 1e6)


GRID = tuple(Case(*each) for each in product(RATES_MBIT, DELAYS_MS, COUNTS))
# Those where six seeds do not show that the time to finish is no longer.
NOT_SHOWN = {
    (2, 20): (2, 16, 32), (2, 60): (8, 16), (2, 150): (8, 16, 32),
    (10, 20): (2, 16, 32), (50, 60): (32,), (100, 20): (32,),
}  # fmt: skip
STRAYS = (
    "13 of 48 cold starts take 0.74 to 1.03 of uncoupled in the mean, above 1 at 2 Mbit/s alone, and stray from run "
    "to run as last losses do"
)
QUICK = (Case(2, 60, 8), Case(50, 150, 16))


def scenario(case: Case, kind: str, seed: int) -> Scenario:
    bottleneck = Bottleneck(rate_mbit=case.rate_mbit, delay_ms=case.delay_ms, limit_packets=case.queue_packets)
    flows = vm_of(kind, Flows(count=case.count, bytes=BYTES))
    return one_kernel(kind, seed, case.duration_s, flows, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("cold-start-paths", effort, effort.pick(GRID, QUICK), KINDS, scenario)


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        last = data.ratio(case, "coupled", "uncoupled", last_s)
        result.append(Score.ratio(_name(case), last, "<=", 1))
    return result


def _name(case: Case) -> str:
    return f"{case}: coupled over uncoupled time to finish"


def plot(data: Data, stem: Path) -> None:
    counts = sorted({case.count for case in data.cases})
    figure, axes = plots.subplots(1.2 + 2.4 * len(counts), 3.2, 1, len(counts), sharey=True, squeeze=False)
    for axis, count in zip(axes[0], counts):
        for delay in sorted({case.delay_ms for case in data.cases if case.count == count}):
            cases = [case for case in data.cases if (case.count, case.delay_ms) == (count, delay)]
            ratios = [data.ratio(case, "coupled", "uncoupled", last_s) for case in cases]
            rates = [case.rate_mbit for case in cases]
            axis.errorbar(
                rates, [ratio.mean for ratio in ratios], [ratio.half or 0 for ratio in ratios],
                label=f"{delay} ms", capsize=2, marker="o", ms=4,
            )  # fmt: skip
        axis.axhline(1, color="black", lw=0.8)
        axis.set_xscale("log")
        axis.set_xticks(rates, [f"{rate}" for rate in rates])
        axis.xaxis.minorticks_off()
        axis.set_title(f"{count} flows")
        axis.set_xlabel("capacity, Mbit/s")
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].set_ylabel("time to finish, coupled over uncoupled")
    plots.outside_legend(figure, axes[0, 0], data.seeds)
    plots.save(figure, stem)


FIGURE = Figure(
    "short flows at once in an empty group, over rates and distances",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {_name(Case(*path, count)): Known(STRAYS, 1.15) for path, counts in NOT_SHOWN.items() for count in counts},
)
