# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""systemd's units, as far as systemd judges them without being started."""

from pathlib import Path

import pytest
from testbed.host import HERE

UNITS = sorted((Path(__file__).resolve().parents[1] / "systemd").glob("*.service"))
# Of ten, times ten: what systemd calls "OK" ends at 50.
MOST_EXPOSURE = 20


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_service_may_do_little_else(unit):
    """A threshold that is passed makes systemd-analyze fail."""
    HERE.run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", unit)
