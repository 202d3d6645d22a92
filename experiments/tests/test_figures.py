# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures are made of runs, and made again of their data alone."""

import json
from math import sqrt
from pathlib import Path

import figures
import pytest
from ccc_experiments import gallery, lab, plots, store, tables
from ccc_experiments.figure import Effort, Figure, Point
from ccc_experiments.interval import Interval
from ccc_experiments.lab import Flows, Scenario, Vm
from ccc_experiments.scores import Score

MEASURES = {"sum Mbit/s": lambda run: run.measured.sum_mbit}


def points(effort):
    for seed in effort.seeds:
        for count in (1, 2):
            vms = (Vm((Flows(count),), congestion_control="reno"),)
            yield Point(count, "uncoupled", Scenario("small", vms, False, seed, 5, topology="single"))


def plot(data, stem: Path) -> None:
    plots.against_case(data, [plots.Panel("goodput", MEASURES["sum Mbit/s"])], "flows", stem)


def scores(data):
    goodput = data.mean(2, "uncoupled", MEASURES["sum Mbit/s"])
    return [Score.mean("two flows", goodput, "Mbit/s", ">=", 1)]


SMALL = {"small": Figure("a small figure", "none", points, scores, plot, MEASURES)}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The small figure, made once, with two seeds."""
    out = tmp_path_factory.mktemp("figures")
    assert gallery.make(SMALL, out, Effort.of(quick=True, seeds=2))
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
    assert gallery.make(SMALL, made, Effort.of(quick=True, seeds=2))


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
    assert gallery.make(SMALL, tmp_path / "out", Effort.of(quick=True, seeds=1))
    run = json.loads((tmp_path / "out" / "small" / "result.json").read_text())["runs"][0]
    about = tables.about(tmp_path / "out" / "runs" / run["data"], "flows")
    assert about["revision"] == "unknown: no git clone" and about["digests"]["lab"]


def test_a_bound_known_not_to_hold_does_not_fail(made, capsys):
    def unheld(data):
        return [Score("too much", 1, "1", ">=", 2), Score("enough", 3, "1", ">=", 2)]

    def make(known) -> bool:
        figure = Figure("a small figure", "none", points, unheld, plot, MEASURES, known)
        return gallery.make({"known": figure}, made, Effort.of(quick=True, seeds=2))

    assert not make({})
    reasons = {"too much": "there is no more", "enough": "there was too little"}
    assert make(reasons)
    told = capsys.readouterr().out
    assert "known     too much: 1 1 (bound >= 2); known not to hold: there is no more" in told
    assert "holds now enough" in told
    scores = json.loads((made / "known" / "result.json").read_text())["scores"]
    assert {score["name"]: score["known"] for score in scores} == reasons
    assert "**known**: there is no more" in (made / "result.md").read_text()
    assert json.loads((made / "result.json").read_text())["known"] == 1


def test_the_readme_has_every_reason_why_a_bound_does_not_hold():
    readme = " ".join((lab.PROJECT / "experiments" / "README.md").read_text().split())
    reasons = {reason for name in figures.names() for reason in figures.load(name).known.values()}
    assert reasons
    assert not [reason for reason in reasons if reason not in readme]


def test_data_of_another_figure_is_refused(made, tmp_path):
    def others(effort):
        for point in points(effort):
            yield Point(point.case, point.kind, Scenario("other", point.scenario.vms, False, 9, 5, topology="single"))

    other = {"small": Figure("another", "none", others, scores, plot, MEASURES)}
    with pytest.raises(gallery.NoData, match="is not of other"):
        gallery.remake(other, made)
    with pytest.raises(gallery.NoData, match="make figure FIG=small"):
        gallery.remake(SMALL, tmp_path)


def test_intervals_are_students():
    interval = Interval.of([1, 2, 3])
    assert interval.mean == 2
    assert interval.half == pytest.approx(4.303 / sqrt(3))
    assert Interval.of([1]).half is None


def test_what_pairs_have_in_common_does_not_widen_a_ratio():
    ratio = Interval.ratio([1, 2, 4], [2, 4, 8])
    assert (ratio.mean, ratio.half) == (0.5, 0)
    assert Interval.ratio([1, 2], [2, 2]).half > 0


@pytest.mark.parametrize("name", figures.names())
def test_every_figure_names_its_runs(name):
    """Each run has a place of its own; the quick form is a part of the whole."""
    figure = figures.load(name)
    full, quick = (list(figure.points(Effort.of(q))) for q in (False, True))
    for some in (full, quick):
        places = [(point.case, point.kind, point.scenario.seed) for point in some]
        assert len(places) == len(set(places))
    assert {p.kind for p in quick} <= {p.kind for p in full}
    assert 0 < len(quick) < len(full)
