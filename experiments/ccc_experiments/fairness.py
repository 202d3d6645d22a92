# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' VM fairness test (dissertation Figures 3.1 and 9.13).

VM1 has one flow, VM2 has 1, 2, 3, 4, 8 and 16; uncoupled Reno beside coupled.
"""

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

from . import lab, plots, table
from . import seeds as seed_numbers
from .figure import Data, Point
from .interval import Interval
from .measure import Measured, measure
from .runs import Run
from .scenario import Flows, Scenario, Vm
from .scores import Score, print_scores, write_result
from .seeds import BadSeeds
from .setups import flow_count
from .sharing import PANELS, uneven

COUNTS = (1, 2, 3, 4, 8, 16)
SEEDS = seed_numbers.scoring(3)
# Of nine cases the worst counts, so each is to be sure.
WEIGHT_SEEDS = seed_numbers.scoring(6)
DURATION_S = 60.0
# Who has sent nothing counts as if with a bit a second, so that a ratio is a number.
NOTHING_MBIT = 1e-6


class BadCase(ValueError):
    """FLOWS, WEIGHTS, SEED or SEEDS do not describe a case."""


def parse_list(name: str, text: str, least: float, kind=float) -> tuple:
    """Numbers separated by colons, each at least `least`."""
    kinds = "whole numbers" if kind is int else "numbers"
    try:
        values = tuple(kind(part) for part in text.split(":"))
    except ValueError:
        raise BadCase(f"invalid {name}: expected {kinds} separated by ':', as in 1:4, got '{text}'") from None
    if any(not value >= least for value in values):
        raise BadCase(f"invalid {name}: expected {kinds} of at least {least:g}, got '{text}'")
    return values


def parse_case(flows: str, weights: str, seed: str, seeds: str = "") -> tuple[tuple, tuple, tuple]:
    """Flow counts, weights and seeds of the cases asked for."""
    counts = parse_list("FLOWS", flows, 1, int) if flows else ()
    shares = parse_list("WEIGHTS", weights, 0.01) if weights else (1,) * len(counts)
    counts = counts or (1,) * len(shares)
    if len(counts) != len(shares):
        raise BadCase(f"invalid WEIGHTS: expected one for each of the {len(counts)} VMs of FLOWS, got '{weights}'")
    chosen = parse_seeds(seed, seeds)
    if not counts:
        return tuple((1, count) for count in COUNTS), ((1, 1),) * len(COUNTS), chosen or SEEDS
    return (counts,), (shares,), chosen or SEEDS[:1]


def parse_seeds(seed: str, seeds: str) -> tuple[int, ...]:
    """The seeds asked for, one or several; none if nothing was asked."""
    if seed and seeds:
        raise BadCase(f"invalid SEED: expected it or SEEDS, got both, '{seed}' and '{seeds}'")
    if seeds:
        try:
            return seed_numbers.parse(seeds)
        except BadSeeds as error:
            raise BadCase(str(error)) from None
    one = parse_list("SEED", seed, 0, int) if seed else ()
    if len(one) > 1:
        raise BadCase(f"invalid SEED: expected one whole number, got '{seed}'")
    return one


def pair(counts: Sequence[int], weights: Sequence[float], seed: int, duration_s=DURATION_S):
    """A case uncoupled and coupled, with the same seed."""
    for coupled in (False, True):
        algorithm = "ccc" if coupled else "reno"
        vms = tuple(
            Vm((Flows(count=count),), weight=weight, congestion_control=algorithm)
            for count, weight in zip(counts, weights)
        )
        label = "-".join(map(str, counts)) + "-w" + "-".join(f"{w:g}" for w in weights)
        kind = "coupled" if coupled else "uncoupled"
        yield Scenario(f"flows-{label}-seed{seed}-{kind}", vms, seed, duration_s, coupled=coupled)


def scores(measured: Sequence[Measured]) -> list[Score]:
    """The bounds each case has to keep."""
    by_case: dict[str, list[list[Score]]] = {}
    for uncoupled, coupled in pairs(measured):
        case = plots.case_of(coupled)
        by_case.setdefault(case, []).append(case_scores(case, uncoupled, coupled))
    return [Score.over(runs) for of_case in by_case.values() for runs in zip(*of_case)]


def pairs(measured: Sequence[Measured]):
    """Each case's uncoupled and coupled run."""
    found = {(plots.case_of(m), m.scenario.seed, m.scenario.coupled): m for m in measured}
    for (case, seed, coupled), run in found.items():
        if coupled:
            yield found[case, seed, False], run


def case_scores(case: str, uncoupled: Measured, coupled: Measured) -> list[Score]:
    """The bounds of one pair of runs."""
    ratio = coupled.sum_mbit / uncoupled.sum_mbit
    result = [
        Score.ratio(f"coupled over uncoupled goodput, {case}", Interval(ratio), ">=", 0.99),
        *_share_scores(case, uncoupled, coupled),
    ]
    if sum(flow_count(vm) for vm in coupled.scenario.vms) >= 4:
        drops = Interval(coupled.dropped_packets / max(1, uncoupled.dropped_packets))
        queue = Interval(coupled.queue_ms_mean / uncoupled.queue_ms_mean)
        result.append(Score.ratio(f"coupled over uncoupled drops, {case}", drops, "<=", 0.2))
        result.append(Score.ratio(f"coupled over uncoupled queue, {case}", queue, "<", 1))
    return result


