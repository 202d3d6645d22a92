# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A VM whose TCP watches the delay beside one whose TCP waits for losses.

Each VM has an inner algorithm of its own, Vegas and Reno. Vegas stands for the
papers' LEDBAT, which no kernel has. Vegas is the first flow by a second.
"""

from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario, Vm
from ccc_experiments.scores import Known, Score
from ccc_experiments.setups import is_coupled, several_kernels

DURATION_S = 60.0
SETTLED_S = 20.0
VEGAS, RENO = "vegas", "reno"
PAIR = "Vegas and Reno"
FIRST = "coupled, first"
# The inner algorithms of the two VMs, and the growth rule.
KINDS = {
    "uncoupled": ((VEGAS, RENO), None),
    "coupled": ((VEGAS, RENO), "mean"),
    FIRST: ((VEGAS, RENO), "first"),
}


# Why bounds do not hold.
ONE_SEED = "a third is passed with one seed of three, and the mean is below: the cause was not found"
SPREAD = "0.99 ± 0.17 in the mean of three seeds, and the spread is that of uncoupled flows"


def vm_of(kind: str, algorithm: str, start_s: float) -> Vm:
    flows = (Flows(start_s=start_s),)
    if is_coupled(kind):
        return Vm(flows, module_options=f"inner={algorithm}")
    return Vm(flows, congestion_control=algorithm)


def scenario(_: str, kind: str, seed: int) -> Scenario:
    algorithms, growth_source = KINDS[kind]
    vms = (vm_of(kind, algorithm, start_s) for start_s, algorithm in enumerate(algorithms))
    group = {"share": "window", "growth_source": growth_source}
    return several_kernels(kind, seed, DURATION_S, *vms, group=group)


def points(effort: Effort) -> Iterator[Point]:
    return grid("delay-based", effort, [PAIR], KINDS, scenario)


def window(vm: str):
    return lambda run: run.window(vm, SETTLED_S, DURATION_S)


def windows_apart(run: Run) -> float:
    """By how much Vegas's window is off Reno's, percent."""
    return 100 * abs(window("vm1")(run) / window("vm2")(run) - 1)


def queue_packets(run: Run) -> float:
    settled = run.queue["time_s"] >= SETTLED_S
    return float(run.queue["backlog_packets"][settled].mean())


MEASURES = {
    "first flow's window": window("vm1"),
    "second flow's window": window("vm2"),
    "queue packets": queue_packets,
    "sum Mbit/s": lambda run: sum(
        run.rate_mbit(vm, SETTLED_S, DURATION_S) for vm in ("vm1", "vm2")
    ),
    "loss %": lambda run: run.loss_percent(),
}


def scores(data: Data) -> list[Score]:
    def equal(kind: str) -> list[Score]:
        name = f"{kind}: windows, Vegas's off Reno's"
        return [data.worst(name, PAIR, kind, windows_apart, "%", "<=", 5)]

    goodput = data.ratio(PAIR, FIRST, "uncoupled", MEASURES["sum Mbit/s"])
    return [
        *equal("coupled"),
        *equal(FIRST),
        *(
            Score.ratio(f"queue, {kind} over uncoupled", ratio, "<", limit)
            for kind, limit in (("coupled", 1), (FIRST, 1 / 3))
            for ratio in [data.ratio(PAIR, kind, "uncoupled", queue_packets)]
        ),
        Score.ratio(f"goodput, {FIRST} over uncoupled", goodput, ">=", 0.97),
    ]


def plot(data: Data, stem: Path) -> None:
    figure, axes = plots.subplots(10, 4.6, 2, len(KINDS), sharex=True, sharey="row")
    for (windows, queue), kind in zip(axes.T, KINDS):
        run = data.runs(PAIR, kind)[0]
        for i, algorithm in enumerate(KINDS[kind][0], 1):
            windows.plot(*run.flow_window(f"vm{i}", 0), lw=1, label=f"VM{i}: {algorithm}")
        windows.set_title(kind)
        windows.legend(frameon=False)
        queue.plot(run.queue["time_s"], run.queue["backlog_packets"], lw=0.5, color="#777777")
        queue.set_xlabel("time, s")
    axes[0, 0].set_ylabel("window, packets")
    axes[1, 0].set_ylabel("queue, packets")
    plots.save(figure, stem)


FIGURE = Figure(
    "Vegas beside Reno",
    "dissertation Figures 8.5 and 8.6, with Vegas for LEDBAT",
    points,
    scores,
    plot,
    MEASURES,
    {f"queue, {FIRST} over uncoupled": Known(ONE_SEED, 0.4), "queue, coupled over uncoupled": Known(SPREAD, 1.1)},
)
