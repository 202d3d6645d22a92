# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an acknowledgement costs a guest: instructions of tcp_ack(), callees included.

Of acknowledgements of two segments while nothing is lost, in the papers' fairness run.  The
kernels of the laboratory run a step at a time there, so that the machine's speed and what
else it does do not count (`experiments/ack_cost/steps.c`).
"""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import numpy as np

from . import lab
from .lab import LabError, Parts
from .scenario import Flows, Scenario, Vm
from .scores import Known, Score, print_scores, with_known, write_result

SOURCE = lab.PROJECT / "experiments/ack_cost/steps.c"
# Of the calls that have data in flight, every so many-th is counted.
SKIP = 23
DURATION_S = 10.0
KINDS = ("reno", "cubic", "ccc reno", "ccc cubic")
EVERY_ACK = (
    "TCP calls the module three times an acknowledgement, which looks at what was granted and notes what is "
    "acknowledged"
)
EVERY_SECOND = (
    "windows of 33 segments are reported about eight times a round trip, so with every second acknowledgement; "
    "half of what a message costs is the virtqueue's"
)
# The reasons stand in docs/performance.md.
KNOWN: dict[str, Known] = {
    **{f"ccc {inner}, no message due": Known(EVERY_ACK, 1.25) for inner in ("reno", "cubic")},
    **{f"ccc {inner}, mean of the run": Known(EVERY_SECOND, 1.6) for inner in ("reno", "cubic")},
}
# Two segments, as a receiver acknowledges them, and no loss (TCP_CA_Disorder and more).
SEGMENTS, OPEN = 2, 0


@dataclass(frozen=True)
class Calls:
    """Acknowledgements of two segments: instructions, and the messages each sent."""

    instructions: tuple[int, ...]
    module: tuple[int, ...]
    messages: tuple[int, ...]
    # Instructions of the module's functions, of one acknowledgement.
    functions: Mapping[str, float] = field(default_factory=dict)

    def quiet(self) -> list[int]:
        """Of those that sent none."""
        return [n for n, sent in zip(self.instructions, self.messages, strict=True) if not sent]

    def telling(self) -> list[int]:
        """Of those that sent one."""
        return [n for n, sent in zip(self.instructions, self.messages, strict=True) if sent]


def _said(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _symbols(program: Path) -> dict[str, int]:
    """Addresses of functions."""
    lines = (line.split() for line in _said("nm", program).splitlines())
    return {line[2]: int(line[0], 16) for line in lines if len(line) == 3 and line[1] in "tT"}


def _offsets(kernel: Path) -> list[int]:
    """Of what is looked at in a socket, by the kernel's debugging information."""
    fields = (
        "((struct tcp_sock *)0)->delivered",
        "((struct tcp_sock *)0)->packets_out",
        # A bit field, which has no address; it stands before this one.
        "((struct inet_connection_sock *)0)->icsk_retransmits",
        "((struct inet_connection_sock *)0)->icsk_ca_ops",
        "((struct tcp_congestion_ops *)0)->cong_avoid",
    )
    asked = [word for field in fields for word in ("-ex", f"output/x (long)&{field}", "-ex", r'printf "\n"')]
    delivered, in_flight, behind_state, ops, cong_avoid = (
        int(line, 16) for line in _said("gdb", "-batch", *asked, kernel).split()
    )
    return [delivered, in_flight, behind_state - 1, ops, cong_avoid]


def _module(module: Path | None) -> list[int]:
    """Where the module's functions are in its text, and how long that is."""
    if module is None:
        return [0, 0, 0]
    sections = _said("readelf", "-SW", module)
    text = re.search(r" \.text +PROGBITS +\w+ +\w+ +(\w+)", sections)
    symbols = _symbols(module)
    return [symbols["ccc_tcp_cong_avoid"], symbols["ccc_doorbell_send"], int(text[1], 16) if text else 0]


def _is_coupled(kind: str) -> bool:
    return kind.startswith("ccc")


def _inner(kind: str) -> str:
    return kind.split()[-1]


def scenario(kind: str, seed: int) -> Scenario:
    """VMs of one flow and of four behind 10 Mbit/s."""
    coupled = _is_coupled(kind)
    options = f"inner={_inner(kind)}" if coupled else ""
    vm = Vm((), congestion_control=kind.split()[0], module_options=options)
    vms = [replace(vm, flows=(Flows(count=count),)) for count in (1, 4)]
    return Scenario("", tuple(vms), seed, DURATION_S, coupled=coupled)


