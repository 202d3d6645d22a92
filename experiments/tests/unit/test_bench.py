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


def test_ccp_is_judged_by_medians_of_the_same_run() -> None:
    measured = {bench.WOKEN: {"level_us": {"p50": 7.0}}, bench.POLLED: {"level_us": {"p50": 2.0}}}
    ccp = {"ccp_us": {"p50": 21.0}, "ccp_polled_us": {"p50": 9.0}}
    woken, polled = bench.ccp_scores(measured, ccp)
    assert (woken.value, woken.holds) == (3.0, True)
    assert (polled.value, polled.holds) == (4.5, False)


def test_where_ccp_cannot_be_built_its_scores_alone_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "CCP", tmp_path / "none/Cargo.toml")
    assert bench.ccp_measured() == {}
    assert "CCP's scores are left out" in capsys.readouterr().out


@pytest.mark.parametrize(("level", "passes"), [(1.4, True), (1.6, False)])
def test_a_polled_level_is_judged_by_a_line_of_the_cache(level: float, passes: bool) -> None:
    (score,) = bench.daemon_scores({bench.POLLED: {"level_us": {"p50": level}, "line_us": {"p50": 0.5}}})
    assert score.holds == passes


def test_another_build_is_not_asked_for_what_it_may_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(bench, "engine_times", lambda _: {})
    monkeypatch.setattr(bench, "ccp_measured", dict)
    monkeypatch.setattr(bench, "daemon_measured", lambda _, one, daemon=None: asked.append((one.name, daemon)))
    bench.timed(bench.Programs(Path("engine"), Path("speed")), "other")
    assert (bench.POLLED, None) in asked
    assert (bench.POLLED, "other") not in asked
    assert (bench.WOKEN, "other") in asked
