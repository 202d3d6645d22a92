# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Wrong arguments are refused before anything is built, installed or run."""

import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("scripts/docs-images --all", "docs-images: invalid argument: expected none, got '--all'"),
        ("scripts/coverage --help", "coverage: invalid argument: expected none, got '--help'"),
        ("scripts/fuzz table", "fuzz: invalid arguments: expected a target and seconds, got 1"),
        ("scripts/fuzz nope 9", "fuzz: invalid TARGET: expected one of config, control, doorbell, table, got 'nope'"),
        ("scripts/fuzz table x", "fuzz: invalid TIME: expected whole seconds from 1 to 9999999, got 'x'"),
        ("scripts/fuzz table 0", "fuzz: invalid TIME: expected whole seconds from 1 to 9999999, got '0'"),
        ("make figure FIG=", "figure: invalid FIG: expected the name of a figure, got none"),
        ("make figures SEEDS=x", "invalid SEEDS: expected how many (3) or which (101..110), got 'x'"),
        ("make dynamics SEEDS=9..3", "(101..110), 1 to 1000 of them, got '9..3'"),
        ("make figure FIG=nope", "invalid figure: expected one of answers, "),
        ("make demo FLOWS=1:x", "demo: invalid FLOWS: expected whole numbers separated by ':', as in 1:4, got '1:x'"),
    ],
)
def test_a_wrong_argument_is_refused(command, why):
    done = subprocess.run(command.split(), cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 2 and why in done.stderr
    assert "building" not in done.stderr and "installing" not in done.stderr