def _wrapper(scratch: Path, steps: Path, parts: Parts, module: Path | None) -> Path:
    """What the laboratory starts as a kernel."""
    symbols = _symbols(parts.kernel)
    numbers = [symbols["tcp_ack"], symbols["vu_notify"], *_offsets(parts.kernel), *_module(module), SKIP]
    words = " ".join(str(number) for number in numbers)
    script = scratch / "kernel"
    script.write_text(f'#!/bin/sh\nexec {steps} {scratch}/out {words} {parts.kernel} "$@"\n')
    script.chmod(0o755)
    return script


def _calls(scratch: Path) -> Calls:
    rows = [line.split() for file in scratch.glob("out.*.calls") for line in file.read_text().splitlines()]
    numbers = [tuple(map(int, row)) for row in rows if len(row) == 7]
    two = [row for row in numbers if row[:3] == (SEGMENTS, OPEN, OPEN)]
    # What tells the device of a message is the hypervisor's.
    return Calls(tuple(row[3] - row[5] for row in two), tuple(row[4] for row in two), tuple(row[6] for row in two))


def _functions(scratch: Path, module: Path) -> Iterator[tuple[str, int]]:
    """Instructions of the module's functions, the most first."""
    counts = [np.fromfile(file, dtype=np.uint32) for file in scratch.glob("out.*.module")]
    begun = np.stack(counts).sum(axis=0, dtype=np.int64)
    symbols = sorted((at, name) for name, at in _symbols(module).items())
    counted = Counter[str]()
    for offset in np.flatnonzero(begun):
        name = max(symbol for symbol in symbols if symbol[0] <= offset)[1]
        counted[name] += int(begun[offset])
    yield from counted.most_common()


def measure(kind: str, seed: int, parts: Parts, scratch: Path) -> Calls:
    """One run."""
    steps = scratch / "steps"
    _said("cc", "-O2", "-o", steps, SOURCE)
    module = parts.module if _is_coupled(kind) else None
    stepped = replace(parts, kernel=_wrapper(scratch, steps, parts, module))
    lab.run(scenario(kind, seed), stepped, scratch / "run", min(os.sched_getaffinity(0)))
    calls = _calls(scratch)
    if not calls.instructions:
        raise LabError(f"{kind}: no acknowledgement of {SEGMENTS} segments was counted")
    functions = list(_functions(scratch, module)) if module else []
    return replace(calls, functions={name: count / len(calls.instructions) for name, count in functions})


def document(calls: Calls) -> dict:
    """What is told of a run: medians without and with a message, and the mean of all."""
    return {
        "calls": len(calls.instructions),
        "mean": mean(calls.instructions),
        "quiet": median(calls.quiet()),
        "telling": median(calls.telling()) if calls.telling() else None,
        "module": mean(calls.module),
        "messages_of_a_call": mean(calls.messages),
        "functions": {name: round(count, 1) for name, count in calls.functions.items()},
    }


def scores_of(measured: dict[str, dict]) -> Iterator[Score]:
    """Each coupled kind against its inner algorithm."""
    for kind in filter(_is_coupled, measured):
        coupled, plain = measured[kind], measured[_inner(kind)]
        yield Score(f"{kind}, no message due", coupled["quiet"] / plain["quiet"], "ratio", "<=", 1.05)
        yield Score(f"{kind}, mean of the run", coupled["mean"] / plain["mean"], "ratio", "<=", 1.15)


def run(out: Path, seeds: Iterable[int] = (101,)) -> bool:
    """`make bench-ack`."""
    parts = Parts.built()
    runs, judged = [], []
    for seed in seeds:
        measured = {}
        for kind in KINDS:
            with TemporaryDirectory() as scratch:
                measured[kind] = document(measure(kind, seed, parts, Path(scratch)))
            told = {name: value for name, value in measured[kind].items() if name != "functions"}
            print(f"seed {seed}, {kind}: {json.dumps(told)}", flush=True)
        runs.append({"seed": seed, "measured": measured})
        judged.append(list(scores_of(measured)))
    scores = with_known((Score.over(those) for those in zip(*judged, strict=True)), KNOWN)
    write_result(out / "result.json", runs, scores, {"experiment": "bench-ack"})
    return print_scores(scores)
