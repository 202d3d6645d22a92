# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A figure that takes seconds, for the tests.

`unit/data` has the raw data of its runs, so that what is made of runs is tested
without a kernel.  After a change of what the laboratory writes, with everything built:

    PYTHONPATH=experiments $(scripts/build venv) experiments/tests/small_figure.py
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ccc_experiments import gallery, lab, plots, seeds
from ccc_experiments.figure import Data, Effort, Figure, Point, grid
from ccc_experiments.scenario import Flows, Scenario
from ccc_experiments.scores import Score
from ccc_experiments.setups import KINDS, one_kernel, vm_of

DATA = Path(__file__).with_name("unit") / "data"
KEPT = ("flows.csv", "goodput.csv", "queue.csv", "flows.json", "bottleneck.json", "speed.json")
EFFORT = Effort.of(quick=True, seeds=seeds.scoring(2))
MEASURES = {"sum Mbit/s": lambda run: run.measured.sum_mbit}


def scenario(count: int, kind: str, seed: int) -> Scenario:
    return one_kernel(kind, seed, 5, vm_of(kind, Flows(count=count)), sample_ms=200, queue_sample_ms=50)


def points(effort: Effort) -> Iterator[Point]:
    return grid("small", effort, (1, 4), KINDS, scenario)


def scores(data: Data) -> list[Score]:
    goodput = data.mean(4, "uncoupled", MEASURES["sum Mbit/s"])
    return [Score.mean("four flows", goodput, "Mbit/s", ">=", 1)]


def plot(data: Data, stem: Path) -> None:
    plots.against_case(data, [plots.Panel("goodput, Mbit/s", MEASURES["sum Mbit/s"])], "flows", stem)


SMALL = {"small": Figure("a small figure", "none", points, scores, plot, MEASURES)}


def lay_out(out: Path) -> None:
    """Lays the sample data out as a call of `make figures` leaves it."""
    names = []
    for point in points(EFFORT):
        names.append(point.scenario.name.replace(" ", "-"))
        raw = out / gallery.RUNS / names[-1]
        shutil.copytree(DATA / names[-1], raw)
        (raw / "request.json").write_text(json.dumps(lab.content(point.scenario)))
        (raw / "done").touch()
    (out / "small").mkdir()
    earlier = {"quick": True, "seeds": EFFORT.seeds, "runs": [{"data": name} for name in names]}
    (out / "small" / gallery.RESULT).write_text(json.dumps(earlier))


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        for point in points(EFFORT):
            raw = lab.run(point.scenario, lab.Parts.built(), Path(directory, point.scenario.name))
            kept = DATA / point.scenario.name.replace(" ", "-")
            kept.mkdir(parents=True)
            for name in KEPT:
                shutil.copy(raw / name, kept)


if __name__ == "__main__":
    main()
