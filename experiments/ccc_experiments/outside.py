# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The coupled aggregate beside one uncoupled Reno flow of another VM.

Against outside traffic the aggregate is worth one TCP, whatever its number of
flows: its goodput over the outside flow's is 1.
"""

from pathlib import Path
from statistics import mean

from . import fairness, lab, plots, table
from .measure import Measured, measure
from .scenario import Flows, Scenario, Vm
from .scores import Score, print_scores, write_result
from .setups import flow_count

COUNTS = (1, 2, 4, 8)
# Which of the two a full queue hits is chance, some 25 times in a run: one run
# strays from the mean by a tenth.
SEEDS = (1, 2, 3, 4, 5, 6)
DURATION_S = 200.0


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


def run(out: Path) -> bool:
    """`make outside`."""
    scenarios = [
        scenario(count, seed, coupled)
        for count in COUNTS
        for coupled in (False, True)
        for seed in SEEDS
    ]
    raw = lab.run_all(scenarios, lab.Parts.built(), out / "raw")
    measured = [measure(s, directory) for s, directory in zip(scenarios, raw)]
    table.print_table(measured)
    judged = []
    for count in COUNTS:
        parts = [part(m) for m in measured if m.scenario.coupled and flow_count(m.scenario.vms[0]) == count]
        name = f"{count} coupled flows over one outside flow, mean of {len(parts)} seeds"
        judged += [Score(name, mean(parts), "ratio", ">=", 0.88), Score(name, mean(parts), "ratio", "<=", 1.12)]
    about = {"experiment": "outside-flow", "duration_s": DURATION_S, "seeds": list(SEEDS)}
    write_result(out / "result.json", [m.document() for m in measured], judged, about)
    plot(measured, out / "outside")
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/outside.svg, {out}/outside.png; raw data in {out}/raw")
    return holds
