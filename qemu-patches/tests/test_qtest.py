# SPDX-License-Identifier: GPL-2.0
"""QEMU's own tests of the device, with a back end of theirs."""

import subprocess

import pytest
from testbed import artefacts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["read-guest-mem", "reconnect", "late", "lacking", "breaks-off"])
def test_qtest(name, emulator, logs, monkeypatch):
    build = artefacts.build("qemu-tests")
    monkeypatch.setenv("QTEST_QEMU_BINARY", str(emulator))
    program = build / "tests" / "qtest" / "qos-test"
    paths = subprocess.run([program, "-l"], cwd=build, capture_output=True, text=True, check=True).stdout.split()
    (path,) = (path for path in paths if path.endswith(f"/vhost-user-ccc-tests/ccc/{name}"))
    with (logs / "log").open("w+") as log:
        ended = subprocess.run([program, "-p", path], cwd=build, stdout=log, stderr=log)
        log.seek(0)
        said = log.read()
    # None found is none passed.
    assert ended.returncode == 0 and f"\nok 1 {path}" in "\n" + said, said
