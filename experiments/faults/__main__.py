# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: python -m faults --out DIR [--kills 1000] [--hours 1] [--seed 101]."""

import argparse
import sys
import tempfile
from pathlib import Path

from ccc_experiments import lab
from ccc_experiments.lab import LabError
from ccc_experiments.scores import Score, print_scores, write_result
from testbed.errors import TestbedError

from . import front_ends, kills, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--kills", type=int, default=1000, help="of daemon and guests, and of front ends")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated, of the soak")
    parser.add_argument("--seed", type=int, default=101, help="the first")
    parser.add_argument("--virtual", action="store_true", help="without what needs real time")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    document: list[dict] = []
    scores: list[Score] = []
    try:
        for part in (in_virtual_time,) if args.virtual else (in_real_time, in_virtual_time):
            found, judged = part(args.out, args.kills, args.hours, args.seed)
            document += found
            scores += judged
    except (LabError, TestbedError) as error:
        print(f"faults: {error}", file=sys.stderr)
        return 2
    about = {"experiment": "faults", "kills": args.kills, "hours": args.hours, "seed": args.seed}
    write_result(args.out / "result.json", document, scores, about)
    return 0 if print_scores(scores) else 1


def in_real_time(out: Path, count: int, hours: float, seed: int) -> tuple[list[dict], list[Score]]:
    parts = {
        "front-ends": lambda at: front_ends.kills(at, count, seed),
        "hang": front_ends.hang,
        "directory-gone": front_ends.directory_gone,
        "memory-short": front_ends.memory_short,
    }
    document, scores = [], []
    for name, part in parts.items():
        # Socket paths have to be short.
        with tempfile.TemporaryDirectory(prefix="ccc-faults-") as at:
            found, judged = part(Path(at))
        document.append({"part": name} | found)
        scores += judged
    return document, scores


def in_virtual_time(out: Path, count: int, hours: float, seed: int) -> tuple[list[dict], list[Score]]:
    killed, pieces = kills.chosen(count, seed), soak.chosen(hours, seed)
    scenarios = [one.scenario for one in killed] + [one.scenario for one in pieces]
    raw = lab.run_all(scenarios, lab.Parts.built(), out / "raw")
    nothing: tuple[list[dict], list[Score]] = ([], [])
    of_kills = kills.judged(killed, raw[: len(killed)]) if killed else nothing
    of_soak = soak.judged(pieces, raw[len(killed) :]) if pieces else nothing
    return of_kills[0] + of_soak[0], of_kills[1] + of_soak[1]


if __name__ == "__main__":
    sys.exit(main())
