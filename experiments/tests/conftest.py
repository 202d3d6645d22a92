# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Laboratory runs shared by the system tests: each is run once, by whichever
worker needs it first, on the processor of that worker."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from ccc_experiments import lab
from ccc_experiments.measure import Measured, measure
from ccc_experiments.scenario import Scenario


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "speed: judges how fast this machine is (make speed)")


@pytest.fixture(scope="session")
def parts() -> lab.Parts:
    return lab.Parts.built()


@pytest.fixture(scope="session")
def cpu(worker_id: str) -> int:
    """The processor of this pytest worker."""
    cpus = sorted(os.sched_getaffinity(0))
    number = int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 0
    return cpus[number % len(cpus)]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for the runs of all workers of this session."""
    root = tmp_path_factory.getbasetemp()
    shared = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "runs"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def simulate(parts: lab.Parts, cpu: int, runs: Path):
    """Runs a scenario, or finds the run another test made; returns its raw data."""

    def run(scenario: Scenario, again: bool = False) -> Path:
        out = runs / (scenario.name + ("-again" if again else ""))
        with (runs / f"{out.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (out / "finished").exists():
                shutil.rmtree(out, ignore_errors=True)
                lab.run(scenario, parts, out, cpu)
                (out / "finished").touch()
        return out

    return run


@pytest.fixture(scope="session")
def measured(simulate):
    """Runs a scenario and measures it."""

    def run(scenario: Scenario) -> Measured:
        return measure(scenario, simulate(scenario))

    return run
