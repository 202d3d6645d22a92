# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whether the law fuzzer finds faults that are planted into the engine.

Each mutant is built in a copy of what the model needs, and searched as `make law` does:
it is found if more violations are than are known.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from .lab import PROJECT, LabError, printed

# What the model is built of.
SOURCES = ("host", "guest/common", "experiments/lab", "experiments/law")
MUTANTS = PROJECT / "experiments/law/mutants.json"
# More would not be found by CI's draws, either.
RUNS = 2000
SEED = 101


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


def searched(tree: Path, target: Path, out: Path) -> dict[str, tuple[float, float]]:
    """By invariant: percent of the runs that violate it, and percent that are known."""
    law = tree / "experiments/law"
    build: list[str | Path] = ["cargo", "--quiet", "build", "--release", "--manifest-path", law / "Cargo.toml"]
    if subprocess.run(build, env=os.environ | {"CARGO_TARGET_DIR": str(target)}).returncode != 0:
        raise LabError("a mutant does not build")
    search: list[str | Path] = [target / "release/ccc-law", "fuzz", "--runs", str(RUNS), "--seed", str(SEED)]
    search += ["--shrink", "0", "--known", law / "known.json", "--out", out]
    done = subprocess.run(search, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode not in (0, 1):
        raise LabError(f"the search failed with status {done.returncode}")
    invariants = json.loads((out / "result.json").read_text())["invariants"]
    return {name: (one["percent"], one["known_percent"]) for name, one in invariants.items()}


def run(out: Path) -> bool:
    """`make law-mutants`."""
    cache = printed("scripts/cache")
    tree, target = copied(cache / "law-mutants"), cache / "law-mutants-target"
    results = []
    for mutant in json.loads(MUTANTS.read_text()):
        path = planted(tree, mutant)
        rates = searched(tree, target, out / mutant["name"].replace(" ", "-"))
        shutil.copyfile(PROJECT / mutant["file"], path)
        found = {name: rate for name, (rate, known) in rates.items() if rate > known}
        by = ", ".join(f"{name} {rate:.2f} % (known: {rates[name][1]:g})" for name, rate in found.items())
        print(f"  {'found' if found else 'MISSED'} {mutant['name']}: {by or rates}")
        results.append(mutant | {"found": found, "rates": rates})
    (out / "result.json").write_text(json.dumps({"runs": RUNS, "seed": SEED, "mutants": results}, indent=2) + "\n")
    shutil.rmtree(tree)
    return all(result["found"] for result in results)
