# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How fast engine and daemon are, against the goals of docs/performance.md.

Times are of this machine.  Instructions are not, so they are what a change is judged by:
each may be 5 % above the committed baseline at the most.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from . import bench_known
from .lab import LabError
from .scores import Score, print_scores, with_known, write_result

PROJECT = Path(__file__).resolve().parents[2]
BASELINE = PROJECT / "experiments/bench-baseline.json"
MORE_THAN_BEFORE = 1.05
# As in host/ccc-core/benches/engine.
ENGINE_CASES = (
    "flows-10-vms-2",
    "flows-1000-vms-2",
    "flows-100000-vms-2",
    "flows-1000-vms-100",
    "flows-1000-vms-1000",
)
LIMITED_CASES = ("limited-flows-1000-vms-100", "limited-flows-1000-vms-1000")
# VMs with a floor and a cap: one of so many, and all.
BOUNDED_CASES = (
    "one-bounded-flows-1000-vms-2",
    "one-bounded-flows-1000-vms-100",
    "one-bounded-flows-1000-vms-1000",
    "all-bounded-flows-1000-vms-1000",
)
CASES = (*ENGINE_CASES, *LIMITED_CASES, *BOUNDED_CASES)
# Two counts whose difference is free of what only begins and ends.
REPORTS = (2_000, 12_000)


@dataclass(frozen=True)
class Daemon:
    """A measurement of the daemon: its name and the words of it."""

    name: str
    words: str
    # What there are so many of in two runs, where instructions are counted.
    counts: str = ""
    runs: tuple[int, int] = (0, 0)
    # Another build of the daemon may not have what it measures.
    is_new: bool = False


WOKEN = "level of another VM"
POLLED = "level of another VM, polled"

DAEMON = (
    Daemon("1 VM, batches of 256", "batches vms=1 flows=256 batch=256 updates=300000"),
    Daemon("1 VM, one at a time", "batches vms=1 flows=256 batch=1 updates=20000"),
    Daemon("1 VM, streamed", "stream flows=256 updates=200000"),
    Daemon("1,000 VMs, batches of 256", "batches vms=1000 flows=256 batch=256 updates=256000"),
    Daemon("1,000 VMs, one at a time", "batches vms=1000 flows=4 batch=1 updates=20000"),
    Daemon("published to 10 VMs", "publish vms=10 rounds=500"),
    Daemon("published to 100 VMs", "publish vms=100 rounds=500"),
    Daemon("published to 1,000 VMs", "publish vms=1000 rounds=300"),
    Daemon(WOKEN, "latency rounds=1000"),
    Daemon(POLLED, "polled rounds=2000", is_new=True),
    Daemon("100,000 flows", "flows flows=100000 vms=2 apart=1"),
    Daemon("1,000,000 flows", "flows flows=1000000 vms=16 apart=1"),
    Daemon("descriptors", "descriptors vms=20"),
    Daemon("1,000 idle VMs", "idle vms=1000"),
)
CCP = PROJECT / "host/ccp-latency/Cargo.toml"
CCP_ROUNDS = 2000
# Under callgrind.
COUNTED = (
    Daemon("1 VM, batches of 256", "batches vms=1 flows=256 batch=256", "updates", (2_560, 25_600)),
    Daemon("1 VM, one at a time", "batches vms=1 flows=256 batch=1", "updates", (500, 2_500)),
    Daemon("published to 100 VMs", "publish vms=100", "rounds", (100, 300)),
)


@dataclass(frozen=True)
class Programs:
    """What is measured with."""

    engine: Path
    speed: Path

    @classmethod
    def build(cls) -> "Programs":
        command = ["cargo", "bench", "--quiet", "--no-run", "--message-format=json", "--manifest-path"]
        chosen = ["host/Cargo.toml", "-p", "ccc-core", "-p", "ccc-vhost", "--bench", "engine", "--bench", "speed"]
        done = subprocess.run(command + chosen, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise LabError("the benchmarks do not build")
        messages = [json.loads(line) for line in done.stdout.splitlines()]
        built = {one["target"]["name"]: one["executable"] for one in messages if one.get("executable")}
        return cls(Path(built["engine"]), Path(built["speed"]))


def _output(command: list[str], more: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, env={**os.environ, **(more or {})}, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(command)} failed with status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _total(file: Path) -> int:
    """Instructions of a run, as callgrind wrote them."""
    lines = file.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("totals:"))


