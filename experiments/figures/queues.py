# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A target for the queue beside queues that keep one: what waits, and what is left.

VM1 has one flow and VM2 four.  The queues that schedule have CUBIC above them, as they
are deployed; HTB has FQ-CoDel for each VM.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.measure import percentile
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import is_coupled, several_kernels

DURATION_S, FROM_S = 60.0, 5.0
CASE = "1 against 4 flows"
# Codel's own target, at which ECN marks.
MARK_MS = 5.0
DELAY = "coupled, delay"
# Congestion control without coupling, queue, and settings of the group of each kind.
KINDS: dict[str, tuple[str, Bottleneck, dict]] = {
    "uncoupled": ("reno", Bottleneck(), {}),
    "uncoupled, ECN": ("reno", Bottleneck(mark_ms=MARK_MS), {}),
    "FQ-CoDel": ("cubic", Bottleneck(queue="fq_codel"), {}),
    "CAKE": ("cubic", Bottleneck(queue="cake"), {}),
    "DualPI2": ("cubic", Bottleneck(queue="dualpi2"), {}),
    "HTB, FQ-CoDel": ("cubic", Bottleneck(queue="htb_fq_codel"), {}),
    "coupled": ("ccc", Bottleneck(), {}),
    "coupled, FQ-CoDel": ("ccc", Bottleneck(queue="fq_codel"), {}),
    "coupled, ECN": ("ccc", Bottleneck(mark_ms=MARK_MS), {}),
    DELAY: ("ccc", Bottleneck(), {"policy": "delay"}),
}


# Why a bound does not hold.
HELD_ACKS = "8 ms of it are queue, the rest is delayed ACKs in the round trips that flows measure"


def scenario(_: str, kind: str, seed: int) -> Scenario:
    control, bottleneck, group = KINDS[kind]
    ecn = bottleneck.mark_ms is not None
    vms = (Vm((Flows(count=count),), congestion_control=control, ecn=ecn) for count in (1, 4))
    more = {"group": group} if is_coupled(kind) and group else {}
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck, **more)


def points(effort: Effort) -> Iterator[Point]:
    return grid("queues", effort, [CASE], KINDS, scenario)


def latency_ms(run: Run) -> np.ndarray:
    """What flows wait in queues: their own for a queue that schedules."""
    samples = run.samples
    of_flows = (samples["time_s"] >= FROM_S) & (samples["srtt_us"] > 0)
    return samples["srtt_us"][of_flows] / 1000 - run.scenario.bottleneck.delay_ms


def queue_ms(run: Run) -> float:
    """What waits at the bottleneck, mean, as the time in which it leaves."""
    queue = run.queue
    waiting_bytes = float(np.mean(queue["backlog_bytes"][queue["time_s"] >= FROM_S]))
    return waiting_bytes * 8 / (1000 * run.scenario.bottleneck.rate_mbit)


def mean_ms(run: Run) -> float:
    return float(np.mean(latency_ms(run)))


def p99_ms(run: Run) -> float:
    return percentile(latency_ms(run), 0.99)


def goodput(run: Run) -> float:
    return sum(run.rate_mbit(vm, 0, DURATION_S) for vm in ("vm1", "vm2"))


def share_error(run: Run) -> float:
    """How far the worst VM's part is from half, percent of it."""
    rates = [run.rate_mbit(vm, FROM_S, DURATION_S) for vm in ("vm1", "vm2")]
    return 100 * max(abs(2 * rate / sum(rates) - 1) for rate in rates)


MEASURES = {
    "queue ms": queue_ms,
    "delay ms": mean_ms,
    "delay p99 ms": p99_ms,
    "goodput Mbit/s": goodput,
    "share error %": share_error,
    "loss %": lambda run: run.loss_percent(),
}


def scores(data: Data) -> list[Score]:
    goodputs = data.ratio(CASE, DELAY, "uncoupled", goodput)
    return [
        data.score("mean queue, delay", CASE, DELAY, queue_ms, "ms", "<=", 12),
        data.score("mean delay, delay", CASE, DELAY, mean_ms, "ms", "<=", 12),
        Score.ratio("goodput, delay over uncoupled", goodputs, ">=", 0.98),
    ]


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("queue, mean, ms", queue_ms),
        Panel("queueing delay, mean, ms", mean_ms),
        Panel("queueing delay, 99 %, ms", p99_ms),
        Panel("goodput of both, Mbit/s", goodput, {"bottom": 0, "top": 10.4}),
        Panel("error of the worst share, %", share_error),
    ]
    plots.bars(data, CASE, panels, stem)


FIGURE = Figure(
    "a target for the queue, and queues that keep one", "none: new", points, scores, plot, MEASURES,
    {"mean delay, delay": Known(HELD_ACKS, 16)},
)
