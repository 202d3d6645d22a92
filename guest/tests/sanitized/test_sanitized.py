# SPDX-License-Identifier: GPL-2.0
"""Boots the sanitized guest once for each test and judges what its kernel says.

The guest has real flows through a real bottleneck, and the host's real daemon or
one that misbehaves. The kernel stops at the first report of KASAN, lockdep and
the like, so a test passes if the guest got to its end and nothing was reported.
"""

import time
from contextlib import closing

import pytest
from guests import SANITIZED, Kernel, on_bus
from testbed.random_device import RandomDevice


@pytest.fixture
def suite() -> str:
    return "test-sanitized"


@pytest.fixture
def kernel() -> Kernel:
    return SANITIZED


def test_f5_switches_while_read(start, measured):
    measured(did=start("switches_while_read").finish())


def test_f6_hostile_grants(start, logs, pytestconfig, measured):
    seed, backend = pytestconfig.getoption("--seed"), logs / "ccc.sock"
    with closing(RandomDevice(backend, seed)) as device:
        # It reads rings in their simplest form.
        plain = on_bus(backend, ",indirect_desc=off,event_idx=off")

        def whole() -> None:
            assert device.error is None, f"the device itself failed: {device.error!r}"

        did = start("hostile", plain, 2 * pytestconfig.getoption("--seconds")).finish(whole)
        whole()
    assert device.did["lines"] and device.did["doorbells"], device.did
    measured(did=did, seed=seed, device=dict(sorted(device.did.items())))


@pytest.mark.slow
def test_g9_daemon_killed_and_back(start, daemon, measured):
    guest = start("watched_flows", on_bus(daemon.backend))
    kills = 0

    def kill_and_start() -> None:
        nonlocal kills
        if "@ coupled" in guest.console:
            daemon.kill()
            time.sleep(0.5)
            daemon.start()
            kills += 1
            time.sleep(1)

    did = guest.finish(kill_and_start)
    assert kills, "the daemon was never killed"
    measured(kills=kills, did=did)


def slow(steps: str):
    return pytest.param(steps, marks=pytest.mark.slow)


@pytest.mark.parametrize("steps", ["coupled_flows", slow("reloads")])
def test_g9_beside_the_daemon(steps, start, daemon, measured):
    measured(did=start(steps, on_bus(daemon.backend)).finish())


@pytest.mark.parametrize("steps", ["unbinds", slow("removals"), slow("suspends")])
def test_g8_the_device_goes(steps, start, daemon, measured):
    measured(did=start(steps, on_bus(daemon.backend)).finish())
