# SPDX-License-Identifier: GPL-2.0
"""Boots the guest with KCSAN once for each test and looks for data races of the module.

KCSAN watches one access of some thousands, and holds it up to see whether another
comes meanwhile: that it finds nothing says more, the longer it looks.
"""

import pytest
from guests import RACING, Kernel, on_bus, races


@pytest.fixture
def suite() -> str:
    return "test-races"


@pytest.fixture
def kernel() -> Kernel:
    return RACING


def slow(steps: str):
    return pytest.param(steps, marks=pytest.mark.slow)


@pytest.mark.parametrize("steps", ["coupled_flows", "unbinds", slow("reloads"), slow("removals")])
def test_g9_no_data_races(steps, start, daemon, measured):
    guest = start(steps, on_bus(daemon.backend))
    did = guest.finish()
    assert races(guest.console, "racy"), f"not even a race that is one was seen: {did}"
    measured(did=did)
