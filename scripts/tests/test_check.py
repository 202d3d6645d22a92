# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""scripts/check tells each part in a line, and of one that fails the cause."""

import os
import runpy
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[1] / "check"


@pytest.fixture
def check(tmp_path) -> dict:
    """The script's names, with logs of their own."""
    names = runpy.run_path(str(CHECK))
    names["run"].__globals__.update(LOGS=tmp_path, PROJECT=tmp_path)
    return names


def test_a_part_that_fails_names_the_cause(check, capsys):
    commands = [("echo", "all is well"), ("sh", "-c", "echo the cause; false"), ("echo", "never")]
    passed, seconds = check["run"]("part", commands, dict(os.environ))
    check["print_part"]("part", passed, seconds)
    told = capsys.readouterr().out
    assert not passed and told.startswith("part           FAILED ")
    assert "the cause\n(whole log: part.log)" in told and "never" not in told


def test_a_part_that_passes_says_no_more(check, capsys):
    check["print_part"]("part", *check["run"]("part", [("echo", "all is well")], dict(os.environ)))
    assert capsys.readouterr().out.startswith("part           ok ")


def test_an_unknown_part_is_refused():
    done = subprocess.run([CHECK, "lint"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("check: unknown part lint; expected cccctl, ")
