# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How long an aggregate of CUBIC flows takes to have its window again after a loss.

What each flow reports is its part of the growth of one CUBIC of the aggregate's window, so
one flow and four are to take as long as one CUBIC flow does.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Fault, Flows, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import is_coupled, several_kernels

UNCOUPLED, COUPLED, ONE = "uncoupled", "coupled", "a single TCP"
# Mbit/s, and how long a run is: the farther the window, the longer CUBIC takes.
DURATION_S = {100: 20.0, 1000: 40.0}
DELAY_MS = 20.0
FRAME_BYTES = 1514
# One packet of VM1's flow is lost; the slow start is over, and the queue not yet full again.
LOST_S = 2.0
# The mean over so long before it is what is to be had again.
BEFORE_S = 0.5
# A reduction takes a round trip or two; the windows are sampled each 100 ms.
REDUCED_S = 0.3
# A part of it that is enough: on its plateau CUBIC stands nearly still, and after two losses
# in a row the plateau is below what was.
AGAIN = 0.85
# So much of it may be left: a loss reduces, of one CUBIC to 0.7.
LEFT = 0.8
# It is to be one CUBIC.
AS_ONE = (0.5, 1.1)
# Why a bound does not hold.
CONVERGES = (
    "the one flow met a full queue as its slow start ended, and goes towards less than it had at the next loss "
    "(RFC 9438, 4.7); a shadow window begins after that"
)


def vm(kind: str, count: int) -> Vm:
    if is_coupled(kind):
        return Vm((Flows(count=count),), congestion_control="ccc", module_options="inner=cubic")
    return Vm((Flows(count=count),), congestion_control="cubic")


def scenario(rate_mbit: int, kind: str, seed: int) -> Scenario:
    """A queue of one product."""
    product = round(rate_mbit * 1e3 * DELAY_MS / 8 / FRAME_BYTES)
    path = Bottleneck(rate_mbit=rate_mbit, delay_ms=DELAY_MS, limit_packets=product)
    vms = (vm(kind, count) for count in ((1,) if kind == ONE else (1, 4)))
    lost = (Fault("vm1", 0, LOST_S, packets=1),)
    return several_kernels(kind, seed, DURATION_S[rate_mbit], *vms, bottleneck=path, faults=lost)


def points(effort: Effort) -> Iterator[Point]:
    few = Effort(effort.quick, effort.seeds[:3])
    return grid("recovery", few, effort.pick(tuple(DURATION_S), (100,)), (UNCOUPLED, COUPLED, ONE), scenario)


def windows(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the sum of all windows then, packets."""
    times, index = np.unique(run.samples["time_s"], return_inverse=True)
    return times, np.bincount(index, weights=run.samples["cwnd_packets"])


def before(run: Run) -> float:
    """The window just before the loss."""
    times, window = windows(run)
    return float(window[(times >= LOST_S - BEFORE_S) & (times < LOST_S)].mean())


def left(run: Run) -> float:
    """What the loss leaves of it."""
    times, window = windows(run)
    return float(window[(times >= LOST_S) & (times <= LOST_S + REDUCED_S)].min() / before(run))


def recovered_s(run: Run) -> float:
    """Seconds from the loss until it is there again; at most the rest of the run."""
    times, window = windows(run)
    again = times[(times > LOST_S + REDUCED_S) & (window >= AGAIN * before(run))]
    return float((again[0] if len(again) else run.scenario.duration_s) - LOST_S)


def goodput(run: Run) -> float:
    """From the loss on."""
    vms = range(1, len(run.scenario.vms) + 1)
    return sum(run.rate_mbit(f"vm{number}", LOST_S, run.scenario.duration_s) for number in vms)


MEASURES = {
    "recovered after s": recovered_s,
    "left of the window": left,
    "window before, packets": before,
    "goodput after Mbit/s": goodput,
    "dropped": lambda run: run.measured.dropped_packets,
}


def scores(data: Data) -> list[Score]:
    result = []
    for rate in data.cases:
        as_one = data.ratio(rate, COUPLED, ONE, recovered_s)
        after = data.ratio(rate, COUPLED, UNCOUPLED, goodput)
        least, most = AS_ONE
        result += [
            Score.mean(f"{_name(rate)}, at most", as_one, "ratio", "<=", most),
            Score.mean(f"{_name(rate)}, at least", as_one, "ratio", ">=", least),
            Score.worst(f"{rate} Mbit/s: left of the window", data.each(rate, COUPLED, left), "", "<=", LEFT),
            Score.ratio(f"{rate} Mbit/s: coupled over uncoupled goodput after the loss", after, ">=", 0.98),
        ]
    return result


def _name(rate_mbit: int) -> str:
    return f"{rate_mbit} Mbit/s: time to recover, coupled over one flow's"


def plot(data: Data, stem: Path) -> None:
    plots.over_time(data, windows, "sum of the congestion windows, packets", LOST_S, stem)


FIGURE = Figure(
    "a CUBIC aggregate after a loss, 20 ms", "none: new", points, scores, plot, MEASURES,
    {f"{_name(100)}, at least": Known(CONVERGES, 0.3), f"{_name(1000)}, at least": Known(CONVERGES, 0.4)},
)  # fmt: skip
