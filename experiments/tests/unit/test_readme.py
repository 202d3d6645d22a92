# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The figure that experiments/README.md shows can be made as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from ccc_experiments.figure import Data, Effort, Figure

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture
def figure() -> Figure:
    """What the block of its section makes."""
    section = README.read_text().split("## A figure of one's own")[1]
    block = re.search(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(block.group(1), names)
    return names["FIGURE"]


@pytest.mark.parametrize("effort", [Effort.of(quick=False), Effort.of(quick=True)], ids=["full", "quick"])
def test_the_figure_of_the_readme_is_made(figure, effort, tmp_path):
    points = tuple(figure.points(effort))
    assert len({point.scenario.name for point in points}) == len(points)
    lost = {"coupled": 1.0, "uncoupled": 2.0}
    results = [SimpleNamespace(scenario=p.scenario, loss_percent=lambda kind=p.kind: lost[kind]) for p in points]
    data = Data(points, tuple(results))
    assert [(score.value, score.holds) for score in figure.judged(data)] == [(0.5, True)]
    assert all(set(row) == {"case", "kind", *figure.measures} for row in figure.values(data))
    figure.plot(data, tmp_path / "my-figure")
    assert (tmp_path / "my-figure.svg").exists()
