# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: python -m figures [FIGURE ...] --out DIR; no name makes all."""

import argparse
import sys
from pathlib import Path

from ccc_experiments import gallery, seeds
from ccc_experiments.figure import Effort
from ccc_experiments.lab import LabError

from . import load, names


def main() -> int:
    parser = argparse.ArgumentParser(prog="figures", description=__doc__)
    parser.add_argument("figure", nargs="*", help="which ones; none: all")
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--seeds", type=_seeds, help="3, or 101..110: runs of each case, in place of 10 (quick: 1)")
    parser.add_argument("--from-data", action="store_true", help="no run: make them of earlier data")
    parser.add_argument("--check", action="store_true", help="no more than whether all this can be asked")
    args = parser.parse_args()
    unknown = sorted(set(args.figure) - set(names()))
    if unknown:
        parser.error(f"invalid figure: expected one of {', '.join(names())}, got {', '.join(unknown)}")
    if args.check:
        return 0
    figures = {name: load(name) for name in args.figure or names()}
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        if args.from_data:
            holds = gallery.remake(figures, args.out)
        else:
            holds = gallery.make(figures, args.out, Effort.of(args.quick, args.seeds))
    except (LabError, gallery.NoData) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    return 0 if holds else 1


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return seeds.parse(text)
    except seeds.BadSeeds as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
