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
from ccc_experiments.scenario import Bottleneck, Cross, Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, one_kernel, vm_of

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
# Why bounds do not hold.
ONE_TCP = "one TCP cannot fill a short queue with bursts beside it, and the aggregate is one TCP"
SMALL_WINDOWS = "each of the four has a window of a few segments, and waits for delayed ACKs"
# What goodput is all the same, of one Reno flow's and of four uncoupled ones', by the queue.
OF_ONE = {20: 0.95, 10: 0.9, 5: 0.9}
OF_FOUR = {20: 0.9, 10: 0.8, 5: 0.55}


def scenario(packets: int, kind: str, seed: int) -> Scenario:
    bottleneck = Bottleneck(rate_mbit=10, limit_packets=packets, delay_ms=20)
    flows = vm_of(kind, Flows(count=1 if kind in (ONE, ONE_COUPLED) else FLOWS))
    group = {"equivalent_tcps": FLOWS} if kind == AS_MANY else {}
    return one_kernel(kind, seed, DURATION_S, flows, bottleneck=bottleneck, cross=CROSS, group=group)


def points(effort: Effort) -> Iterator[Point]:
    kinds = (*KINDS, AS_MANY, ONE, ONE_COUPLED)
    return grid("short-queues", effort, effort.pick(QUEUES, (10,)), kinds, scenario)


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
    return result


def _not_worse(data: Data, packets: int, kind: str) -> list[Score]:
    """What says that a kind is not worse than none."""
    result = []
    for name in ("retransmissions", "dropped"):
        ratio = data.ratio(packets, kind, "uncoupled", MEASURES[name])
        what = f"queue of {packets}: {kind} over uncoupled {name}"
        result.append(Score.ratio(what, ratio, "<=", 1))
    return [*result, _goodput(data, packets, kind, "uncoupled")]


def _goodput(data: Data, packets: int, kind: str, other: str) -> Score:
    ratio = data.ratio(packets, kind, other, MEASURES["goodput Mbit/s"])
    # Four uncoupled flows have no less than one.
    return Score.mean(_goodput_over(packets, kind, other), ratio, "ratio", ">=", 0.99, guard=True)


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
        _goodput_over(packets, "coupled", other): Known(reason, floors[packets])
        for packets in QUEUES
        for other, reason, floors in ((ONE, SMALL_WINDOWS, OF_ONE), ("uncoupled", ONE_TCP, OF_FOUR))
    },
)
