# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How long a short flow of 200 KB takes beside a long one of 25 MB, 1 to 10 Mbit/s.

What the join of the short flow loses is what an overflow of the queue in its
first round trips loses beyond one in the same run without it. Both are in one VM,
or each has its own.
"""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.interval import Interval
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import JOINS, KINDS, KINDS_OF_TWO, TWO_VMS, UNCLOCKED, of_kind

RATES_MBIT = tuple(range(1, 11))
LONG_BYTES, SHORT_BYTES = 25_000_000, 200_000
LONG, SHORT = 0, 1
SHORT_AT_S = 6.0
# A coupled run without the short flow, to compare with.
ALONE = "coupled, long alone"
# The short flow in a VM of its own, and the capacities at which.
ALONE_OF_TWO = f"{ALONE}{TWO_VMS}"
RATES_OF_TWO = (3, 6, 10)
# By then the short flow has ended.
ALONE_S = 16
# The first four round trips of a flow that comes to a full queue.
JOIN_S = 0.8
# The losses of one overflow of the queue are within two round trips.
OVERFLOW_S = 0.4
# Why bounds do not hold.
NO_ROOM = "half of 3 Mbit/s needs 1.1 s for 200 KB, and a handshake and a round trip come to it"
FULL_QUEUE = "at 4 Mbit/s the queue is full when the short flow comes, and its first packets find no room"

FULL_OR_NOT = "what the short flow gains depends on how full the queue is when it starts: with one seed it is 39.3 %"


def queue_packets(rate_mbit: float) -> int:
    """One bandwidth-delay product of 100 ms."""
    return round(rate_mbit * 1e6 * 0.1 / 8 / 1500)


def scenario(rate_mbit: int, kind: str, seed: int) -> Scenario:
    if kind in (ALONE, ALONE_OF_TWO):
        return beside_long(rate_mbit, kind, seed, None, ALONE_S)
    enough_s = round(LONG_BYTES * 8 / (0.93e6 * rate_mbit) + 20)
    return beside_long(rate_mbit, kind, seed, SHORT_BYTES, enough_s)


def beside_long(
    rate_mbit: int, kind: str, seed: int, short_bytes: int | None, duration_s: float
) -> Scenario:
    """A long flow and, if it has bytes, a short one that joins it."""
    random = Random(seed)
    long = Flows(start_s=random.uniform(0, 0.9), bytes=LONG_BYTES)
    short = Flows(start_s=SHORT_AT_S + random.uniform(0, 0.9), bytes=short_bytes)
    flows = (long, short) if short_bytes else (long,)
    bottleneck = Bottleneck(rate_mbit=rate_mbit, limit_packets=queue_packets(rate_mbit))
    return of_kind(kind, seed, duration_s, *flows, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    cases = effort.pick(RATES_MBIT, (2, 6, 10))
    yield from grid("short-flows", effort, cases, (*KINDS, *JOINS), scenario, controls=(ALONE,))
    of_two = effort.pick(RATES_OF_TWO, (6, 10))
    yield from grid("short-flows", effort, of_two, KINDS_OF_TWO, scenario, controls=(ALONE_OF_TWO,))


def completion_s(run: Run, flow: int) -> float:
    summary = run.flows()[flow]
    if not summary["completed"]:
        raise ValueError(f"{run.scenario.name}: flow {flow} was not completed")
    return summary["end_s"] - summary["start_s"]


def lost_by_join(data: Data, kind: str, *rates: int) -> Interval:
    """Packets lost by the short flow's join, the mean of these capacities in each run.

    The long flow makes the queue overflow by itself from time to time, and
    somewhat sooner in company.  So an overflow is compared with the next one of
    the same run without the short flow, whenever that is.
    """
    alone = ALONE_OF_TWO if kind.endswith(TWO_VMS) else ALONE
    each = [map(_lost_more, data.runs(rate, kind), data.runs(rate, alone)) for rate in rates]
    return Interval.of([fmean(lost) for lost in zip(*each, strict=True)])


def _lost_more(run: Run, alone: Run) -> int:
    start_s = run.flows()[SHORT]["start_s"]
    at_s, lost = _overflow(run, start_s)
    return lost - _overflow(alone, start_s)[1] if at_s < start_s + JOIN_S else 0


def _overflow(run: Run, after_s: float) -> tuple[float, int]:
    """When the queue next overflows, and how many packets that loses."""
    times, dropped = run.queue["time_s"], run.queue["dropped_packets"]
    since = times[dropped > dropped[times <= after_s][-1]]
    return (since[0], run.dropped(after_s, since[0] + OVERFLOW_S)) if len(since) else (inf, 0)


MEASURES = {
    "short s": lambda run: completion_s(run, SHORT),
    "long s": lambda run: completion_s(run, LONG),
    "retransmissions": lambda run: run.retransmissions(),
}


def scores(data: Data) -> list[Score]:
    result = []
    for rate in data.cases:
        for kinds in (KINDS, KINDS_OF_TWO):
            if data.has(rate, kinds[0]):
                result += _beside_long_scores(data, rate, *kinds)
    without_clock = lost_by_join(data, UNCLOCKED, *data.cases)
    name = f"all capacities: packets lost by the join, {UNCLOCKED}"
    return [*result, Score.mean(name, without_clock, "packets", ">=", 1, guard=True)]


def _beside_long_scores(data: Data, rate: int, uncoupled: str, coupled: str) -> list[Score]:
    short, long = (data.ratio(rate, coupled, uncoupled, MEASURES[name]) for name in ("short s", "long s"))
    lost, where = lost_by_join(data, coupled, rate), coupled.removeprefix("coupled")
    claimed = Score.mean(
        f"{rate} Mbit/s: short flow faster by{where}", short.scaled(-100, 100), "%", ">=", 45 if rate == 10 else 40,
        uncoupled=0.0,
    )  # fmt: skip
    slower = f"{rate} Mbit/s: long flow slower by{where}"
    return [
        *([claimed] if rate >= 3 else []),
        Score.mean(slower, long.scaled(100, -100), "%", "<=", 0.7, uncoupled=0.0, guard=True),
        Score.mean(f"{rate} Mbit/s: packets lost by the join, {coupled}", lost, "packets", "<=", 0, guard=True),
    ]


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("short flow, s", MEASURES["short s"]),
        Panel("long flow, s", MEASURES["long s"]),
        Panel("retransmissions of both", MEASURES["retransmissions"]),
    ]
    plots.against_case(data, panels, "capacity, Mbit/s", stem)


FIGURE = Figure(
    "completion time of a short flow beside a long one",
    "dissertation Figures 7.2, 9.7 and 9.8, paper Figure 4",
    points,
    scores,
    plot,
    MEASURES,
    {
        "3 Mbit/s: short flow faster by": Known(NO_ROOM, -15),
        "4 Mbit/s: packets lost by the join, coupled": Known(FULL_QUEUE, 4),
        "6 Mbit/s: short flow faster by": Known(FULL_OR_NOT, 30),
    },
)
