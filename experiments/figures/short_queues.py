# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Queues of 20, 10 and 5 packets, with bursty cross traffic.

A first report on coupled TCPs (2000) found its own coupling worse than none
there.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Cross, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, KINDS_OF_TWO, of_kind, one_kernel, outsider, vm_of

QUEUES = (20, 10, 5)
FLOWS = 4
# Ten sources of 500 kbit/s while on, with a shape of 1.5.
CROSS = Cross(0.25, streams=10, hurst=0.75, packets_s=(62.5, 62.5), bytes=(1000, 0))
DURATION_S = 100.0
# What the aggregate is worth, in place of the four.
ONE = "one Reno flow"
# The same with module and daemon.
ONE_COUPLED = "coupled, one flow"
# The aggregate worth as many TCPs as it has flows.
AS_MANY = f"coupled as {FLOWS}"
# So many grouped flows, worth as many, beside as many individual ones in the
# same run: the source's tables, and its figures with and without cross traffic.
BESIDE_FOUR, BESIDE_TWO, BESIDE_ALONE = "4 beside 4", "2 beside 2", "2 beside 2, no cross"
BESIDE = {BESIDE_FOUR: 4, BESIDE_TWO: 2, BESIDE_ALONE: 2}
# Why bounds do not hold.
ONE_TCP = "one TCP cannot fill a short queue with bursts beside it, and the aggregate is one TCP"
SMALL_WINDOWS = "each of the four has a window of a few segments, and waits for delayed ACKs"
LOSES_AS_MANY = "At a queue of 10 packets four flows worth four lose 1.01 of what uncoupled ones lose in one run"
# What goodput is all the same, of one Reno flow's and of four uncoupled ones', by the queue.
OF_ONE = {packets: Known(SMALL_WINDOWS, floor) for packets, floor in zip(QUEUES, (0.95, 0.9, 0.9))}
OF_FOUR = {packets: Known(ONE_TCP, floor) for packets, floor in zip(QUEUES, (0.9, 0.8, 0.55))}


def scenario(packets: int, kind: str, seed: int) -> Scenario:
    path = {
        "bottleneck": Bottleneck(rate_mbit=10, limit_packets=packets, delay_ms=20),
        "cross": None if kind == BESIDE_ALONE else CROSS,
        "group": {"equivalent_tcps": BESIDE.get(kind, FLOWS)} if kind in (AS_MANY, *BESIDE) else {},
    }
    if kind in BESIDE:
        flows = Flows(count=BESIDE[kind])
        return one_kernel("coupled", seed, DURATION_S, vm_of("coupled", flows), outsider(flows), **path)
    if kind in KINDS_OF_TWO:
        return of_kind(kind, seed, DURATION_S, *(Flows(count=FLOWS // 2),) * 2, **path)
    return of_kind(kind, seed, DURATION_S, Flows(count=1 if kind in (ONE, ONE_COUPLED) else FLOWS), **path)


def points(effort: Effort) -> Iterator[Point]:
    kinds = (*KINDS, AS_MANY, ONE, ONE_COUPLED, *KINDS_OF_TWO, *BESIDE)
    return grid("short-queues", effort, effort.pick(QUEUES, (10,)), kinds, scenario)


def of_individual(run: Run) -> float:
    """Segments sent again by the grouped, of those by the individual flows."""
    return run.retransmissions("vm1") / max(1, run.retransmissions("vm2"))


def part(run: Run) -> float:
    """The grouped flows' part of the goodput."""
    return run.measured.vm_goodput_mbit[0] / run.measured.sum_mbit


MEASURES = {
    "goodput Mbit/s": lambda run: run.measured.sum_mbit,
    "retransmissions": lambda run: run.retransmissions(),
    "dropped": lambda run: run.measured.dropped_packets,
    "RTT ms": lambda run: run.srtt_ms("vm1", 0, DURATION_S),
}


def scores(data: Data) -> list[Score]:
    result = []
    for packets in data.cases:
        for kind in ("coupled", AS_MANY):
            result += _not_worse(data, packets, kind)
        result += [_goodput(data, packets, kind, ONE) for kind in ("coupled", ONE_COUPLED)]
        result += _not_worse(data, packets, KINDS_OF_TWO[1], KINDS_OF_TWO[0])
        for kind in BESIDE:
            again, share = (data.mean(packets, kind, measure) for measure in (of_individual, part))
            name = f"queue of {packets}: {kind}, grouped"
            result += [
                Score.ratio(f"{name} over individual retransmissions", again, "<=", 1),
                Score.mean(f"{name}: part of the goodput", share, "ratio", ">=", 0.45, guard=True),
            ]
    return result


def _not_worse(data: Data, packets: int, kind: str, other: str = "uncoupled") -> list[Score]:
    """What says that a kind is not worse than none."""
    result = []
    for name in ("retransmissions", "dropped"):
        ratio = data.ratio(packets, kind, other, MEASURES[name])
        what = f"queue of {packets}: {kind} over {other} {name}"
        result.append(Score.ratio(what, ratio, "<=", 1))
    return [*result, _goodput(data, packets, kind, other)]


def _goodput(data: Data, packets: int, kind: str, other: str) -> Score:
    ratio = data.ratio(packets, kind, other, MEASURES["goodput Mbit/s"])
    # All others are uncoupled: four, four of two VMs, or one, which four have no less than.
    return Score.ratio(_goodput_over(packets, kind, other), ratio, ">=", 0.99)


def _goodput_over(packets: int, kind: str, other: str) -> str:
    return f"queue of {packets}: goodput, {kind} over {other}"


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput, Mbit/s", MEASURES["goodput Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("retransmissions", MEASURES["retransmissions"]),
        Panel("packets dropped", MEASURES["dropped"]),
        Panel("mean round-trip time, ms", MEASURES["RTT ms"], {"bottom": 20}),
    ]
    plots.against_case(data, panels, "queue, packets", stem)


FIGURE = Figure(
    "four flows and bursty cross traffic at short queues",
    "TCP Control Groups, Tables 2 to 4",
    points,
    scores,
    plot,
    MEASURES,
    {
        _goodput_over(packets, kind, other): known[packets]
        for packets in QUEUES
        for kind, other, known in (
            ("coupled", ONE, OF_ONE),
            ("coupled", "uncoupled", OF_FOUR),
            (KINDS_OF_TWO[1], KINDS_OF_TWO[0], OF_FOUR),
        )
    }
    | {f"queue of 10: {AS_MANY} over uncoupled dropped": Known(LOSES_AS_MANY, 1.1)},
)
