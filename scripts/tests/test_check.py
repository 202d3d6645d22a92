# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""scripts/check tells each part in a line, and of one that fails the cause."""

import os
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[1] / "check"
HOST = CHECK.parents[1] / "host"


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


@pytest.mark.parametrize(
    "cause",
    ["failures:", "thread 'a' (1) panicked at src/a.rs:1:1:", "error[E0308]: no", "=== FAILURES ==="],
)
def test_the_first_failure_is_shown_and_not_what_follows(check, cause):
    # Tests of other binaries run behind one that fails.
    log = ["running 2 tests"] * 20 + [cause, "left: 40, right: 20"] + ["test result: ok"] * 80
    shown = check["shown"](log + ["error: 1 target failed"])
    assert shown[:2] == [cause, "left: 40, right: 20"] and len(shown) == check["SHOWN_LINES"]


def test_a_log_without_a_cause_is_shown_from_its_end(check):
    log = [f"line {number}" for number in range(100)]
    assert check["shown"](log) == log[-check["SHOWN_LINES"] :]
    # The same where the cause is near the end: what came before it helps.
    assert check["shown"]([*log, "error: killed"]) == [*log, "error: killed"][-check["SHOWN_LINES"] :]


def test_every_crate_of_the_host_is_in_a_part(check):
    members = tomllib.loads((HOST / "Cargo.toml").read_text())["workspace"]["members"]
    commands = [command for part in check["parts"]("python", "tools").values() for command in part]
    tested = {word for command in commands if command[:2] == ("cargo", "test") for word in command}
    assert set(members) <= tested


def test_a_part_that_passes_says_no_more(check, capsys):
    check["print_part"]("part", *check["run"]("part", [("echo", "all is well")], dict(os.environ)))
    assert capsys.readouterr().out.startswith("part           ok ")


def test_an_unknown_part_is_refused():
    done = subprocess.run([CHECK, "lint"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    # On a new machine it says before that it installs its tools.
    refusal = done.stderr.splitlines()[-1]
    assert refusal.startswith("check: invalid part: expected one of cccctl, ")
    assert refusal.endswith(", got lint")
