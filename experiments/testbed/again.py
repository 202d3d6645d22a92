# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A pytest plugin beside pytest-rerunfailures: why a test failed before it passed.

`pytest --reruns 1 -p testbed.again`; without this only its name is told."""

import pytest


def attempt(request: pytest.FixtureRequest) -> int:
    """Which run of its test this is, from 1 on."""
    return getattr(request.node, "execution_count", 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed before: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
        for name, text in report.sections:
            terminalreporter.write_line(f"{name}\n{text}")
