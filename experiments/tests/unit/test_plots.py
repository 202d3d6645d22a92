# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What figures look like, asked of matplotlib and of the files."""

from dataclasses import replace
from types import SimpleNamespace

import figures
import numpy as np
import pytest
from ccc_experiments import fairness, plots
from ccc_experiments.figure import Effort
from ccc_experiments.measure import measure
from ccc_experiments.plots import Panel
from figures import priorities_over_time
from small_figure import MEASURES

PANEL = Panel("goodput, Mbit/s", MEASURES["sum Mbit/s"])


@pytest.fixture
def axis():
    figure, axis = plots.subplots(3, 3)
    yield axis
    plots.plt.close(figure)


def places(axis) -> list[list[float]]:
    """Where each curve has its points."""
    return [list(container[0].get_xdata()) for container in axis.containers]


def lines(axis) -> set[str]:
    return {container[0].get_linestyle() for container in axis.containers}


def test_numbers_stand_where_they_belong(axis, data):
    plots.draw(axis, data, PANEL)
    assert places(axis) == [[1, 4], [1, 4]]
    assert lines(axis) == {"-"}


def test_cases_without_an_order_are_not_joined(axis, data):
    named = replace(data, points=tuple(replace(point, case=f"{point.case} flows") for point in data.points))
    plots.draw(axis, named, PANEL)
    assert places(axis) == [[0, 1], [0, 1]]
    assert lines(axis) == {"None"}


def test_a_wide_axis_shows_ratios(axis):
    plots.finish(axis, [0, 1, 10, 300], PANEL)
    assert axis.get_xscale() == "symlog"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "1", "10", "300"]


def test_error_bars_are_confidence_intervals_and_say_so(data, tmp_path):
    plots.against_case(data, [PANEL], "flows", tmp_path / "plot")
    drawn = (tmp_path / "plot.svg").read_text()
    assert "means of 2 runs; error bars: 95 % confidence intervals" in drawn


def test_a_single_run_has_no_error_bars_and_says_so(data, tmp_path):
    first = [(p, r) for p, r in zip(data.points, data.results) if p.scenario.seed == 101]
    points, results = zip(*first)
    plots.against_case(replace(data, points=points, results=results), [PANEL], "flows", tmp_path / "plot")
    drawn = (tmp_path / "plot.svg").read_text()
    assert "one run each" in drawn and "confidence" not in drawn


def test_the_demo_is_drawn_like_any_figure(data, tmp_path):
    measured = [measure(run.scenario, run.raw) for run in data.results]
    drawn = fairness.data_of(measured, plots.case_of)
    assert (drawn.cases, drawn.kinds, drawn.seeds) == (["1", "4"], ["uncoupled", "coupled"], 2)


@pytest.mark.parametrize("name", figures.names())
def test_kinds_of_a_figure_can_be_told_apart(name):
    kinds = dict.fromkeys(p.kind for p in figures.load(name).points(Effort()) if not p.control)
    looks = [tuple(plots.style(kind).values()) for kind in kinds]
    assert len(set(looks)) == len(looks)


def test_priorities_over_time_have_their_sum():
    windows = {0: (np.array([1, 2, 3]), np.array([10, 20, 30])), 1: (np.array([2]), np.array([5]))}
    run = SimpleNamespace(window_of=lambda flow: windows[flow])
    times, both = priorities_over_time.aggregate_window(run)
    assert (list(times), list(both)) == ([1, 2, 3], [10, 25, 30])


def test_a_kind_of_ones_own_has_one_look_too():
    assert plots.style("mine") == plots.style("mine")


def test_a_shorter_svg_says_the_same():
    svg = '<g>\n  <path d="M 1.234567 2.5 \nL 3.999999 4 \nL 5 6 \n'
    svg += 'Q 1 2 3 4 \nL 5 6 \n" transform="scale(0.015625)"/>\n'
    svg += "  <text>0.125 : 1</text>\n</g>"
    short = '<g>\n<path d="M 1.2 2.5 4.0 4 5 6\nQ 1 2 3 4\nL 5 6\n" transform="scale(0.015625)"/>\n'
    assert plots.shorter(svg) == short + "<text>0.125 : 1</text>\n</g>"
