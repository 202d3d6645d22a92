# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the law fuzzer has found of one invariant, on real kernels.

The fuzzer's model is fast and wrong in places: whether a finding is one of the law's or of the
model's is seen by running its conditions in the laboratory, coupled beside uncoupled.
"""

import json
import os
import subprocess
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path

from . import lab
from .law_check import KINDS, for_laboratory
from .scenario import Scenario

FOUND = Path("out/law")
# Others than those of a search, which decides its conditions by them.
SEEDS = (7651, 7652)


def read(kind, value):
    """A scenario, or a part of one, from what the laboratory reads."""
    if value is None:
        return None
    if isinstance(kind, types.UnionType):
        return read(typing.get_args(kind)[0], value)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: read(hints[name], field) for name, field in value.items()})
    if typing.get_origin(kind) is tuple:
        return tuple(read(typing.get_args(kind)[0], one) for one in value)
    return value


def cases(found: Mapping, invariant: str, program: Path) -> dict[int, Scenario]:
    """The conditions that keep an invariant not, by their numbers."""
    drawn = {}
    for number, _ in found["invariants"][invariant]["cases"]:
        done = subprocess.run([program, "case", "--seed", str(found["seed"]), str(number)], stdout=subprocess.PIPE)
        if done.returncode != 0:
            raise lab.LabError(f"case {number}: {program} failed with status {done.returncode}")
        drawn[number] = replace(read(Scenario, json.loads(done.stdout)), name=str(number), coupled=False)
    return drawn


def measured(scenario: Scenario, raw: Path) -> tuple[float, int]:
    """Mbit/s of payload that all had, those outside the group too, and packets dropped."""
    flows = json.loads((raw / "flows.json").read_text())
    counters = json.loads((raw / "bottleneck.json").read_text())
    mbit = sum(flow["bytes_received"] for flow in flows) * 8 / 1e6 / scenario.duration_s
    return mbit, counters["dropped_packets"]


def row(number: int, runs: Sequence[Mapping[str, tuple[float, int]]]) -> dict:
    """One condition: what all had of it in the mean of the seeds, and what was dropped."""
    means = {kind: [sum(values) / len(runs) for values in zip(*(run[kind] for run in runs))] for kind in KINDS}
    return {
        "case": number,
        "sum_mbit": {kind: round(mbit, 2) for kind, (mbit, _) in means.items()},
        "ratios": [round(run["coupled"][0] / run["uncoupled"][0], 4) for run in runs],
        "dropped_packets": {kind: drops for kind, (_, drops) in means.items()},
    }


def run(out: Path, seeds: Sequence[int] = SEEDS) -> bool:
    """`make law-replay`: shows what was found; judges nothing."""
    invariant = os.environ.get("INVARIANT") or "sum"
    result = FOUND / "result.json"
    if not result.exists():
        raise lab.LabError(f"{result} is not there: run 'make law' first")
    found = json.loads(result.read_text())
    if invariant not in found["invariants"]:
        raise lab.LabError(f"invalid INVARIANT: expected one of {', '.join(found['invariants'])}, got '{invariant}'")
    parts = lab.Parts.built()
    asked = [
        (number, seed, kind, replace(for_laboratory(scenario, kind), seed=seed, name=f"{number}-{kind}-{seed}"))
        for number, scenario in cases(found, invariant, parts.lab.with_name("ccc-law")).items()
        for seed in seeds
        for kind in KINDS
    ]
    raws = lab.run_all([scenario for *_, scenario in asked], parts, out / "raw")
    had = {(number, seed, kind): measured(s, raw) for (number, seed, kind, s), raw in zip(asked, raws)}
    numbers = dict.fromkeys(number for number, *_ in asked)
    rows = [row(n, [{kind: had[n, seed, kind] for kind in KINDS} for seed in seeds]) for n in numbers]
    document = {"invariant": invariant, "search": found["seed"], "seeds": list(seeds), "cases": rows}
    (out / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    for one in rows:
        sums, drops = ({kind: one[what][kind] for kind in KINDS} for what in ("sum_mbit", "dropped_packets"))
        print(
            f"case {one['case']:4}: {sums['coupled']:8.2f} Mbit/s, uncoupled {sums['uncoupled']:8.2f} "
            f"({min(one['ratios']):.3f} to {max(one['ratios']):.3f} of it); "
            f"{drops['coupled']:.0f} drops, uncoupled {drops['uncoupled']:.0f}"
        )
    return True
