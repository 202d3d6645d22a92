# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A VM that was idle, or wanted little, wants all it can have again.

Its part of the aggregate was the others' meanwhile: how many round trips go by
until it has its share back.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Phase, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, several_kernels, vm_of

SLEEP_S, WAKE_S, DURATION_S = 15.0, 30.0, 45.0
# What the VM's application writes meanwhile, kbit/s.
ASLEEP_KBIT = {"idle": 0.0, "0.2 Mbit/s": 200.0, "2 Mbit/s": 2000.0}
OTHERS = 4
# That part of its share counts as the share.
SHARE = 0.9 * 0.5
# What is not reached by then counts as reached.
LOOK_S = 10.0
SAMPLE_MS = 20
# Goodput is looked at over some two round trips.
SPAN_S = 0.4


def scenario(case: str, kind: str, seed: int) -> Scenario:
    phases = (Phase(SLEEP_S, rate_kbit=ASLEEP_KBIT[case]), Phase(WAKE_S, rate_kbit=None))
    sleeper, other = vm_of(kind, Flows(phases=phases)), vm_of(kind, Flows(count=OTHERS))
    return several_kernels(kind, seed, DURATION_S, sleeper, other, sample_ms=SAMPLE_MS)


def points(effort: Effort) -> Iterator[Point]:
    return grid("wake-up", effort, effort.pick(tuple(ASLEEP_KBIT), ("idle",)), KINDS, scenario)


def part(run: Run, at_s: float) -> float:
    """The sleeper's part of the goodput from then on."""
    own, others = (run.rate_mbit(vm, at_s, at_s + SPAN_S) for vm in ("vm1", "vm2"))
    return own / (own + others) if own + others else 0.0


def times_s(before_s: float, after_s: float) -> list[float]:
    """Every sample from so long before it wakes up to so long after."""
    return [WAKE_S + i * SAMPLE_MS / 1000 for i in range(*(round(t * 1000 / SAMPLE_MS) for t in (-before_s, after_s)))]


def rounds_to_share(run: Run) -> float:
    """Round trips from waking up until 90 % of its share has arrived of it for two."""
    reached = (at_s + SPAN_S for at_s in times_s(0, LOOK_S) if part(run, at_s) >= SHARE)
    return (next(reached, WAKE_S + LOOK_S) - WAKE_S) / (run.srtt_ms("vm1", WAKE_S, WAKE_S + 2) / 1000)


MEASURES = {
    "RTTs to its share": rounds_to_share,
    "dropped in 2 s": lambda run: run.dropped(WAKE_S, WAKE_S + 2),
    "sum in 2 s Mbit/s": lambda run: sum(run.rate_mbit(vm, WAKE_S, WAKE_S + 2) for vm in ("vm1", "vm2")),
}


def scores(data: Data) -> list[Score]:
    result = []
    for case in data.cases:
        goodput = data.ratio(case, "coupled", "uncoupled", MEASURES["sum in 2 s Mbit/s"])
        result += [
            data.score(
                f"{case}: round trips until it has 90 % of its share",
                case,
                "coupled",
                rounds_to_share,
                "RTT",
                "<=",
                5,
            ),
            Score.ratio(f"{case}: coupled over uncoupled goodput of 2 s", goodput, ">=", 0.98),
        ]
    return result


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(1 + 2.8 * len(data.cases), 3.2, 1, len(data.cases), sharey=True, squeeze=False)
    for axis, case in zip(axes[0], data.cases):
        for kind in data.kinds:
            run, times = data.runs(case, kind)[0], times_s(2, 6)
            parts = [part(run, at_s) for at_s in times]
            axis.plot([at_s - WAKE_S for at_s in times], parts, color=plots.style(kind)["color"], label=kind)
        axis.axhline(0.5, color="black", lw=0.8)
        axis.set_title(case)
        axis.set_xlabel("time after waking up, s")
        axis.set_ylim(0, 1)
    axes[0, 0].set_ylabel("its part of the goodput")
    plots.outside_legend(figure, axes[0, 0])
    plots.save(figure, stem)


FIGURE = Figure("a VM that wakes up", "none: new", points, scores, plot, MEASURES)
