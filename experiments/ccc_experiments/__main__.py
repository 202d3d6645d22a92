# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: python -m ccc_experiments EXPERIMENT --out DIR."""

import argparse
import os
import sys
from pathlib import Path

from . import (
    ack_cost,
    bench,
    dynamics,
    enforce_cost,
    fairness,
    law_check,
    law_mutants,
    law_replay,
    law_speed,
    live,
    outside,
)
from . import seeds as seed_numbers
from .lab import LabError

EXPERIMENTS = {
    "bench-ack": ack_cost.run,
    "weights": fairness.weights,
    "outside": outside.run,
    "dynamics": dynamics.run,
    "live": live.run,
    "enforce-cost": enforce_cost.run,
    "law-check": law_check.run,
    "law-mutants": law_mutants.run,
    "law-replay": law_replay.run,
    "law-speed": law_speed.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="ccc_experiments", description=__doc__)
    parser.add_argument("experiment", choices=("demo", "bench", *EXPERIMENTS))
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--check", action="store_true", help="no more than whether what is asked for is right")
    args = parser.parse_args()
    try:
        if args.check:
            fairness.parse_case(*case())
            return 0
        args.out.mkdir(parents=True, exist_ok=True)
        holds = run(args.experiment, args.out)
    except (LabError, fairness.BadCase, seed_numbers.BadSeeds) as error:
        print(f"{args.experiment}: {error}", file=sys.stderr)
        return 2
    return 0 if holds else 1


def case() -> list[str]:
    """What was asked for; only `make demo` has flows and weights of one's own."""
    return [os.environ.get(name, "") for name in ("FLOWS", "WEIGHTS", "SEED", "SEEDS")]


def run(experiment: str, out: Path) -> bool:
    if experiment == "demo":
        return fairness.demo(out, *case())
    if experiment == "bench":
        words = {name.lower(): bool(os.environ.get(name)) for name in ("QUICK", "RECORD")}
        return bench.run(out, **words, base=os.environ.get("BASE"))
    asked = os.environ.get("SEEDS")
    chosen = {"seeds": seed_numbers.parse(asked)} if asked else {}
    return EXPERIMENTS[experiment](out, **chosen)


if __name__ == "__main__":
    sys.exit(main())
