# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: python -m attacks --out DIR [--found DIR]."""

import argparse
import sys
from pathlib import Path

from ccc_experiments import gallery, seeds
from ccc_experiments.figure import Effort
from ccc_experiments.lab import LabError
from ccc_experiments.scenario import Queue

from . import found
from .attacker import ATTACKS
from .figure import figure
from .known import KNOWN

# Runs of each attack in the full form.
RUNS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--found", type=Path, help="those that were found there, in place of the kit's")
    parser.add_argument("--queue", choices=("fifo", "htb"), default="fifo", help="one for all, or one for each VM")
    parser.add_argument("--quick", action="store_true", help="the short form: some attacks, one run of each")
    parser.add_argument("--seeds", type=_seeds, help="3, or 101..105: runs of each attack, in place of 5 (quick: 1)")
    args = parser.parse_args()
    usual = seeds.scoring(1 if args.quick else RUNS)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        holds = run(args.out, args.found, args.queue, Effort(args.quick, args.seeds or usual))
    except LabError as error:
        print(f"attacks: {error}", file=sys.stderr)
        return 2
    return 0 if holds else 1


def run(out: Path, search: Path | None, queue: Queue, effort: Effort) -> bool:
    if search is None:
        known = KNOWN if queue == "fifo" else {}
        kit = figure("three honest VMs and an attacker", ATTACKS, known, queue)
        return gallery.make_alone("attacks", kit, out, effort)
    print("in the model:", *found.expected(search), sep="\n")
    kit = figure("what was found, on real kernels", found.attacks(search), {}, queue)
    return gallery.make_alone("attack-search", kit, out, effort)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return seeds.parse(text)
    except seeds.BadSeeds as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