def _share_scores(case: str, uncoupled: Measured, coupled: Measured) -> list[Score]:
    weights = [vm.weight for vm in coupled.scenario.vms]
    guard = share_by_themselves(coupled.scenario)

    def beside(name: str, unit: str, relation: str, limit: float, measure: Callable[[Measured], float]) -> Score:
        return Score(name, measure(coupled), unit, relation, limit, uncoupled=measure(uncoupled), guard=guard)

    if len(set(weights)) == 1:
        whole = beside(f"Jain's index coupled, {case}", "1", ">=", 0.995, lambda m: m.jain)
    else:
        whole = beside(f"worst error of weighted share, {case}", "%", "<=", 5, share_error)
    errors = (
        ("mean", 0.5, lambda m: m.share_error.mean),
        ("p99", 2, lambda m: m.share_error.p99),
    )
    counts = [flow_count(vm) for vm in coupled.scenario.vms]
    why = uneven(max(counts), min(weight / sum(weights) / count for weight, count in zip(weights, counts)))
    in_seconds = (
        replace(beside(f"share error in 1 s, {name}, {case}", "%", "<=", most, of), known=known)
        for (name, most, of), known in zip(errors, why)
    )
    return [whole, *in_seconds]


def share_by_themselves(scenario: Scenario) -> bool:
    """Whether flows have their VMs' shares uncoupled, too: their numbers are as the weights."""
    return len({flow_count(vm) / vm.weight for vm in scenario.vms}) == 1


def share_error(measured: Measured) -> float:
    """Largest deviation of goodput ratio from weight ratio, percent, over all pairs of VMs."""
    per_weight = [
        max(goodput, NOTHING_MBIT) / vm.weight
        for goodput, vm in zip(measured.vm_goodput_mbit, measured.scenario.vms)
    ]
    return 100 * max(abs(a / b - 1) for a in per_weight for b in per_weight)


def run_cases(scenarios: list[Scenario], out: Path) -> list[Measured]:
    """Runs and measures scenarios; raw data lands in `out`/raw."""
    raw = lab.run_all(scenarios, lab.Parts.built(), out / "raw")
    return [measure(scenario, directory) for scenario, directory in zip(scenarios, raw)]


def data_of(measured: Sequence[Measured], case: Callable[[Measured], Hashable]) -> Data:
    """Runs as a figure's: by their case, coupled or not."""
    points = (Point(case(m), "coupled" if m.scenario.coupled else "uncoupled", m.scenario) for m in measured)
    return Data(tuple(points), tuple(Run(m, Path()) for m in measured))


def report(measured: list[Measured], out: Path, about: dict) -> bool:
    """Table, result and figure; whether every score holds."""
    table.print_table(measured)
    judged = scores(measured)
    write_result(out / "result.json", [m.document() for m in measured], judged, about)
    plots.against_case(data_of(measured, plots.case_of), PANELS, "flows of the VMs", out / "fairness")
    print()
    holds = print_scores(judged)
    print(f"\n{out}/result.json, {out}/fairness.svg, {out}/fairness.png; raw data in {out}/raw")
    return holds


def demo(out: Path, flows: str, weights: str, seed: str, seed_range: str) -> bool:
    """`make demo`."""
    counts, shares, seeds = parse_case(flows, weights, seed, seed_range)
    scenarios = [
        scenario
        for case, weight in zip(counts, shares)
        for one_seed in seeds
        for scenario in pair(case, weight, one_seed)
    ]
    print(f"{len(scenarios)} runs of {DURATION_S:g} simulated seconds", file=sys.stderr)
    about = {"experiment": "vm-fairness", "duration_s": DURATION_S, "seeds": list(seeds)}
    return report(run_cases(scenarios, out), out, about)


def weights(out: Path, seeds: tuple[int, ...] = WEIGHT_SEEDS) -> bool:
    """`make weights`: 3 : 1 whatever the flow counts, and three VMs."""
    cases = [
        ((1, 1), (3, 1)),
        ((1, 4), (3, 1)),
        ((4, 1), (3, 1)),
        ((8, 8), (3, 1)),
        ((1, 16), (3, 1)),
        ((1, 8, 3), (1, 1, 1)),
        ((1, 8, 3), (1, 2, 3)),
        ((8, 2, 1), (1, 2, 4)),
        ((16, 2, 1), (1, 2, 4)),
    ]
    scenarios = [run for counts, shares in cases for seed in seeds for run in pair(counts, shares, seed)]
    about = {"experiment": "vm-weights", "duration_s": DURATION_S, "seeds": list(seeds)}
    return report(run_cases(scenarios, out), out, about)