def _each(counts: tuple[int, int], totals: list[int]) -> float:
    return (totals[1] - totals[0]) / (counts[1] - counts[0])


def engine_instructions(programs: Programs, case: str) -> float:
    """Of one report."""
    totals = []
    with TemporaryDirectory() as scratch:
        for reports in REPORTS:
            file = Path(scratch) / str(reports)
            valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={file}"]
            _output([*valgrind, str(programs.engine), "--count", case, str(reports)])
            totals.append(_total(file))
    return _each(REPORTS, totals)


def daemon_instructions(programs: Programs, one: Daemon) -> float:
    """Of one update, of the daemon alone."""
    totals = []
    with TemporaryDirectory() as scratch:
        for count in one.runs:
            file = Path(scratch) / str(count)
            words = [*one.words.split(), f"{one.counts}={count}"]
            _output([str(programs.speed), *words], {"CALLGRIND_OUT": str(file)})
            totals.append(_total(file))
    return _each(one.runs, totals)


def engine_times(programs: Programs) -> dict[str, float]:
    """Nanoseconds by case, the median of criterion's samples."""
    with TemporaryDirectory() as scratch:
        quick = ["--bench", "--noplot", "--warm-up-time", "0.5", "--measurement-time", "1"]
        _output([str(programs.engine), *quick], {"CRITERION_HOME": scratch})
        estimates = {case: Path(scratch) / case / "new/estimates.json" for case in CASES}
        return {case: json.loads(file.read_text())["median"]["point_estimate"] for case, file in estimates.items()}


def daemon_measured(programs: Programs, one: Daemon, daemon: str | None = None) -> dict:
    """One measurement, of another build of the daemon if one is named."""
    more = {"CCC_VHOST": daemon} if daemon else {}
    return json.loads(_output([str(programs.speed), *one.words.split()], more))


def ccp_measured() -> dict:
    """From a report to what CCP's agent makes of it, by its own IPC; it is fetched for this alone.

    Nothing, and no score, where it cannot be fetched or built.
    """
    run = ["cargo", "run", "--quiet", "--release", "--locked", "--manifest-path", str(CCP), "--", str(CCP_ROUNDS)]
    try:
        return json.loads(_output(run))
    except LabError as error:
        print(f"CCP's scores are left out: {error}", flush=True)
        return {}


def ccp_scores(measured: dict[str, dict], ccp: dict) -> Iterator[Score]:
    """Beside CCP's agent, by medians of the same run."""
    for name, key, goal in ((WOKEN, "ccp_us", 2), (POLLED, "ccp_polled_us", 10)):
        ratio = ccp[key]["p50"] / measured[name]["level_us"]["p50"]
        yield Score(f"{name}: CCP's time over ours, median", ratio, "ratio", ">=", goal)


def engine_scores(instructions: dict[str, float], times: dict[str, float]) -> Iterator[Score]:
    """Of instructions and, where they were taken, of times."""
    for case, count in instructions.items():
        yield Score(f"engine, {case}: instructions", count, "", "<=", 400)
    for words, cases in (("", ENGINE_CASES), (" with bounds", BOUNDED_CASES)):
        of = [instructions[case] for case in cases]
        yield Score(f"engine{words}: instructions, the most over the least", max(of) / min(of), "ratio", "<=", 1.1)
    for case, ns in times.items():
        yield Score(f"engine, {case}: time", ns, "ns", "<=", 150 if case in LIMITED_CASES else 100)


