# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: python -m attacks --out DIR [--found DIR]."""

import argparse
import sys
from pathlib import Path

from ccc_experiments import gallery, seeds
from ccc_experiments.figure import Effort
from ccc_experiments.lab import LabError

from . import found
from .attacker import ATTACKS, Attack
from .figure import Kit, figure
from .known import KNOWN

TITLES = {"attacks": "three honest VMs and an attacker", "attack-search": "what was found, on real kernels"}
# Runs of each attack in the full form.
RUNS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--found", type=Path, help="those that were found there, in place of the kit's")
    parser.add_argument("--queue", choices=("fifo", "htb"), default="fifo", help="one for all, or one for each VM")
    words = ("off", "observe", "on")
    parser.add_argument("--enforce", choices=words, default="off", help="what the daemon does by taps")
    parser.add_argument("--only", help="some of the kit's, by their names: 'deaf;reno 16'")
    parser.add_argument("--quick", action="store_true", help="the short form: some attacks, one run of each")
    parser.add_argument("--seeds", type=_seeds, help="3, or 101..105: runs of each attack, in place of 5 (quick: 1)")
    args = parser.parse_args()
    usual = seeds.scoring(1 if args.quick else RUNS)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        attacks = chosen(args.found, args.only)
        # What is known is so of one queue for all.
        known = KNOWN.get(args.enforce, {}) if args.found is None and args.queue == "fifo" else {}
        name = "attacks" if args.found is None else "attack-search"
        kit = figure(TITLES[name], Kit(attacks, args.queue, args.enforce), known)
        holds = gallery.make_alone(name, kit, args.out, Effort(args.quick, args.seeds or usual))
    except LabError as error:
        print(f"attacks: {error}", file=sys.stderr)
        return 2
    return 0 if holds else 1


def chosen(search: Path | None, only: str | None) -> tuple[Attack, ...]:
    """The attacks of a search, or of the kit, or some of these."""
    if search is not None:
        print("in the model:", *found.expected(search), sep="\n")
        return found.attacks(search)
    if only is None:
        return ATTACKS
    wanted = only.split(";")
    if unknown := set(wanted) - {attack.name for attack in ATTACKS}:
        names = ", ".join(attack.name for attack in ATTACKS)
        raise LabError(f"invalid --only: expected some of {names}, got {', '.join(sorted(unknown))}")
    return tuple(attack for attack in ATTACKS if attack.name in wanted)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return seeds.parse(text)
    except seeds.BadSeeds as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
