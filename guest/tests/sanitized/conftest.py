# SPDX-License-Identifier: GPL-2.0
"""Options of the tests on the sanitized kernel."""

import pytest

pytest_plugins = ["testbed.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sanitized guest")
    group.addoption("--seconds", type=int, default=30, help="of flows in each test")
    group.addoption("--seed", type=int, default=1)
    group.addoption("--processors", type=int, default=4)


@pytest.fixture
def suite() -> str:
    return "test-sanitized"
