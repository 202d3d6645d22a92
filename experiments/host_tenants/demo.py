# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' fairness test and the weights with parts of this machine as tenants.

All dumbbells of a run are there at once, coupled beside uncoupled: the same program, the same
daemon, the same seconds.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.interval import Interval
from ccc_experiments.scores import Score, print_scores, write_result

from . import cgroups
from .dumbbell import Dumbbell
from .service import Service

SETTLE_S, MEASURE_S, RUNS = (10, 20, 1) if os.environ.get("QUICK") else (10, 25, 4)
JAIN_LEAST = 0.995
# Of one short run beside whatever else the machine does; uncoupled flows have .66.
JAIN_SHORTEST = 0.98
WEIGHTS_WITHIN_PERCENT = 5
GOODPUT_LEAST = 0.98


@dataclass(frozen=True)
class Case:
    name: str
    flows: tuple[int, int]
    coupled: bool
    weights: tuple[float, float] = (1, 1)
    place: str = "netns"
    algorithm: str = "reno"

    @property
    def pair(self) -> str:
        return self.name.removesuffix("-uncoupled")


def both(name: str, flows: tuple[int, int], **options) -> list[Case]:
    return [Case(name, flows, True, **options), Case(f"{name}-uncoupled", flows, False, **options)]


CASES = {
    "netns": [*both("1to4", (1, 4)), *both("1to16", (1, 16)), Case("3to1", (1, 4), True, weights=(3, 1))],
    "cgroups": [
        *both("1to4", (1, 4), place="cgroup"),
        *both("1to16", (1, 16), place="cgroup"),
        Case("3to1", (1, 4), True, weights=(3, 1), place="cgroup"),
    ],
    "cubic": [*both("1to4", (1, 4), algorithm="cubic"), *both("1to16", (1, 16), algorithm="cubic")],
}


def jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values)) if any(values) else 0.0


def run(out: Path, names: Sequence[str]) -> bool:
    """These sets of cases, so many times each; the scores are of all runs."""
    runs = [run for name in names for number in range(RUNS) for run in once(out, name, CASES[name], number)]
    scores = judged(runs, names)
    about = {
        "what": f"tenants on Linux {platform.release()}, 10 Mbit/s, 100 ms, FIFO of 83 packets",
        "seconds": {"settle": SETTLE_S, "measured": MEASURE_S},
    }
    write_result(out / "result.json", runs, scores, about)
    return print_scores(scores)


def judged(runs: Sequence[dict], names: Sequence[str]) -> list[Score]:
    scores = []
    for name in names:
        of_set = [run for run in runs if run["set"] == name]
        scores += [score for case in CASES[name] if case.coupled for score in scored(name, case, of_set)]
    return [*scores, unbroken(run["ended_early"] for run in runs)]


def unbroken(ends: Iterable[list[dict]]) -> Score:
    """Of the connections that ended early in each run: fewer have fairer shares."""
    return Score("connections that ended early", sum(map(len, ends)), "1", "<=", 0, guard=True)


def shortest(out: Path) -> list[Score]:
    """One run of 1 : 4, which tells a program that shares from one that does not, and no more.

    The same program in a group that is left alone is the control: it gets no grants, as one that
    ignored them would.
    """
    runs = once(out, "shortest", both("1to4", (1, 4)), 0)
    coupled, alone = (next(run["jain"] for run in runs if run["coupled"] == kind) for kind in (True, False))
    what = "1 : 4 flows: Jain's index of the tenants"
    return [
        Score(what, coupled, "1", ">=", JAIN_SHORTEST, uncoupled=alone),
        Score(f"{what}, by the same program without grants", alone, "1", "<", JAIN_SHORTEST),
    ]


