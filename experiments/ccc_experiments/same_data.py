# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Compares the raw data of two trees: python -m ccc_experiments.same_data BASE_OUT OUT.

Runs are matched by their scenarios, whatever their directories are called, and
compared value by value. What tells how a run was made (its name, the paths and
digests of its programs) may differ.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import tables
from .lab import decides

# Documents of a run that tell how it was made; all others are results.
MAKING = {"scenario.json", "request.json", "meta.json", "speed.json"}
# Keys of scenarios and of the daemon's answers that have another name now.
RENAMED = {"coco": "growth_source", "aggression": "equivalent_tcps"}
# Queues that draw random numbers, which no seed of ours decides.
RANDOM_QUEUES = {"cake": "CAKE", "dualpi2": "DualPI2"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="same-data", description=__doc__)
    parser.add_argument("base", type=Path, help="directory of results, such as out/ of another tree")
    parser.add_argument("out", type=Path, help="directory of results to compare with it")
    args = parser.parse_args()
    try:
        base, out = runs(args.base), runs(args.out)
    except Ambiguous as error:
        print(f"same-data: {error}", file=sys.stderr)
        return 1
    for key in base.keys() & out.keys():
        if reason := unsteady(json.loads(key[1])):
            print(f"same-data: {out[key]}: not compared, not the seed alone decides it ({reason})")
            del base[key], out[key]
    differences = list(compare(base, out))
    for difference in differences:
        print(f"same-data: {difference}", file=sys.stderr)
    if not base:
        print(f"same-data: {args.base} has no run, expected at least one: run 'make demo' there", file=sys.stderr)
    elif not differences:
        print(f"same-data: {len(base)} runs, all data the same")
    return 1 if differences or not base else 0


class Ambiguous(Exception):
    """Two runs of one scenario: one of them may be of an older build."""


def runs(out: Path) -> dict[tuple[str, str], Path]:
    """The runs below a directory, by the directory they are in and their scenario."""
    found: dict[tuple[str, str], Path] = {}
    for raw in (path.parent for path in sorted(out.rglob("scenario.json"))):
        key = (str(raw.parent.relative_to(out)), json.dumps(decides(_document(raw / "scenario.json")), sort_keys=True))
        if key in found:
            raise Ambiguous(f"expected one run of a scenario, got {found[key]} and {raw}: remove what is of old builds")
        found[key] = raw
    return found


def unsteady(scenario: dict) -> str | None:
    """Why two runs of a scenario may differ, if they may: what draws random numbers as it runs."""
    queue = scenario.get("bottleneck", {}).get("queue")
    if queue in RANDOM_QUEUES:
        return RANDOM_QUEUES[queue]
    if scenario.get("ipv6"):
        return "IPv6 on a busy machine"
    ways = [scenario.get("bottleneck", {}), *scenario.get("vms", [])]
    if any(way.get("return_loss_percent") or way.get("return_jitter_ms") for way in ways):
        return "loss or jitter"
    return "BBR" if '"congestion_control": "bbr"' in json.dumps(scenario) else None


def compare(base: dict[tuple[str, str], Path], out: dict[tuple[str, str], Path]) -> Iterator[str]:
    """What differs, in words."""
    for key in base.keys() | out.keys():
        if key not in out:
            yield f"{base[key]}: {key[0]} has no run of this scenario now"
        elif key not in base:
            yield f"{out[key]}: {key[0]} had no run of this scenario before"
        else:
            yield from (f"{out[key]}: {text}" for text in compare_run(base[key], out[key]))


def compare_run(base: Path, out: Path) -> Iterator[str]:
    """What differs between two runs of one scenario."""
    for name in tables.TABLES:
        yield from (f"{name}: {text}" for text in _compare_table(tables.read(base, name), tables.read(out, name)))
    for name in sorted({path.name for raw in (base, out) for path in raw.glob("*.json")} - MAKING):
        before, now = (_document(raw / name) for raw in (base, out))
        if before != now:
            yield f"{name}: {_first_difference(before, now)}"


def _compare_table(base: dict[str, np.ndarray], out: dict[str, np.ndarray]) -> Iterator[str]:
    if list(base) != list(out):
        yield f"columns were {list(base)}, are {list(out)}"
    for column in base.keys() & out.keys():
        before, now = base[column], out[column]
        if before.dtype != now.dtype or len(before) != len(now):
            yield f"column {column} was {len(before)} of {before.dtype}, is {len(now)} of {now.dtype}"
        elif (rows := np.flatnonzero(before != now)).size:
            row = rows[0]
            yield f"column {column}: {rows.size} rows differ, the first in row {row}: was {before[row]}, is {now[row]}"


def _first_difference(before, now, place: str = "") -> str:
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        pairs = [(f"{place}.{key}", before[key], now[key]) for key in before]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(f"{place}[{i}]", *pair) for i, pair in enumerate(zip(before, now))]
    else:
        return f"{place or 'all'} was {before!r}, is {now!r}"
    return next(_first_difference(one, other, at) for at, one, other in pairs if one != other)


def requested(raw: Path) -> dict:
    """What decides a run's results, as it was asked for: to the last digit of each number."""
    return decides(_document(raw / "request.json"))


def _document(path: Path):
    if not path.exists():
        return None
    return json.loads(path.read_text(), object_pairs_hook=lambda pairs: {RENAMED.get(k, k): v for k, v in pairs})


if __name__ == "__main__":
    sys.exit(main())
