# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""One flow against 4 and 16 at 10 and 100 Gbit/s, by the law fuzzer's model.

Real kernels end at a gigabit in the laboratory.  A packet of the model is a burst of
up to 256 segments here, as segmentation offload sends them.
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from . import lab
from . import seeds as seed_numbers
from .interval import Interval
from .scenario import Bottleneck, Flows, Scenario, Vm
from .scores import Score, print_scores, write_result

KINDS = ("uncoupled", "coupled")
RATES_GBIT, DELAYS_MS, FLOWS, INNERS = (10, 100), (20.0, 1.0), (4, 16), ("reno", "cubic")
# The second half of it counts; a sawtooth of one far Reno flow takes longer still.
DURATION_S = {1.0: 6.0, 20.0: 60.0}
INTERVAL_S = 0.5
FRAME_BYTES = 1514
SEEDS = 3


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    rate_gbit: int
    delay_ms: float
    flows: int
    inner: str

    def __str__(self) -> str:
        return f"{self.rate_gbit} Gbit/s x {self.delay_ms:g} ms, 1 : {self.flows}, {self.inner}"

    def scenario(self, seed: int) -> Scenario:
        """A queue of one product."""
        packets = round(self.rate_gbit * 1e9 * self.delay_ms / 1e3 / 8 / FRAME_BYTES)
        path = Bottleneck(rate_mbit=self.rate_gbit * 1e3, delay_ms=self.delay_ms, limit_packets=packets)
        options = f"inner={self.inner}"
        vms = tuple(
            Vm((Flows(count=count),), congestion_control="ccc", module_options=options) for count in (1, self.flows)
        )
        return Scenario(str(self), vms, seed, DURATION_S[self.delay_ms], bottleneck=path, coupled=True)


@dataclass(frozen=True)
class Numbers:
    """Of the second half of a run."""

    gbit: float
    share_error_percent: float
    dropped_packets: int

    @classmethod
    def of(cls, run: dict) -> "Numbers":
        half = [sum(vm[len(vm) // 2 :]) for vm in run["vm_bytes"]]
        seconds = (len(run["vm_bytes"][0]) - len(run["vm_bytes"][0]) // 2) * INTERVAL_S
        error = 100 * abs(half[0] - half[1]) / sum(half)
        return cls(sum(half) * 8e-9 / seconds, error, sum(run["dropped_segments"]))


def simulated(case: Case, seed: int, raw: Path) -> dict[str, Numbers]:
    """Both kinds."""
    request = raw / f"{case.rate_gbit}-{case.delay_ms:g}-{case.flows}-{case.inner}-{seed}.json"
    document = lab.content(case.scenario(seed)) | {"daemon": "none"}
    request.write_text(json.dumps(document) + "\n")
    program = lab.release() / "ccc-law"
    command: list[str | Path] = [program, "run", request, "--json", "--interval", str(INTERVAL_S)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise lab.LabError(f"{case}: {program} failed with status {done.returncode}")
    runs = json.loads(done.stdout)
    return {kind: Numbers.of(runs[kind]) for kind in KINDS}


def scores(case: Case, runs: list[dict[str, Numbers]]) -> list[Score]:
    """Fair, and no slower."""
    ratios = Interval.of([run["coupled"].gbit / run["uncoupled"].gbit for run in runs])
    errors = [run["coupled"].share_error_percent for run in runs]
    theirs = Interval.of([run["uncoupled"].share_error_percent for run in runs]).mean
    return [
        Score.ratio(f"{case}: coupled over uncoupled goodput", ratios, ">=", 0.98),
        Score.mean(f"{case}: error of the VMs' shares", Interval.of(errors), "%", "<=", 2, uncoupled=theirs),
    ]


def rows(case: Case, runs: list[dict[str, Numbers]]) -> list[str]:
    """Of the table."""
    result = []
    for kind in KINDS:
        numbers = [run[kind] for run in runs]
        gbit, error, dropped = (
            Interval.of([float(getattr(n, name)) for n in numbers])
            for name in ("gbit", "share_error_percent", "dropped_packets")
        )
        result.append(f"| {case} | {kind} | {gbit} | {error} | {dropped} |")
    return result


def run(out: Path, seeds: tuple[int, ...] = seed_numbers.scoring(SEEDS)) -> bool:
    """`make law-speed`."""
    raw = out / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    cases = [Case(*values) for values in product(RATES_GBIT, DELAYS_MS, FLOWS, INNERS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        asked = {case: [pool.submit(simulated, case, seed, raw) for seed in seeds] for case in cases}
        table = ["| case | kind | goodput Gbit/s | share error % | dropped |", "|---|---|---|---|---|"]
        runs = {}
        for case, of in asked.items():
            runs[case] = [one.result() for one in of]
            table += rows(case, runs[case])
            print(*table[-2:], sep="\n", flush=True)
    (out / "table.md").write_text("\n".join(table) + "\n")
    every = [score for case in cases for score in scores(case, runs[case])]
    document = [
        {"case": str(case), "seed": seed} | {kind: vars(numbers[kind]) for kind in KINDS}
        for case in cases
        for seed, numbers in zip(seeds, runs[case])
    ]
    write_result(out / "result.json", document, every, {"experiment": "law-speed", "seeds": list(seeds)})
    return print_scores(every)
