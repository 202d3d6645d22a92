# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Beside other ways to share: congestion controls without coupling, fair
queues, and a shaper for each VM.

VM1 has one flow and VM2 four; VM1 sends a short flow of 200 KB at 20 s; VM2
leaves at 40 s, and what VM1 then has shows whether anything is left unused.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.measure import jain
from ccc_experiments.plots import Panel
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Queue, Scenario, Vm
from ccc_experiments.scores import Score
from ccc_experiments.setups import several_kernels

SHORT_AT_S, LEAVE_S, DURATION_S = 20.0, 40.0, 60.0
SHORT_BYTES = 200_000
CASE = "1 against 4 flows"
# Congestion control and queue of each kind.
KINDS: dict[str, tuple[str, Queue]] = {
    "Reno": ("reno", "fifo"),
    "CUBIC": ("cubic", "fifo"),
    "BBR": ("bbr", "fifo"),
    "FQ-CoDel": ("cubic", "fq_codel"),
    "CAKE": ("cubic", "cake"),
    "HTB per VM": ("cubic", "htb"),
    "coupled": ("ccc", "fifo"),
}


def scenario(_: str, kind: str, seed: int) -> Scenario:
    control, queue = KINDS[kind]
    short = Flows(start_s=SHORT_AT_S, bytes=SHORT_BYTES)
    vms = (
        Vm((Flows(), short), congestion_control=control),
        Vm((Flows(count=4, stop_s=LEAVE_S),), congestion_control=control),
    )
    bottleneck = Bottleneck(queue=queue)
    return several_kernels(kind, seed, DURATION_S, *vms, bottleneck=bottleneck)


def points(effort: Effort) -> Iterator[Point]:
    return grid("peers", effort, [CASE], KINDS, scenario)


def fairness(run: Run) -> float:
    return jain([run.rate_mbit(vm, 5, SHORT_AT_S) for vm in ("vm1", "vm2")])


def delay_ms(run: Run) -> float:
    """What the flows of both VMs wait in queues, mean."""
    samples = run.samples["srtt_us"][run.samples["srtt_us"] > 0]
    return float(np.mean(samples) / 1000 - run.scenario.bottleneck.delay_ms)


def short_s(run: Run) -> float:
    short = run.flows()[1]
    return short["end_s"] - short["start_s"]


def left_alone(run: Run) -> float:
    """VM1's goodput when it is alone."""
    return run.rate_mbit("vm1", LEAVE_S + 2, DURATION_S)


MEASURES = {
    "Jain": fairness,
    "delay ms": delay_ms,
    "short flow s": short_s,
    "alone Mbit/s": left_alone,
    "loss %": lambda run: run.loss_percent(),
}


def scores(data: Data) -> list[Score]:
    delay = data.ratio(CASE, "coupled", "Reno", delay_ms)
    short = data.ratio(CASE, "coupled", "Reno", short_s)
    return [
        Score.worst(
            "least Jain's index, coupled", data.each(CASE, "coupled", fairness), "1", ">=", 0.995,
            uncoupled=data.mean(CASE, "Reno", fairness).mean,
        ),  # fmt: skip
        Score.ratio("queue delay, coupled over Reno", delay, "<", 1),
        Score.ratio("short flow's time, coupled over Reno", short, "<", 1),
        Score.mean(
            "goodput of a VM left alone, coupled", data.mean(CASE, "coupled", left_alone), "Mbit/s", ">=", 9.2,
            uncoupled=data.mean(CASE, "Reno", left_alone).mean,
        ),  # fmt: skip
    ]


def plot(data: Data, stem: Path) -> None:
    panels = [
        Panel("Jain's index of the VMs", fairness, {"bottom": 0, "top": 1.04}),
        Panel("queueing delay, ms", delay_ms),
        Panel("short flow, s", short_s),
        Panel("VM1 alone, Mbit/s", left_alone, {"bottom": 0, "top": 10.4}),
        Panel("packets lost, %", MEASURES["loss %"]),
    ]
    plots.bars(data, CASE, panels, stem)


FIGURE = Figure("other ways to share, side by side", "none: new", points, scores, plot, MEASURES)
