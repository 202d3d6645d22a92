# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures are made of runs, each run is done once, and its data says how it came to be."""

import json
from pathlib import Path

import pytest
from ccc_experiments import gallery, lab, store, tables
from ccc_experiments.figure import Effort
from small_figure import EFFORT, SMALL


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The small figure, made once, with two seeds."""
    out = tmp_path_factory.mktemp("figures")
    assert gallery.make(SMALL, out, EFFORT)
    return out


def test_a_figure_is_made_again_of_its_data(made, monkeypatch):
    files = [made / "result.json", *(made / "small" / name for name in ("result.json", "small.svg", "small.png"))]
    before = [file.read_bytes() for file in files]
    for file in files[-2:]:
        file.unlink()
    monkeypatch.setattr(lab, "run", lambda *_: pytest.fail("this is a run"))
    assert gallery.remake(SMALL, made)
    assert [file.read_bytes() for file in files] == before


def test_runs_that_are_there_are_not_done_again(made, monkeypatch):
    monkeypatch.setattr(lab, "run", lambda *_: pytest.fail("this is a run"))
    assert gallery.make(SMALL, made, EFFORT)


def test_data_says_how_it_came_to_be(made):
    run = json.loads((made / "small" / "result.json").read_text())["runs"][0]
    for name in tables.TABLES:
        about = tables.about(made / "runs" / run["data"], name)
        assert about["seed"] == run["seed"] == about["scenario"]["seed"]
        assert {"kernel", "module", "daemon", "lab", "guest"} == set(about["digests"])
        guest = about["meta"]["guests"]["lab"]
        assert guest["release"] and guest["qdiscs"] and guest["namespaces"]
        assert about["revision"] and "ccc-lab run" in about["command"]


def test_v6_figures_are_made_from_a_tarball_too(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PROJECT", tmp_path)
    assert gallery.make(SMALL, tmp_path / "out", Effort.of(quick=True, seeds=(1,)))
    run = json.loads((tmp_path / "out" / "small" / "result.json").read_text())["runs"][0]
    about = tables.about(tmp_path / "out" / "runs" / run["data"], "flows")
    assert about["revision"] == "unknown: no git clone" and about["digests"]["lab"]
