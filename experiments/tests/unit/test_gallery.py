# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Figures made of sample data: values, scores, documents."""

import json
import shutil
from dataclasses import replace
from math import sqrt

import figures
import pytest
from ccc_experiments import dynamics, gallery, lab, outside, sharing, tables
from ccc_experiments.figure import Effort, Point
from ccc_experiments.interval import Interval
from ccc_experiments.scores import Known, Score
from small_figure import SMALL, points


def test_a_figure_is_made_of_earlier_data(earlier, capsys):
    assert gallery.remake(SMALL, earlier)
    result = json.loads((earlier / "small" / "result.json").read_text())
    assert result["command"] == "make figure FIG=small QUICK=1 SEEDS=101..102"
    assert {(row["case"], row["kind"]) for row in result["values"]} == {
        (case, kind) for case in ("1", "4") for kind in ("uncoupled", "coupled")
    }
    assert all(8 < row["sum Mbit/s"]["mean"] < 10 and "ci95" in row["sum Mbit/s"] for row in result["values"])
    assert [score["holds"] for score in result["scores"]] == [True]
    assert "| 4 | coupled | " in (earlier / "result.md").read_text()
    assert "ok        four flows: " in capsys.readouterr().out


def test_same_data_same_files(earlier):
    files = [earlier / "small" / name for name in ("result.json", "small.svg", "small.png")]
    assert gallery.remake(SMALL, earlier)
    before = [file.read_bytes() for file in files]
    assert gallery.remake(SMALL, earlier)
    assert [file.read_bytes() for file in files] == before


def test_tables_are_kept_as_they_were_written(earlier):
    raw = earlier / "runs" / "small-4-coupled-seed-101"
    written = {name: tables.read(raw, name) for name in tables.TABLES}
    tables.keep(raw, {"seed": 1})
    assert not list(raw.glob("*.csv"))
    for name, columns in written.items():
        assert tables.about(raw, name) == {"seed": 1}
        kept = tables.read(raw, name)
        assert kept.keys() == columns.keys()
        assert all((kept[column] == columns[column]).all() for column in columns)


def test_a_bound_known_not_to_hold_does_not_fail(earlier, capsys):
    def unheld(data):
        return [Score("too much", 1, "1", ">=", 2), Score("enough", 3, "1", ">=", 2)]

    def made(known) -> bool:
        return gallery.remake({"small": replace(SMALL["small"], scores=unheld, known=known)}, earlier)

    assert not made({})
    reasons = {"too much": "there is no more", "enough": "there was too little"}
    assert made({name: Known(reason, 0.5) for name, reason in reasons.items()})
    told = capsys.readouterr().out
    assert "known     too much: 1 1 (bound >= 2); one run: no interval; known not to hold, " in told
    assert "holds now enough" in told
    scores = json.loads((earlier / "small" / "result.json").read_text())["scores"]
    assert {score["name"]: score["known"] for score in scores} == reasons
    assert "**known**, floor 0.5: there is no more" in (earlier / "result.md").read_text()
    assert json.loads((earlier / "result.json").read_text())["known"] == 1
    assert not made({"too much": Known("there is no more", 1.5)})
    assert json.loads((earlier / "result.json").read_text())["failed"] == 1


def test_the_results_tell_every_reason_why_a_bound_does_not_hold():
    results = " ".join((lab.PROJECT / "docs" / "results.md").read_text().split())
    reasons = {known.reason for name in figures.names() for known in figures.load(name).known.values()}
    known = (*dynamics.KNOWN.values(), *outside.KNOWN.values(), *sharing.uneven(4), *sharing.uneven(16))
    reasons |= {one.reason for one in known}
    assert not [reason for reason in reasons if reason not in results]


def test_data_of_another_figure_is_refused(earlier, tmp_path):
    def others(effort):
        for point in points(effort):
            yield Point(point.case, point.kind, replace(point.scenario, name="other", seed=9))

    other = {"small": replace(SMALL["small"], points=others)}
    with pytest.raises(gallery.NoData, match="is not of other"):
        gallery.remake(other, earlier)
    with pytest.raises(gallery.NoData, match="make figure FIG=small"):
        gallery.remake(SMALL, tmp_path / "elsewhere")
    shutil.rmtree(earlier / "runs" / "small-4-coupled-seed-101")
    with pytest.raises(gallery.NoData, match="small-4-coupled-seed-101 is not there"):
        gallery.remake(SMALL, earlier)


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
