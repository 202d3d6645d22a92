# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Tests without a kernel: of sample data, and of what is only computed."""

from pathlib import Path

import pytest
import small_figure
from ccc_experiments import lab
from ccc_experiments.figure import Data
from ccc_experiments.runs import Run


@pytest.fixture(autouse=True)
def no_run(monkeypatch) -> None:
    """Whoever starts the laboratory here is told."""
    monkeypatch.setattr(lab, "run", lambda *_: pytest.fail("this is a run"))


@pytest.fixture
def earlier(tmp_path) -> Path:
    """The sample data, as an earlier call of `make figures` leaves it."""
    small_figure.lay_out(tmp_path)
    return tmp_path


@pytest.fixture
def data(earlier) -> Data:
    """The small figure's runs."""
    points = tuple(small_figure.points(small_figure.EFFORT))
    places = (earlier / "runs" / point.scenario.name.replace(" ", "-") for point in points)
    return Data(points, tuple(Run.of(point.scenario, raw) for point, raw in zip(points, places)))
