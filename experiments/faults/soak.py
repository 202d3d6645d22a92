# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Simulated hours of joins, leaves, changes of weights, and restarts.

They run as pieces side by side: a piece begins with new guests, and its daemon dies several
times in it, so that nothing but the guests' memory is carried on.
"""

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Bottleneck, Flows, Request, Scenario, Vm
from ccc_experiments.scores import Score

PIECE_S = 900.0
PATH = Bottleneck(rate_mbit=2, delay_ms=50, limit_packets=20)
VMS = 4
# Each VM has one flow that stays, and so many others that come and go.
VISITORS = 12
END_S = 20.0
# In which the longest of them leaves by itself.
LEAVES_S = 70.0
STALL_S = 5.0


@dataclass(frozen=True)
class Piece:
    scenario: Scenario
    joins: int
    changes: int
    restarts: int


def _visitors(chance: random.Random, duration_s: float) -> tuple[Flows, ...]:
    """Flows that come, and leave by themselves, by their end or by a reset."""
    found = []
    for _ in range(VISITORS):
        start = round(chance.uniform(5, duration_s - END_S - LEAVES_S), 3)
        if chance.random() < 0.5:
            found.append(Flows(start_s=start, bytes=chance.randint(20_000, 200_000)))
        else:
            stop = chance.uniform(start + 1, min(start + 120, duration_s - END_S))
            found.append(Flows(start_s=start, stop_s=round(stop, 3)))
    return tuple(found)


def _restarts(chance: random.Random, duration_s: float) -> list[Action]:
    actions, now = [], 30.0
    while (now := now + chance.uniform(20, 120)) < duration_s - END_S:
        actions.append(Action(round(now, 3), kill_daemon=True))
        actions.append(Action(round(now + chance.uniform(0.01, 1.0), 3), start_daemon=True))
    return actions


def _weights(chance: random.Random, duration_s: float) -> list[Action]:
    actions, now = [], 5.0
    while (now := now + chance.uniform(5, 40)) < duration_s - END_S:
        vm, weight = chance.randint(1, VMS), round(chance.uniform(0.25, 8), 2)
        actions.append(Action(round(now, 3), control=Request("PATCH", f"/v1/vms/vm{vm}", body={"weight": weight})))
    return actions


def _apart(restarts: list[Action], changes: list[Action]) -> list[Action]:
    """The changes that come while a daemon is there to take them."""
    away = [(kill.at_s - 0.1, start.at_s + 0.1) for kill, start in zip(restarts[::2], restarts[1::2])]
    return [change for change in changes if not any(begin < change.at_s < end for begin, end in away)]


def piece(seed: int, duration_s: float = PIECE_S) -> Piece:
    chance = random.Random(seed)
    vms = tuple(Vm((Flows(), *_visitors(chance, duration_s))) for _ in range(VMS))
    restarts = _restarts(chance, duration_s)
    changes = _apart(restarts, _weights(chance, duration_s))
    looks = [Action(duration_s - 0.5, control=Request("GET", f"/v1/vms/vm{i}")) for i in range(1, VMS + 1)]
    actions = sorted([*restarts, *changes], key=lambda action: action.at_s)
    scenario = Scenario(
        f"soak-seed{seed}", vms, seed, duration_s, coupled=True, bottleneck=PATH, sample_ms=500,
        queue_sample_ms=500, actions=(*actions, *looks),
    )  # fmt: skip
    return Piece(scenario, VMS * (VISITORS + 1), len(changes), len(restarts) // 2)


def chosen(hours: float, first_seed: int) -> list[Piece]:
    """Pieces of so many hours together."""
    seconds = hours * 3600
    count = math.ceil(seconds / PIECE_S)
    return [piece(first_seed + number, seconds / count) for number in range(count)]


def _longest_stall_s(run: Run) -> float:
    """Of the flows that stay: the longest time without a byte, in whole seconds."""
    longest = 0
    for vm in range(1, VMS + 1):
        now = 0
        for second in range(2, int(run.scenario.duration_s) - 1):
            now = 0 if run.flow_rates_mbit(f"vm{vm}", second, second + 1)[0] > 0 else now + 1
            longest = max(longest, now)
    return float(longest)


def judged(pieces: list[Piece], raw: list[Path]) -> tuple[list[dict], list[Score]]:
    document, stalls, goodput, left = [], [], [], []
    for one, directory in zip(pieces, raw):
        run = Run.of(one.scenario, directory)
        stalls.append(_longest_stall_s(run))
        end = one.scenario.duration_s - 1
        busy = sum(run.rate_mbit(f"vm{vm}", 2, end) for vm in range(1, VMS + 1))
        goodput.append(busy / (PATH.rate_mbit * 1448 / 1514))
        looks = json.loads((directory / "actions.json").read_text())[-VMS:]
        # Only the flow that stays is there.
        left.append(sum(abs(look["answer"][what] - 1) for look in looks for what in ("flows", "coupled_flows")))
        document.append({
            "scenario": one.scenario.name, "simulated_s": one.scenario.duration_s, "joins": one.joins,
            "weight_changes": one.changes, "restarts": one.restarts, "longest_stall_s": stalls[-1],
            "goodput_of_link": round(goodput[-1], 4), "left_behind": left[-1],
        })  # fmt: skip
    scores = [
        Score.worst("soak: longest stall of a flow that stays", stalls, "s", "<=", STALL_S),
        Score.worst("soak: goodput of the link's", goodput, "", ">=", 0.85),
        Score.worst("soak: slots left behind", left, "slots", "<=", 0),
    ]
    return document, scores
