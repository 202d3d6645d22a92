# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Queues of 20, 10 and 5 packets, with bursty cross traffic.

A first report on coupled TCPs (2000) found its own coupling worse than none
there.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.lab import Bottleneck, Cross, Flows, Scenario
from ccc_experiments.plots import Panel
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, one_kernel, tenant

QUEUES = (20, 10, 5)
FLOWS = 4
# Ten sources of 500 kbit/s while on, with a shape of 1.5.
CROSS = Cross(0.25, streams=10, hurst=0.75, packets_s=(62.5, 62.5), bytes=(1000, 0))
DURATION_S = 100.0
# What the aggregate is worth, in place of the four.
ONE = "one Reno flow"
# Why bounds do not hold.
ONE_TCP = "one TCP cannot fill a short queue with bursts beside it, and the aggregate is one TCP"


def scenario(packets: int, kind: str, seed: int) -> Scenario:
    bottleneck = Bottleneck(10, packets, 20)
    flows = tenant(kind, Flows(1 if kind == ONE else FLOWS))
    return one_kernel(kind, seed, DURATION_S, flows, bottleneck=bottleneck, cross=CROSS)


def points(effort: Effort) -> Iterator[Point]:
    return grid("short-queues", effort, effort.pick(QUEUES, (10,)), (*KINDS, ONE), scenario)


MEASURES = {
    "goodput Mbit/s": lambda run: run.measured.sum_mbit,
    "retransmissions": lambda run: run.retransmissions(),
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for packets in data.cases:
        for name in ("retransmissions", "dropped"):
            ratio = data.ratio(packets, "coupled", "uncoupled", MEASURES[name])
            what = f"queue of {packets}: coupled over uncoupled {name}"
            result.append(Score.mean(what, ratio, "ratio", "<=", 1))
        for kind in (ONE, "uncoupled"):
            goodput = data.ratio(packets, "coupled", kind, MEASURES["goodput Mbit/s"])
            what = f"queue of {packets}: goodput, coupled over {kind}"
            result.append(Score.mean(what, goodput, "ratio", ">=", 0.99))
    return result


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("goodput, Mbit/s", MEASURES["goodput Mbit/s"], {"bottom": 0, "top": 10.4}),
        Panel("retransmissions", MEASURES["retransmissions"]),
        Panel("packets dropped", MEASURES["dropped"]),
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
        f"queue of {packets}: goodput, coupled over {kind}": ONE_TCP
        for packets in QUEUES
        for kind in (ONE, "uncoupled")
    },
)
