# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""`make proofs`: the lemmas, and the model they are of beside the engine's own numbers."""

import sys
import time

import z3
from lemmas import LEMMAS
from points import compared

# A step that takes longer is none that z3 can do.
PATIENCE_MS = 60_000


def proved(facts: z3.BoolRef, claim: z3.BoolRef) -> str:
    """Nothing, or what speaks against it."""
    solver = z3.Solver()
    solver.set("timeout", PATIENCE_MS)
    solver.add(facts)
    if solver.check() != z3.sat:
        return f"{claim}: is of nothing, for its facts speak against each other"
    solver.add(z3.Not(claim))
    answer = solver.check()
    if answer == z3.unsat:
        return ""
    return f"{claim}: {solver.model() if answer == z3.sat else 'not decided'}"


def main() -> int:
    failed = 0
    for name, steps in LEMMAS.items():
        began = time.monotonic()
        against = [found for facts, claim in steps() if (found := proved(facts, claim))]
        failed += bool(against)
        print("FAILED" if against else "proved", f"{name} ({time.monotonic() - began:.1f} s)", *against, sep="  ")
    drifted, points = compared()
    failed += bool(drifted)
    print("FAILED" if drifted else "same", f"the model at {points} points of the engine", *drifted[:5], sep="  ")
    print(f"\n{len(LEMMAS) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
