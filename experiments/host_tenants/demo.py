# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' fairness test and the weights with parts of this machine as tenants.

All dumbbells run at once, coupled beside uncoupled: the same program, the same daemon, the same
seconds.
"""

import json
import os
import platform
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .dumbbell import Dumbbell
from .service import Service

SETTLE_S, MEASURE_S = (10, 20) if os.environ.get("QUICK") else (20, 60)
JAIN_LEAST = 0.995
WEIGHTS_WITHIN = 0.05
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


def run(out: Path, which: str) -> bool:
    cases = CASES[which]
    seconds = SETTLE_S + MEASURE_S
    groups = {case.name: {"coupled": case.coupled} for case in cases}
    service = Service(out, groups)
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        beds = {}
        for case in cases:
            bed = beds[case.name] = Dumbbell(f"ccc-{case.name}")
            stack.callback(bed.end)
            bed.make()
            for number in range(2):
                add(service, case, bed, number)
        names = [tenant(case, number) for case in cases for number in range(2)]
        service.await_connected(*names)
        receivers = {name: bed.receive(seconds) for name, bed in beds.items()}
        for case in cases:
            for number, flows in enumerate(case.flows):
                beds[case.name].send(number, flows, seconds + 3, case.algorithm, cgroup_of(case, number))
        received = {name: json.loads(receiver.communicate()[0]) for name, receiver in receivers.items()}
        results = [measure(case, received[case.name], beds[case.name]) for case in cases]
        seen = {name: service.show(name)["counters"] for name in names}
    scores = [score for case in cases for score in scored(case, results)]
    result = {
        "what": f"{which} as tenants on Linux {platform.release()}, 10 Mbit/s, 100 ms, FIFO of 83 packets",
        "seconds": {"settle": SETTLE_S, "measured": MEASURE_S},
        "cases": results,
        "scores": scores,
        "counters": seen,
    }
    (out / f"result-{which}.json").write_text(json.dumps(result, indent=1) + "\n")
    report(results, scores)
    return all(score["holds"] for score in scores)


def tenant(case: Case, number: int) -> str:
    return f"{case.name}-{'ab'[number]}"


def cgroup_of(case: Case, number: int) -> Path | None:
    from .cgroups import path

    return path(tenant(case, number)) if case.place == "cgroup" else None


def add(service: Service, case: Case, bed: Dumbbell, number: int) -> None:
    name, weight = tenant(case, number), case.weights[number]
    if case.place == "netns":
        service.add(name, "netns", bed.sender(number), case.name, weight)
        return
    from .cgroups import make

    service.add(name, "cgroup", make(name), case.name, weight)


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


def scored(case: Case, results: list[dict]) -> list[dict]:
    if not case.coupled:
        return []
    mine = next(result for result in results if result["case"] == case.name)
    if case.weights != (1, 1):
        wanted = case.weights[0] / case.weights[1]
        off = abs(mine["mbits"][0] / mine["mbits"][1] / wanted - 1)
        return [score(f"{case.name}: ratio off by", off, "<=", WEIGHTS_WITHIN)]
    other = next(result for result in results if result["pair"] == case.name and not result["coupled"])
    part = mine["sum_mbits"] / other["sum_mbits"]
    return [
        score(f"{case.name}: Jain", mine["jain"], ">=", JAIN_LEAST),
        score(f"{case.name}: goodput of uncoupled", part, ">=", GOODPUT_LEAST),
    ]


def score(what: str, value: float, sign: str, bound: float) -> dict:
    holds = value <= bound if sign == "<=" else value >= bound
    return {"score": what, "value": round(value, 4), "bound": f"{sign} {bound}", "holds": holds}


def report(results: list[dict], scores: list[dict]) -> None:
    for result in results:
        mbits = " : ".join(f"{mbit:.2f}" for mbit in result["mbits"])
        print(f"{result['case']:16} {mbits} Mbit/s, Jain {result['jain']:.4f}, {result['drops']} drops")
    for one in scores:
        print(f"{'ok ' if one['holds'] else 'NOT'} {one['score']} {one['value']} ({one['bound']})")
