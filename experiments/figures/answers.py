# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A server that answers far clients beside a bulk flow, of another VM or of its own.

Each answer is a connection of its own, of which nothing is known until its first acknowledgement. Most of the time
one of them waits for that, and has nothing more to send.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ccc_experiments import completion, plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, one_kernel, several_kernels, vm_of

BEGIN_S, LAST_S, DURATION_S = 2.0, 23.0, 25.0
# The bulk flow's slow start is over.
FROM_S = 5.0
BULK_DELAY_MS = 20.0
# Parts of the mean that an answer may have, each as often as another.
SIZES = (0.2, 0.5, 1.0, 1.0, 2.3)


@dataclass(frozen=True)
class Answers:
    """So many of so many kilobytes in the mean a second, to clients so far away."""

    per_s: float
    kbyte: float
    delay_ms: float
    rate_mbit: float
    queue_packets: int
    one_vm: bool = False

    def __str__(self) -> str:
        where = ", in one VM" if self.one_vm else ""
        return f"{self.per_s:g} / s × {self.kbyte:g} KB, {self.delay_ms:g} ms, {self.rate_mbit:g} Mbit/s{where}"

    def bottleneck(self) -> Bottleneck:
        return Bottleneck(rate_mbit=self.rate_mbit, delay_ms=0, limit_packets=self.queue_packets)

    def flows(self, random: Random) -> Iterator[Flows]:
        at_s = BEGIN_S + random.expovariate(self.per_s)
        while at_s < LAST_S:
            size = round(1000 * self.kbyte * random.choice(SIZES))
            yield Flows(start_s=round(at_s, 3), start_spread_ms=1, bytes=size)
            at_s += random.expovariate(self.per_s)


ONE_VM = Answers(20, 30, 40, 100, 160, one_vm=True)
CASES = (
    Answers(20, 30, 40, 100, 160),
    Answers(5, 30, 100, 100, 160),
    Answers(10, 30, 80, 50, 80),
    Answers(10, 20, 40, 20, 40),
    Answers(2, 30, 100, 10, 83),
    ONE_VM,
    Answers(10, 30, 80, 50, 80, one_vm=True),
)
# Why a bound does not hold.
STRAYS = (
    "in the mean nothing is lost, but a bulk flow of its VM reduces as it does uncoupled, after which the path is not "
    "full for seconds: runs stray by a tenth"
)


def scenario(answers: Answers, kind: str, seed: int) -> Scenario:
    flows, path = tuple(answers.flows(Random(seed))), answers.bottleneck()
    if answers.one_vm:
        vm = vm_of(kind, *flows, Flows(), delay_ms=answers.delay_ms)
        return one_kernel(kind, seed, DURATION_S, vm, bottleneck=path)
    server = vm_of(kind, *flows, delay_ms=answers.delay_ms)
    return several_kernels(
        kind, seed, DURATION_S, server, vm_of(kind, Flows(), delay_ms=BULK_DELAY_MS), bottleneck=path
    )


def points(effort: Effort) -> Iterator[Point]:
    return grid("answers", effort, effort.pick(CASES, CASES[2:3]), KINDS, scenario)


def sum_mbit(run: Run) -> float:
    return sum(run.all_flow_rates_mbit(FROM_S, LAST_S))


def median_s(run: Run) -> float:
    return completion.median_s(completion.times_s(run, 0))


def p95_s(run: Run) -> float:
    return completion.p95_s(completion.times_s(run, 0))


MEASURES = {
    "sum Mbit/s": sum_mbit,
    "median s": median_s,
    "p95 s": p95_s,
    "dropped": lambda run: run.dropped(FROM_S, LAST_S),
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:

        def over(measure, case=case):
            return data.ratio(case, "coupled", "uncoupled", measure)

        result += [
            Score.ratio(f"{case}: coupled over uncoupled goodput", over(sum_mbit), ">=", 0.98),
            Score.ratio(f"{case}: coupled over uncoupled median of completion", over(median_s), "<=", 1.0),
            Score.ratio(f"{case}: coupled over uncoupled drops", over(MEASURES["dropped"]), "<=", 1.0),
        ]
    return result


def of_the_rate(run: Run) -> float:
    return sum_mbit(run) / run.scenario.bottleneck.rate_mbit


def plot(data: Data, stem: Path) -> None:
    panels = {
        "sum of goodput, of the rate": of_the_rate,
        "median of completion, s": median_s,
        "p95 of completion, s": p95_s,
        "packets dropped": MEASURES["dropped"],
    }
    plots.bars_by_case(data, panels, 13, "answers, round-trip time, rate", stem)


FIGURE = Figure(
    "a server that answers far clients beside a bulk flow",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {f"{ONE_VM}: coupled over uncoupled goodput": Known(STRAYS, 0.97)},
)