def daemon_scores(measured: dict[str, dict]) -> Iterator[Score]:
    """Of what the daemon does."""
    for name, values in measured.items():
        if "updates_per_core_s" in values:
            yield Score(f"{name}: updates of a core", values["updates_per_core_s"] / 1e6, "million/s", ">=", 3)
        if "streamed" in name:
            yield Score(f"{name}: kicks of an update", values["kicks_per_update"], "", "<", 0.1)
        if "cpu_us" in values:
            yield Score(f"{name}: processor time", values["cpu_us"], "us", "<=", 100)
        if "eventfd_us" in values:
            ratio = values["level_us"]["p50"] / values["eventfd_us"]["p50"]
            yield Score(f"{name}: time until it is read over a bare eventfd's, median", ratio, "ratio", "<=", 1.5)
        if "line_us" in values:
            ratio = values["level_us"]["p50"] / values["line_us"]["p50"]
            yield Score(f"{name}: time over a cache line's round trip, median", ratio, "ratio", "<=", 3)
        if "bytes_per_flow" in values:
            yield Score(f"{name}: memory of each", values["bytes_per_flow"], "bytes", "<=", 160)
            yield Score(f"{name}: memory", values["flows_mib"], "MiB", "<=", 256)
            yield Score(f"{name}: memory when they have left", values["left_mib"], "MiB", "<=", 64)
        if "wakes" in values:
            yield Score(f"{name}: wake-ups in 5 s", values["wakes"], "", "<=", 0)
            yield Score(f"{name}: memory", values["own_mib"], "MiB", "<=", 64)
        if "descriptors_per_vm" in values:
            yield Score("descriptors of an attached VM", values["descriptors_per_vm"], "", "<=", 8)


def baseline_scores(instructions: dict[str, float]) -> Iterator[Score]:
    """Against what was committed."""
    before = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    for name, count in instructions.items():
        if name not in before:
            continue
        yield Score(f"{name}: instructions over the baseline's", count / before[name], "ratio", "<=", MORE_THAN_BEFORE)


def _line(name: str, values: object) -> None:
    print(f"{name}: {json.dumps(values)}", flush=True)


def counted(programs: Programs) -> tuple[dict[str, float], dict[str, float]]:
    """Instructions of the engine by case, and of the daemon."""
    engine, daemon = {}, {}
    for case in CASES:
        engine[case] = engine_instructions(programs, case)
        _line(f"engine, {case}: instructions", round(engine[case]))
    for one in COUNTED:
        daemon[one.name] = daemon_instructions(programs, one)
        _line(f"daemon, {one.name}: instructions", round(daemon[one.name]))
    return engine, daemon


def timed(programs: Programs, base: str | None) -> tuple[dict[str, float], dict[str, dict], dict[str, dict], dict]:
    """Times of the engine by case, what the daemon does, the same of another build, and CCP's."""
    engine = engine_times(programs)
    for case, ns in engine.items():
        _line(f"engine, {case}: ns", round(ns, 1))
    daemon, before = {}, {}
    for one in DAEMON:
        if base and not one.is_new:
            before[one.name] = daemon_measured(programs, one, base)
            _line(f"base, {one.name}", before[one.name])
        daemon[one.name] = daemon_measured(programs, one)
        _line(one.name, daemon[one.name])
    ccp = ccp_measured()
    if ccp:
        _line("CCP", ccp)
    return engine, daemon, before, ccp


def run(out: Path, quick: bool = False, record: bool = False, base: str | None = None) -> bool:
    """`make bench`: quick is what continuous integration runs, which counts and does not time."""
    programs = Programs.build()
    engine, daemon = counted(programs)
    instructions = {f"engine, {name}": count for name, count in engine.items()}
    instructions |= {f"daemon, {name}": count for name, count in daemon.items()}
    if record:
        rounded = {name: round(count) for name, count in instructions.items()}
        BASELINE.write_text(json.dumps(rounded, indent=1) + "\n")
    scores = list(baseline_scores(instructions))
    times, measured, before, ccp = ({}, {}, {}, {}) if quick else timed(programs, base)
    scores += engine_scores(engine, times)
    scores += daemon_scores(measured)
    scores += ccp_scores(measured, ccp) if ccp else []
    scores = with_known(scores, bench_known.KNOWN)
    runs = [{"instructions": instructions, "engine_ns": times, "daemon": measured, "base": before, "ccp": ccp}]
    write_result(out / "result.json", runs, scores, {"experiment": "bench"})
    return print_scores(scores)
