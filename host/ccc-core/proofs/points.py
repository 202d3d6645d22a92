# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the engine computes at random points, beside the model.

The points are printed by the engine's own test `points_for_the_lemmas` (src/lemmas.rs), each a
line: the function, what it took, `=`, what it gave.
"""

import subprocess
from pathlib import Path

import model

HOST = Path(__file__).resolve().parents[2]
COMMAND = ("cargo", "test", "--quiet", "--manifest-path", str(HOST / "Cargo.toml"), "-p", "ccc-core", "--lib")
TEST = ("lemmas::points_for_the_lemmas", "--", "--ignored", "--nocapture", "--exact")
# Fewer means that the test has changed, and not what it is of.
LEAST = 5_000


def _level(window: int, number: int, *members: int) -> int:
    vms = [model.Vm(*members[at : at + 3]) for at in range(0, len(members), 3)]
    return model.level(window, vms, number)


FUNCTIONS = {
    "mul_div": model.mul_div,
    "times": model.times,
    "level": _level,
    "part": lambda weight, priorities, units, own: model.Vm(weight, priorities, units).part(own),
    "cwnd_bytes": model.cwnd_bytes,
    "segments": model.segments,
}


def compared() -> tuple[list[str], int]:
    """Points at which the model and the engine differ, and how many there were."""
    done = subprocess.run((*COMMAND, *TEST), stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if line.split(" ")[0] in FUNCTIONS]
    differ = []
    for name, *numbers, _, result in lines:
        ours = FUNCTIONS[name](*map(int, numbers))
        if ours != int(result):
            differ.append(f"{name}({', '.join(numbers)}): {result} in the engine, {ours} in the model")
    seen = {name for name, *_ in lines}
    differ += [f"no points of {name}" for name in set(FUNCTIONS) - seen]
    if len(lines) < LEAST:
        differ.append(f"{len(lines)} points, expected {LEAST} or more")
    return differ, len(lines)
