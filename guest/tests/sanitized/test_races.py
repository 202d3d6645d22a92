# SPDX-License-Identifier: GPL-2.0
"""Boots the guest with KCSAN once for each test and looks for data races of the module.

KCSAN watches one access of some thousands, and holds it up to see whether another
comes meanwhile: that it finds nothing says more, the longer it looks.
"""

import gzip
import subprocess
from pathlib import Path

import pytest
from guests import RACING, Kernel, on_bus, races
from testbed import artefacts


@pytest.fixture
def suite() -> str:
    return "test-races"


@pytest.fixture
def kernel() -> Kernel:
    return RACING


def test_g9_the_module_is_watched(tmp_path):
    """The race that is one has a module of its own: this one's accesses are calls of KCSAN, too."""
    packed = gzip.decompress((artefacts.build(RACING.image) / "initrd").read_bytes())
    subprocess.run(["cpio", "-i", "--quiet", "ccc.ko"], input=packed, cwd=tmp_path, check=True)
    assert {"__tsan_read8", "__tsan_write8", "__tsan_volatile_read8"} <= undefined(tmp_path / "ccc.ko")


def undefined(module: Path) -> set[str]:
    """What a module calls or uses of the kernel."""
    words = ("nm", "--undefined-only", "--just-symbols", module)
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def slow(steps: str):
    return pytest.param(steps, marks=pytest.mark.slow)


@pytest.mark.parametrize("steps", ["coupled_flows", "unbinds", slow("reloads"), slow("removals")])
def test_g9_no_data_races(steps, start, daemon, measured):
    guest = start(steps, on_bus(daemon.backend))
    did = guest.finish()
    assert races(guest.console, "racy"), f"not even a race that is one was seen: {did}"
    measured(did=did)
