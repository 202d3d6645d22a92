# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs scenarios in the laboratory, one on each processor."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue

from .scenario import Scenario

PROJECT = Path(__file__).resolve().parents[2]
# What a scenario file says of the run itself, and of the programs it is run with.
_ABOUT = ("name", "kernel", "module", "hostile_module", "daemon")


class LabError(Exception):
    """A run failed; the text says which, why, and where its logs are."""


def printed(*command: str) -> Path:
    """The path a build script prints."""
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise LabError(f"{command[0]} failed with status {done.returncode}")
    return Path(done.stdout.strip())


def release() -> Path:
    """Where cargo leaves our programs."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or printed("scripts/cache") / "target") / "release"


@dataclass(frozen=True)
class Parts:
    """What a laboratory is put together from."""

    kernel: Path
    module: Path
    daemon: Path
    lab: Path

    @classmethod
    def built(cls) -> "Parts":
        """The parts as `make build` left them."""
        target = release()
        parts = cls(
            kernel=printed("scripts/build", "kernel") / "linux",
            module=printed("scripts/build", "module") / "ccc.ko",
            daemon=target / "ccc-vhost",
            lab=target / "ccc-lab",
        )
        for path in (parts.kernel, parts.module, parts.daemon, parts.lab):
            if not path.exists():
                raise LabError(f"{path} is not there: run 'make build' first")
        return parts


def document(scenario: Scenario, parts: Parts) -> dict:
    """The scenario file: what is simulated, and with what."""
    with_ours = content(scenario) | {name: str(vars(parts)[name]) for name in ("kernel", "module", "daemon")}
    return with_ours | {"hostile_module": str(hostile_module())} if is_hostile(scenario) else with_ours


def is_hostile(scenario: Scenario) -> bool:
    """Whether a VM of it is."""
    return any(vm.hostile for vm in scenario.vms)


@cache
def hostile_module() -> Path:
    """The module of a guest that lies, which only attacks need."""
    return printed("scripts/build", "hostile-module") / "ccc.ko"


def content(scenario: Scenario) -> dict:
    """What is simulated, as the laboratory reads it."""
    named = (replace(vm, name=vm.name or f"vm{i}") for i, vm in enumerate(scenario.vms, 1))
    return _said(asdict(replace(scenario, vms=tuple(named))))


def decides(document: dict) -> dict:
    """What of a scenario decides its results: of one left out and one that says nothing, neither."""
    return _telling({key: value for key, value in document.items() if key not in _ABOUT})


def _said(value):
    """Without the fields that are left out: `...`."""
    if isinstance(value, dict):
        return {key: _said(field) for key, field in value.items() if field is not ...}
    return [_said(one) for one in value] if isinstance(value, list | tuple) else value


def _telling(value):
    """Without what says nothing; whole numbers as what they are."""
    if isinstance(value, dict):
        given = {key: _telling(field) for key, field in value.items()}
        # In a phase, a null rate says something that a missing one does not.
        said = {"rate_kbit"} if "at_s" in given else set()
        return {key: field for key, field in given.items() if key in said or not _is_empty(field)}
    if isinstance(value, list):
        return [_telling(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_empty(value) -> bool:
    return value is None or value is False or value in ("", [], {})


def run(scenario: Scenario, parts: Parts, out: Path, cpu: int | None = None, pcap: bool = False) -> Path:
    """Runs one scenario; its raw data is in `out` afterwards."""
    out.mkdir(parents=True, exist_ok=True)
    request = out / "request.json"
    request.write_text(json.dumps(document(scenario, parts), indent=1) + "\n")
    command = [str(parts.lab), "run", str(request), "--out", str(out)]
    if cpu is not None:
        command += ["--cpu", str(cpu)]
    if pcap:
        command.append("--pcap")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise LabError(f"{scenario.name}: {done.stdout.strip() or 'no message'} (logs: {out})")
    return out


def run_all(scenarios: list[Scenario], parts: Parts, out: Path) -> list[Path]:
    """Runs scenarios; the raw data of each lands in a directory of its name."""
    return run_each([(scenario, out / scenario.name) for scenario in scenarios], parts)


def run_each(
    wanted: Sequence[tuple[Scenario, Path]],
    parts: Parts,
    finished: Callable[[Scenario, Path], None] = lambda scenario, raw: None,
) -> list[Path]:
    """Runs scenarios side by side, one on each processor, showing progress.

    Each one's raw data lands in the directory beside it; `finished` may take it
    from there while others still run.  Every run has a processor to itself: a
    laboratory's processes take turns, and take them fastest on one.
    """
    cpus: SimpleQueue[int] = SimpleQueue()
    available = sorted(os.sched_getaffinity(0))
    for cpu in available:
        cpus.put(cpu)
    progress = _Progress(len(wanted))

    def one(scenario: Scenario, out: Path) -> Path:
        cpu = cpus.get()
        try:
            raw = run(scenario, parts, out, cpu)
        finally:
            cpus.put(cpu)
        finished(scenario, raw)
        progress.done(scenario.name)
        return raw

    with ThreadPoolExecutor(len(available)) as pool:
        futures = [pool.submit(one, *each) for each in wanted]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Progress:
    def __init__(self, total: int) -> None:
        self._total = total
        self._finished = 0
        self._lock = threading.Lock()

    def done(self, name: str) -> None:
        with self._lock:
            self._finished += 1
            print(f"[{self._finished:3}/{self._total}] {name}", file=sys.stderr, flush=True)
