# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The daemon and guests killed at random instants of simulated time.

A guest's kernel under User Mode Linux is its own front end: one SIGKILL ends both.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Bottleneck, Flows, Request, Scenario, Vm
from ccc_experiments.scores import Score

# A short path: what a kill does is over in a few round trips, and more of them fit a run.
PATH = Bottleneck(delay_ms=20, limit_packets=40)
# Of one run.
DAEMON_KILLS = 40
GUEST_KILLS = 6
# Between a daemon's start and its next kill, seconds.
LIVES_S = (0.05, 1.0)
# How long nobody is there, seconds: from less than grants hold to several times that.
AWAY_S = (0.001, 0.4)
# A guest is back, with flows, so long after it was killed (experiments/lab/README.md).
REBOOT_S = 6.0
QUIET_S = 3.0
# TCP's own retransmission timeout is at least 0.2 s, and doubles.
STALL_S = 2.0
STEP_S = 0.1


@dataclass(frozen=True)
class Killed:
    """A run and the kills in it."""

    scenario: Scenario
    daemon: int
    guests: int


def _look(at_s: float, vms: int) -> tuple[Action, ...]:
    return tuple(Action(at_s, control=Request("GET", f"/v1/vms/vm{i}")) for i in range(1, vms + 1))


def daemon_kills(seed: int) -> Killed:
    """Three VMs with 1, 4 and 2 flows; the daemon dies again and again."""
    chance = random.Random(seed)
    actions: list[Action] = []
    now = QUIET_S
    for _ in range(DAEMON_KILLS):
        now += chance.uniform(*LIVES_S)
        actions.append(Action(round(now, 4), kill_daemon=True))
        now += chance.uniform(*AWAY_S)
        actions.append(Action(round(now, 4), start_daemon=True))
    end = round(now + QUIET_S, 1)
    vms = tuple(Vm((Flows(count=count),)) for count in (1, 4, 2))
    scenario = Scenario(
        f"daemon-kills-seed{seed}", vms, seed, end, coupled=True, bottleneck=PATH, sample_ms=100,
        actions=(*actions, *_look(end - 0.1, len(vms))),
    )  # fmt: skip
    return Killed(scenario, DAEMON_KILLS, 0)


def guest_kills(seed: int) -> Killed:
    """Two VMs that stay, and others that die among them, each once, and come back."""
    chance = random.Random(seed)
    at_s = [round(chance.uniform(1.0, 4.0), 4) for _ in range(GUEST_KILLS)]
    end = max(at_s) + REBOOT_S + 2 * QUIET_S
    stay = tuple(Vm((Flows(count=count),)) for count in (1, 4))
    die = tuple(Vm((Flows(count=2), Flows(count=2, start_s=at + REBOOT_S)), reboot_s=at) for at in at_s)
    vms = (*stay, *die)
    scenario = Scenario(
        f"guest-kills-seed{seed}", vms, seed, round(end, 1), coupled=True, bottleneck=PATH, sample_ms=100,
        actions=_look(round(end, 1) - 0.1, len(vms)),
    )  # fmt: skip
    return Killed(scenario, 0, GUEST_KILLS)


def chosen(kills: int, first_seed: int) -> list[Killed]:
    """Runs with at least so many kills, most of them the daemon's."""
    found: list[Killed] = []
    for seed in range(first_seed, first_seed + kills):
        if sum(one.daemon + one.guests for one in found) >= kills:
            break
        found += [daemon_kills(seed), guest_kills(seed)]
    return found


def stalls_s(run: Run) -> Iterator[float]:
    """Of each VM that stays: the longest time in which nothing of its flows arrived."""
    steps = int(run.scenario.duration_s / STEP_S) - 1
    for number, vm in enumerate(run.scenario.vms, 1):
        if vm.reboot_s is not None:
            continue
        longest = now = 0
        # The first second is slow start's.
        for step in range(int(1 / STEP_S), steps):
            now = 0 if run.rate_mbit(f"vm{number}", step * STEP_S, (step + 1) * STEP_S) > 0 else now + 1
            longest = max(longest, now)
        yield longest * STEP_S


def uncounted(scenario: Scenario, raw: Path) -> int:
    """Flows that the daemon has too many or too few of at the end, or does not couple."""
    looks = json.loads((raw / "actions.json").read_text())[-len(scenario.vms) :]
    wrong = 0
    for vm, look in zip(scenario.vms, looks):
        # A guest that was killed has the flows of its second life.
        alive = vm.flows[-1:] if vm.reboot_s is not None else vm.flows
        wanted = sum(flows.count for flows in alive)
        wrong += sum(abs(look["answer"][what] - wanted) for what in ("flows", "coupled_flows"))
    return wrong


def judged(killed: list[Killed], raw: list[Path]) -> tuple[list[dict], list[Score]]:
    """What came of these runs."""
    document, longest, goodput, wrong = [], [], [], []
    for one, directory in zip(killed, raw):
        run = Run.of(one.scenario, directory)
        longest.append(max(stalls_s(run)))
        names = [f"vm{i}" for i in range(1, len(one.scenario.vms) + 1)]
        busy = sum(run.rate_mbit(name, QUIET_S, one.scenario.duration_s - 1) for name in names)
        goodput.append(busy / (PATH.rate_mbit * 1448 / 1514))
        wrong.append(uncounted(one.scenario, directory))
        document.append({
            "scenario": one.scenario.name, "daemon_kills": one.daemon, "guest_kills": one.guests,
            "longest_stall_s": round(longest[-1], 2), "goodput_of_link": round(goodput[-1], 4),
            "uncounted_flows": wrong[-1],
        })  # fmt: skip
    scores = [
        Score.worst("daemon and guests killed: longest stall of a VM", longest, "s", "<=", STALL_S),
        Score.worst("daemon and guests killed: goodput of the link's", goodput, "", ">=", 0.85),
        Score.worst("daemon and guests killed: flows not counted at the end", wrong, "flows", "<=", 0),
    ]
    return document, scores
