# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The comparison of two trees' data finds what differs, and only that."""

import json
from pathlib import Path

import pytest
from ccc_experiments import same_data, tables


def make(raw: Path, share: str = "coco", cwnd: int = 10, kept: bool = False) -> Path:
    """A run with two rows in each table."""
    raw.mkdir(parents=True)
    scenario = {"name": raw.name, "seed": 1, "duration_s": 5.0, "kernel": str(raw), "group": {share: "mean"}}
    (raw / "scenario.json").write_text(json.dumps(scenario | ({} if kept else {"faults": []})))
    (raw / "flows.json").write_text(json.dumps([{"vm": "vm1", "bytes_received": 7}]))
    for name in tables.TABLES:
        (raw / f"{name}.csv").write_text(f"time_s,vm,cwnd_packets\n0.0,vm1,10\n0.1,vm1,{cwnd}\n")
    if kept:
        tables.keep(raw, {"revision": "another"})
    return raw


def differences(base: Path, out: Path) -> list[str]:
    return list(same_data.compare(same_data.runs(base), same_data.runs(out)))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make(tmp_path / "base" / "raw" / "one").parents[1]


def test_a_renamed_key_another_name_and_another_form_are_the_same(base, tmp_path):
    make(tmp_path / "out" / "raw" / "renamed", share="growth_source", kept=True)
    assert differences(base, tmp_path / "out") == []


def test_the_first_row_that_differs_is_told(base, tmp_path):
    make(tmp_path / "out" / "raw" / "one", cwnd=11)
    told = differences(base, tmp_path / "out")
    assert len(told) == 3
    assert "flows: column cwnd_packets: 1 rows differ, the first in row 1: was 10, is 11" in told[0]


def test_a_document_that_differs_is_told_with_its_place(base, tmp_path):
    raw = make(tmp_path / "out" / "raw" / "one")
    (raw / "flows.json").write_text(json.dumps([{"vm": "vm1", "bytes_received": 8}]))
    (told,) = differences(base, tmp_path / "out")
    assert "flows.json: [0].bytes_received was 7, is 8" in told


def test_a_run_that_one_side_lacks_is_told(base, tmp_path):
    (one,) = differences(base, tmp_path / "nothing")
    assert "has no run of this scenario now" in one
    (other,) = differences(tmp_path / "nothing", base)
    assert "had no run of this scenario before" in other


def test_two_runs_of_one_scenario_are_refused(base, tmp_path):
    make(tmp_path / "out" / "raw" / "old", cwnd=11)
    make(tmp_path / "out" / "raw" / "one")
    with pytest.raises(same_data.Ambiguous, match="raw/old and .*raw/one"):
        differences(base, tmp_path / "out")


def test_what_the_seed_does_not_decide_is_not_compared():
    assert same_data.unsteady({"bottleneck": {"queue": "cake"}}) == "CAKE"
    assert same_data.unsteady({"bottleneck": {"queue": "dualpi2"}}) == "DualPI2"
    assert same_data.unsteady({"vms": [{"congestion_control": "bbr"}]}) == "BBR"
    assert same_data.unsteady({"vms": [{"return_loss_percent": 5}]}) == "loss or jitter"
    assert same_data.unsteady({"bottleneck": {"queue": "fifo"}, "vms": [{"congestion_control": "reno"}]}) is None
