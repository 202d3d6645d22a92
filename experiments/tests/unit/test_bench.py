# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What `make bench` judges by."""

import json
from pathlib import Path

import pytest
from ccc_experiments import bench


@pytest.fixture
def baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({"engine, flows": 1000}))
    monkeypatch.setattr(bench, "BASELINE", file)


@pytest.mark.parametrize(("count", "passes"), [(900, True), (1050, True), (1051, False)])
@pytest.mark.usefixtures("baseline")
def test_five_percent_more_instructions_than_recorded_fail(count: float, passes: bool) -> None:
    (score,) = bench.baseline_scores({"engine, flows": count})
    assert score.holds == passes