def once(out: Path, which: str, cases: Sequence[Case], number: int) -> list[dict]:
    """All cases of a set at the same time."""
    seconds = SETTLE_S + MEASURE_S
    service = Service(out, {case.name: {"coupled": case.coupled} for case in cases})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        beds = {}
        for case in cases:
            bed = beds[case.name] = Dumbbell(f"ccc-{case.name}")
            stack.callback(bed.end)
            bed.make()
            for sender in range(2):
                add(service, case, bed, sender)
        names = [tenant(case, sender) for case in cases for sender in range(2)]
        service.await_connected(*names)
        receivers = {name: bed.receive(seconds) for name, bed in beds.items()}
        for case in cases:
            for sender, flows in enumerate(case.flows):
                beds[case.name].send(sender, flows, seconds + 3, case.algorithm, cgroup_of(case, sender))
        received = {name: json.loads(receiver.communicate()[0]) for name, receiver in receivers.items()}
        results = [
            {"set": which, "run": number, **measure(case, received[case.name], beds[case.name])} for case in cases
        ]
        for case, result in zip(cases, results):
            result["counters"] = [service.show(tenant(case, sender))["counters"] for sender in range(2)]
    for result in results:
        mbits = " : ".join(f"{mbit:.2f}" for mbit in result["mbits"])
        print(f"{which} {result['case']:16} {mbits} Mbit/s, Jain {result['jain']:.4f}, {result['drops']} drops")
    return results


def tenant(case: Case, number: int) -> str:
    return f"{case.name}-{'ab'[number]}"


def cgroup_of(case: Case, number: int) -> Path | None:
    return cgroups.path(tenant(case, number)) if case.place == "cgroup" else None


def add(service: Service, case: Case, bed: Dumbbell, number: int) -> None:
    name, weight = tenant(case, number), case.weights[number]
    where = cgroups.make(name) if case.place == "cgroup" else bed.sender(number)
    service.add(name, case.place, where, case.name, weight)


def measure(case: Case, received: dict, bed: Dumbbell) -> dict:
    mbits = []
    for number in range(2):
        bytes_by_second = received["bytes_by_second"].get(bed.address(number), [])[SETTLE_S : SETTLE_S + MEASURE_S]
        mbits.append(8 * sum(bytes_by_second) / MEASURE_S / 1e6)
    by_weight = [mbit / weight for mbit, weight in zip(mbits, case.weights)]
    early = [end for end in received["ended"] if end["after_s"] < SETTLE_S + MEASURE_S - 1]
    return {
        "case": case.name,
        "pair": case.pair,
        "place": case.place,
        "algorithm": case.algorithm,
        "flows": case.flows,
        "weights": case.weights,
        "coupled": case.coupled,
        "mbits": mbits,
        "sum_mbits": sum(mbits),
        "jain": jain(by_weight),
        "drops": bed.drops(),
        "ended_early": early,
        "bytes_by_second": received["bytes_by_second"],
    }


def scored(name: str, case: Case, runs: list[dict]) -> list[Score]:
    def each(coupled: bool, value: Callable[[dict], float]) -> list[float]:
        def is_of_case(run: dict) -> bool:
            # Uncoupled there are no weights.
            return run["pair"] == case.name if coupled else run["flows"] == case.flows

        return [value(run) for run in runs if run["coupled"] == coupled and is_of_case(run)]

    sums, before = (each(coupled, lambda run: run["sum_mbits"]) for coupled in (True, False))
    goodput = Score.ratio(
        f"{name}, {case.name}: goodput over uncoupled", Interval.ratio(sums, before), ">=", GOODPUT_LEAST
    )
    if case.weights != (1, 1):
        wanted = case.weights[0] / case.weights[1]
        off = each(True, lambda run: 100 * abs(run["mbits"][0] / run["mbits"][1] / wanted - 1))
        what = f"{name}, {case.name}: error of the weights"
        return [Score.mean(what, Interval.of(off), "%", "<=", WEIGHTS_WITHIN_PERCENT), goodput]
    jains, without = (each(coupled, lambda run: run["jain"]) for coupled in (True, False))
    return [
        Score.mean(
            f"{name}, {case.name}: Jain's index of the tenants",
            Interval.of(jains),
            "1",
            ">=",
            JAIN_LEAST,
            uncoupled=Interval.of(without).mean,
        ),
        goodput,
    ]
