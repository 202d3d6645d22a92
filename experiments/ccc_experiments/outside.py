# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The coupled aggregate beside one uncoupled Reno flow of another VM.

Against outside traffic the aggregate is worth one TCP, whatever its number of
flows: its goodput over the outside flow's is 1.
"""

from pathlib import Path

from . import fairness, lab, plots, table
from . import seeds as seed_numbers
from .interval import Interval
from .measure import Measured, measure
from .scenario import Flows, Scenario, Vm
from .scores import Known, Score, print_scores, with_known, write_result
from .setups import flow_count

COUNTS = (1, 2, 4, 8, 16, 32, 64)
# Which of the two a full queue hits is chance, some 25 times in a run: one run
# strays from the mean by a tenth.
SEEDS = seed_numbers.scoring(6)
DURATION_S = 200.0
STRAYS = "in the mean the group takes no more than one TCP; runs stray by a tenth, and the interval goes beyond"
KNOWN = {f"{count} coupled flows over one outside flow, at most": Known(STRAYS, 1.25) for count in COUNTS[1:]}


def scenario(count: int, seed: int, coupled: bool, duration_s: float = DURATION_S) -> Scenario:
    """`count` flows of VM1 beside one Reno flow of VM2, which has no device."""
    ours = Vm((Flows(count=count),), weight=1, congestion_control="ccc" if coupled else "reno")
    theirs = Vm((Flows(),), weight=1, congestion_control="reno", device=False)
    kind = "coupled" if coupled else "uncoupled"
    return Scenario(f"outside-{count}-seed{seed}-{kind}", (ours, theirs), seed, duration_s, coupled=coupled)


def part(measured: Measured) -> float:
    """The aggregate's goodput over the outside flow's."""
    ours, theirs = measured.vm_goodput_mbit
    return ours / theirs


def scores(count: int, measured: list[Measured]) -> list[Score]:
    """That so many coupled flows take as much as one TCP: neither more nor less."""
    coupled, uncoupled = (
        Interval.of(
            [part(m) for m in measured if m.scenario.coupled == kind and flow_count(m.scenario.vms[0]) == count]
        )
        for kind in (True, False)
    )
    name = f"{count} coupled flows over one outside flow"
    # More than one flow takes too much of itself; none takes too little.
    return [
        Score.mean(f"{name}, at least", coupled, "ratio", ">=", 0.88, uncoupled=uncoupled.mean, guard=True),
        Score.mean(f"{name}, at most", coupled, "ratio", "<=", 1.12, uncoupled=uncoupled.mean, guard=count == 1),
    ]


def plot(measured: list[Measured], stem: Path) -> None:
    """What the aggregate takes of an outside flow's goodput, against its flows."""
    figure, axis = plots.subplots(4.5, 3.6)
    data = fairness.data_of(measured, lambda m: flow_count(m.scenario.vms[0]))
    panel = plots.Panel("goodput of the VM over that of one outside flow", lambda run: part(run.measured))
    plots.draw(axis, data, panel)
    axis.axhline(1, color="black", lw=0.8)
    axis.set_xlabel("flows of the VM")
    plots.outside_legend(figure, axis, data.seeds)
    plots.save(figure, stem)


def run(out: Path, seeds: tuple[int, ...] = SEEDS) -> bool:
    """`make outside`."""
    scenarios = [
        scenario(count, seed, coupled)
        for count in COUNTS
        for coupled in (False, True)
        for seed in seeds
    ]
    raw = lab.run_all(scenarios, lab.Parts.built(), out / "raw")
    measured = [measure(s, directory) for s, directory in zip(scenarios, raw)]
    table.print_table(measured)
    judged = with_known((score for count in COUNTS for score in scores(count, measured)), KNOWN)
    about = {"experiment": "outside-flow", "duration_s": DURATION_S, "seeds": list(seeds)}
    write_result(out / "result.json", [m.document() for m in measured], judged, about)
    plot(measured, out / "outside")
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/outside.svg, {out}/outside.png; raw data in {out}/raw")
    return holds
