# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What every suite on the test bed shares; a conftest.py names it in `pytest_plugins`."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import artefacts
from .again import attempt

_MEASURED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: not in the quick form (QUICK=1)")
    config.stash[_MEASURED] = []


@pytest.fixture(scope="session")
def emulator() -> Path:
    """QEMU with the device."""
    return artefacts.build("qemu")


@pytest.fixture
def logs(request: pytest.FixtureRequest) -> Path:
    """The directory of a test's logs, out/SUITE/TEST, emptied of an earlier run's; one that is
    run once more has one of its own.  A conftest.py has SUITE as the fixture `suite`."""
    name = request.node.name.removeprefix("test_")
    if attempt(request) > 1:
        name += f"-{attempt(request)}"
    directory = Path("out", request.getfixturevalue("suite"), name).resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # Shown when the test fails.
    print(f"logs: {directory}")
    return directory


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Takes what a test measured, which is printed at the end of all."""

    def take(**values: object) -> None:
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
        request.config.stash[_MEASURED].append(f"{request.node.name}: {json.dumps(rounded)}")

    yield take


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_MEASURED]:
        terminalreporter.write_line(line)
