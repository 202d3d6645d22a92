# SPDX-License-Identifier: GPL-2.0
"""Options and fixtures of the tests on kernels that check what they do."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guests import CheckedGuest, Kernel
from testbed.daemon import Daemon

pytest_plugins = ["testbed.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sanitized guest")
    group.addoption("--seconds", type=int, default=30, help="of flows in each test")
    group.addoption("--seed", type=int, default=1)
    group.addoption("--processors", type=int, default=4)


@pytest.fixture(autouse=True)
def private_files() -> Iterator[None]:
    """Files are the user's own."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def daemon(logs: Path) -> Iterator[Daemon]:
    with Daemon.of_vm(logs) as daemon:
        yield daemon


@pytest.fixture
def start(pytestconfig: pytest.Config, logs: Path, kernel: Kernel) -> Iterator[Callable[..., CheckedGuest]]:
    """Starts a guest; each file of tests has its `kernel`."""
    guests: list[CheckedGuest] = []

    def start(steps: str, device: list[str] | None = None, seconds: int = 0) -> CheckedGuest:
        seconds = seconds or pytestconfig.getoption("--seconds")
        guests.append(CheckedGuest(kernel, pytestconfig, logs, steps, seconds, device or []))
        return guests[-1]

    yield start
    for guest in guests:
        guest.close()
