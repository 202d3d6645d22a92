# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A web server's flows of 4 KB to 1 MB in one VM beside long flows in another."""

from collections.abc import Callable, Iterator
from itertools import product
from math import inf, log
from pathlib import Path
from random import Random

from ccc_experiments import completion, plots
from ccc_experiments.figure import Data, Effort, Figure, Measure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

LEAST_BYTES, MOST_BYTES = 4_000, 1_000_000
LOAD_MBIT = 3.0
# The long flows are alone before, and the last may take a while.
FIRST_S, LAST_S, DURATION_S = 5.0, 110.0, 120.0
# Long flows of the other VM.
LONG = (1, 4)
# Sizes of each class: at least, and less than.
CLASSES = {"< 20 KB": (0, 20_000), "20 to 100 KB": (20_000, 100_000), "> 100 KB": (100_000, inf)}
TICKS_S = {"< 20 KB": (0.1, 0.2, 0.5, 1, 2), "20 to 100 KB": (0.2, 0.5, 1, 2), "> 100 KB": (0.5, 1, 2, 5)}
DELAY = "coupled, delay"
# What of a class is looked at.
PARTS: dict[str, Callable[[list[float]], float]] = {
    "median": completion.median_s,
    "p95": completion.p95_s,
    "p99": completion.p99_s,
}
# What a queue that never overflows is to win: the longest waits are timeouts.
SHORT, LARGE = "< 20 KB", "> 100 KB"


# Why bounds do not hold.
PATH_FULL = (
    "beside one long flow: uncoupled it leaves a fifth of the path idle (7.6 of 9.5 Mbit/s), so its queue is empty, "
    "and a coupled one fills it"
)
UP_TO_ITS_SHARE = (
    "beside one long flow: uncoupled, slow starts of larger flows take more than their VM's half and leave the long "
    "flow 4.6 Mbit/s of 7.6; coupled they have their half, and the long flow 6.4 to 6.6"
)
NOT_SHOWN = "beside one long flow, the median of flows below 20 KB is 0.95 of uncoupled by delay, ± 0.15 in six seeds"
ONE_TIMEOUT = (
    "beside four long flows, one of some 390 flows below 20 KB waited a second for a timer: without its run p99 is "
    "0.23 of uncoupled"
)
MIDDLE = (
    "beside four long flows, the median of flows below 20 KB is 0.92 ± 0.05 of uncoupled (123 to 128), and 1.11 with "
    "seed 101 alone"
)


def web_flows(load_mbit: float, seed: int) -> tuple[Flows, ...]:
    """Flows of sizes even on a logarithmic scale, which come at random."""
    random, result = Random(seed), []
    ratio = MOST_BYTES / LEAST_BYTES
    mean_bytes = (MOST_BYTES - LEAST_BYTES) / log(ratio)
    per_second = load_mbit * 1e6 / 8 / mean_bytes
    at_s = FIRST_S + random.expovariate(per_second)
    while at_s < LAST_S:
        size = round(LEAST_BYTES * ratio ** random.random())
        result.append(Flows(start_s=round(at_s, 6), bytes=size))
        at_s += random.expovariate(per_second)
    return tuple(result)


def scenario(count: int, kind: str, seed: int) -> Scenario:
    web = vm_of(kind, *web_flows(LOAD_MBIT, seed))
    more = {"group": {"policy": "delay"}} if kind == DELAY else {}
    return several_kernels(kind, seed, DURATION_S, web, vm_of(kind, Flows(count=count)), **more)


def points(effort: Effort) -> Iterator[Point]:
    return grid("web-mix", effort, effort.pick(LONG, (4,)), effort.pick((*KINDS, DELAY), KINDS), scenario)


def taken_s(name: str, part: str) -> Measure:
    """That part of the completion times of that class."""

    def measured(run: Run) -> float:
        return PARTS[part](completion.times_s(run, 0, *CLASSES[name]))

    return measured


MEASURES = {
    **{f"{name}, {part} s": taken_s(name, part) for name in CLASSES for part in PARTS},
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "long flows Mbit/s": lambda run: run.rate_mbit("vm2", FIRST_S, LAST_S),
}


def scores(data: Data) -> list[Score]:
    result = []
    for kind, count, (name, part) in product(data.kinds[1:], data.cases, product(CLASSES, PARTS)):
        ratio = data.ratio(count, kind, "uncoupled", taken_s(name, part))
        most = 0.5 if (name, part) == (SHORT, "p99") else 1
        beside = f"beside {count}, {name}: {kind} over uncoupled {part} of completion"
        result.append(Score.ratio(beside, ratio, "<=", most))
    return result


def plot(data: Data, stem: Path) -> None:
    rows, columns = len(data.cases), len(CLASSES)
    figure, axes = plots.subplots(9, 0.8 + 2.4 * rows, rows, columns, squeeze=False)
    for (row, count), (column, name) in product(enumerate(data.cases), enumerate(CLASSES)):
        axis = axes[row, column]
        for kind in data.kinds:
            _distribution(axis, data.runs(count, kind), name, kind)
        axis.set_title(f"{name}, beside {count}")
        axis.set_xscale("log")
        axis.set_xticks(TICKS_S[name], [f"{tick:g}" for tick in TICKS_S[name]])
        axis.xaxis.minorticks_off()
        axis.set_ylim(0, 1.02)
        axes[-1, column].set_xlabel("completion time, s")
        axes[row, 0].set_ylabel("part of the flows")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


def _distribution(axis, runs: list[Run], name: str, kind: str) -> None:
    times = sorted(time for run in runs for time in completion.times_s(run, 0, *CLASSES[name]))
    parts = [(i + 1) / len(times) for i in range(len(times))]
    axis.step(times, parts, where="post", color=plots.style(kind)["color"], label=kind)


FIGURE = Figure(
    f"completion of a web server's flows, {LOAD_MBIT:g} Mbit/s, beside another VM's long ones",
    "none: new",
    points,
    scores,
    plot,
    MEASURES,
    {
        f"beside 1, {name}: coupled over uncoupled {part} of completion": Known(PATH_FULL, 2)
        for name, part in product(CLASSES, PARTS)
        if (name == LARGE or part == "median")
    }
    | {f"beside 1, {LARGE}: {DELAY} over uncoupled {part} of completion": Known(UP_TO_ITS_SHARE, 2) for part in PARTS}
    | {
        f"beside 1, {SHORT}: {DELAY} over uncoupled median of completion": Known(NOT_SHOWN, 1.2),
        f"beside 4, {SHORT}: coupled over uncoupled p99 of completion": Known(ONE_TIMEOUT, 0.8),
        f"beside 4, {SHORT}: coupled over uncoupled median of completion": Known(MIDDLE, 1.25),
    },
)
