# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whether the law fuzzer finds faults that are planted into the engine.

Each mutant is built in a copy of what the model needs, and searched as `make law` does.
The law without it is searched in the same draws: the mutant is found if many more draws
violate an invariant with it only than without it only.
"""

import json
import os
import shutil
import subprocess
from math import sqrt
from pathlib import Path

from .lab import PROJECT, LabError, printed

# What the model is built of.
SOURCES = ("host", "guest/common", "guest/include", "experiments/lab", "experiments/law")
MUTANTS = PROJECT / "experiments/law/mutants.json"
RUNS = 2000
SEED = 101
# Deviations by which those of one kind are more; among six invariants, chance has three
# in one of 120 searches.
CERTAIN = 3.0


def copied(into: Path) -> Path:
    """A tree of its own: a fault stays out of the project."""
    shutil.rmtree(into, ignore_errors=True)
    for source in SOURCES:
        shutil.copytree(PROJECT / source, into / source, ignore=shutil.ignore_patterns("target"))
    return into


def planted(tree: Path, mutant: dict) -> Path:
    """Plants a fault; the file with it."""
    path, original = tree / mutant["file"], (PROJECT / mutant["file"]).read_text()
    found = original.count(mutant["from"])
    if found != 1:
        raise LabError(
            f"invalid mutant '{mutant['name']}': expected its text once in {mutant['file']}, "
            f"got it {found} times: write it anew in {MUTANTS.relative_to(PROJECT)}"
        )
    path.write_text(original.replace(mutant["from"], mutant["to"]))
    return path


def searched(tree: Path, target: Path, out: Path) -> dict[str, set[int]]:
    """The draws that violate each invariant."""
    law = tree / "experiments/law"
    build: list[str | Path] = ["cargo", "--quiet", "build", "--release", "--manifest-path", law / "Cargo.toml"]
    if subprocess.run(build, env=os.environ | {"CARGO_TARGET_DIR": str(target)}).returncode != 0:
        raise LabError("a mutant does not build")
    search: list[str | Path] = [target / "release/ccc-law", "fuzz", "--runs", str(RUNS), "--seed", str(SEED)]
    search += ["--shrink", "0", "--known", law / "known.json", "--out", out]
    done = subprocess.run(search, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode not in (0, 1):
        raise LabError(f"the search failed with status {done.returncode}")
    return violations(json.loads((out / "result.json").read_text()))


def violations(result: dict) -> dict[str, set[int]]:
    """The draws that violate each invariant, as a search has written them."""
    return {name: {draw for draw, _ in one["cases"]} for name, one in result["invariants"].items()}


def deviations(law: set[int], mutant: set[int]) -> float:
    """By how many deviations more draws are violations with the mutant only (McNemar's test)."""
    more, fewer = len(mutant - law), len(law - mutant)
    return (more - fewer) / sqrt(max(more + fewer, 1))


def run(out: Path) -> bool:
    """`make law-mutants`."""
    cache = printed("scripts/cache")
    tree, target = copied(cache / "law-mutants"), cache / "law-mutants-target"
    law = searched(tree, target, out / "law")
    results = []
    for mutant in json.loads(MUTANTS.read_text()):
        path = planted(tree, mutant)
        found = searched(tree, target, out / mutant["name"].replace(" ", "-"))
        shutil.copyfile(PROJECT / mutant["file"], path)
        by = {name: round(deviations(law[name], found[name]), 1) for name in law}
        is_found = max(by.values()) >= CERTAIN
        print(f"  {'found' if is_found else 'MISSED'} {mutant['name']}: deviations {by}")
        results.append(mutant | {"found": is_found, "deviations": by})
    (out / "result.json").write_text(json.dumps({"runs": RUNS, "seed": SEED, "mutants": results}, indent=2) + "\n")
    shutil.rmtree(tree)
    return all(result["found"] for result in results)
