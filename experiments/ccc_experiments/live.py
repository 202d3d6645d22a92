# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an operator and an application change while flows run, and a daemon
that dies among them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import plots
from . import seeds as seed_numbers
from .measure import jain
from .runs import Run, finish, run_all
from .scenario import Action, Flows, Phase, Request, Scenario, Vm
from .scores import Score

SEEDS = seed_numbers.scoring(1)
# Two round-trip times with a full queue, and one sample.
SOON_S = 0.45
KILLED_AT_S = 20.0
BACK_AT_S = 20.5


def _weigh(at_s: float, vm: str, weight: float) -> Action:
    return Action(at_s, control=Request("PATCH", f"/v1/vms/{vm}", body={"weight": weight}))


def _two_vms(name: str, duration_s: float, *actions: Action) -> Scenario:
    vms = (Vm((Flows(),)), Vm((Flows(count=4),)))
    return Scenario(name, vms, SEEDS[0], duration_s, coupled=True, sample_ms=50, actions=actions)


WEIGHTS = _two_vms(
    "weights", 60, _weigh(20, "vm1", 4), _weigh(40, "vm1", 1), _weigh(40, "vm2", 4)
)
SLOW_START = _two_vms("weights-in-slow-start", 20, _weigh(0.4, "vm1", 4))
PRIORITY = Scenario(
    "priority",
    (Vm((Flows(phases=(Phase(20, priority=4),)), Flows())),),
    seed=SEEDS[0], duration_s=40, coupled=True, sample_ms=50,
)
RESTART = _two_vms(
    "restart", 40, Action(KILLED_AT_S, kill_daemon=True), Action(BACK_AT_S, start_daemon=True)
)


def _error(actual: float, wanted: float) -> float:
    return 100 * abs(actual / wanted - 1)


def _weights(run: Run) -> list[Score]:
    result = []
    for at_s, ratio in ((20, 4.0), (40, 0.25)):
        soon = run.window("vm1", at_s + SOON_S, at_s + 2) / run.window("vm2", at_s + SOON_S, at_s + 2)
        later = run.rate_mbit("vm1", at_s + 2, at_s + 20) / run.rate_mbit("vm2", at_s + 2, at_s + 20)
        result += [
            Score(f"weights changed to {ratio:g}: windows off from 2 RTT on", _error(soon, ratio), "%", "<=", 10),
            Score(f"weights changed to {ratio:g}: goodput off", _error(later, ratio), "%", "<=", 5),
        ]
    return result


def _slow_start(run: Run) -> list[Score]:
    ratio = run.rate_mbit("vm1", 2, 20) / run.rate_mbit("vm2", 2, 20)
    return [Score("weight changed to 4 in slow start: goodput off", _error(ratio, 4), "%", "<=", 5)]


def _priority(run: Run) -> list[Score]:
    high, low = run.flow_rates_mbit("vm1", 20 + SOON_S, 40)
    return [Score("priority of a live socket changed to 4: goodput off", _error(high / low, 4), "%", "<=", 5)]


def _restart(run: Run) -> list[Score]:
    def total(start_s: float, end_s: float) -> float:
        return sum(run.rate_mbit(vm, start_s, end_s) for vm in ("vm1", "vm2"))

    before = total(10, KILLED_AT_S)
    least = min(total(second, second + 1) for second in range(20, 39))
    fair = jain([run.rate_mbit(vm, BACK_AT_S + 1, 40) for vm in ("vm1", "vm2")])
    return [
        Score("daemon killed: least goodput of a second over before", least / before, "ratio", ">=", 0.8),
        Score("daemon back: Jain's index from 1 s on", fair, "1", ">=", 0.995),
    ]


CASES = ((WEIGHTS, _weights), (SLOW_START, _slow_start), (PRIORITY, _priority), (RESTART, _restart))


def scenarios(scenario: Scenario, seeds: Sequence[int]) -> list[Scenario]:
    """A case with each seed."""
    return [replace(scenario, name=f"{scenario.name}-seed{seed}", seed=seed) for seed in seeds]


def run(out: Path, seeds: Sequence[int] = SEEDS) -> bool:
    """`make live`."""
    runs = run_all([one for scenario, _ in CASES for one in scenarios(scenario, seeds)], out)
    judged, shown = [], []
    for number, (scenario, judge) in enumerate(CASES):
        of_case = runs[number * len(seeds) : (number + 1) * len(seeds)]
        judged += [Score.over(scores) for scores in zip(*map(judge, of_case))]
        if scenario in (WEIGHTS, RESTART):
            shown.append((scenario.name, of_case[0]))
    plots.goodput_over_time(shown, ("",), out / "live")
    return finish(out, "live", runs, judged)
