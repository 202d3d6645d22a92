# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What is told of a test of pytest that passes when it is run once more."""

import os
import subprocess
import sys
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"

TESTS = """
import pytest

@pytest.fixture
def suite():
    return "tried"

def test_once(logs):
    print(f"in {logs.name}")
    (logs / "said").touch()
    assert logs.name != "once", "the first time"
"""


def test_why_it_failed_is_told_and_its_logs_stay(tmp_path):
    (tmp_path / "test_tried.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["testbed.fixtures"]\n')
    options = ["-q", "-p", "no:cacheprovider", "-n", "1", "--reruns", "1", "-p", "testbed.again", "-rfER"]
    command = [sys.executable, "-m", "pytest", *options]
    environment = os.environ | {"PYTHONPATH": str(EXPERIMENTS)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
    for said in ("AssertionError: the first time", "in once", "RERUN test_tried.py::test_once"):
        assert said in done.stdout, done.stdout
    assert (tmp_path / "out/tried/once/said").exists()
