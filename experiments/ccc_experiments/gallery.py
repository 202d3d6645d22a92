# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Makes figures: their runs, or the data of earlier ones, into results and plots."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from . import lab, markdown, same_data
from . import seeds as seed_numbers
from .figure import Data, Effort, Figure, Point
from .interval import Interval
from .runs import Run
from .scenario import Scenario
from .scores import Score, print_scores
from .store import Store

RESULT = "result.json"
TEXT = "result.md"
RUNS = "runs"


class NoData(Exception):
    """Earlier data is not there, or is of another version of the figure."""


@dataclass(frozen=True)
class Made:
    """A figure that was made."""

    name: str
    document: dict
    passes: bool


def make(figures: dict[str, Figure], out: Path, effort: Effort) -> bool:
    """Does all runs, then makes the figures; whether no score fails."""
    store = Store(out / RUNS)
    points = {name: list(figure.points(effort)) for name, figure in figures.items()}
    scenarios = [point.scenario for some in points.values() for point in some]
    directories = iter(store.run(scenarios))
    made = []
    for name, figure in figures.items():
        raw = [next(directories) for _ in points[name]]
        made.append(_make(name, figure, points[name], raw, out / name, effort, _command(name, effort)))
    return _summary(made, out)


def make_alone(name: str, figure: Figure, out: Path, effort: Effort) -> bool:
    """Makes a figure that has a command and a directory of its own; whether no score fails."""
    points = list(figure.points(effort))
    raw = Store(out / RUNS).run([point.scenario for point in points])
    made = _make(name, figure, points, raw, out, effort, _asked(f"make {name}", effort))
    print(f"\n{out}/{RESULT}, {out}/{name}.svg")
    return made.passes


def remake(figures: dict[str, Figure], out: Path) -> bool:
    """Makes figures again from the data that is there, without a run."""
    made = []
    for name, figure in figures.items():
        path = out / name / RESULT
        if not path.exists():
            raise NoData(f"{path} is not there: run 'make figure FIG={name}' first")
        earlier = json.loads(path.read_text())
        effort = Effort(earlier["quick"], tuple(earlier["seeds"]))
        points = list(figure.points(effort))
        raw = [out / RUNS / run["data"] for run in earlier["runs"]]
        _check(name, points, raw)
        made.append(_make(name, figure, points, raw, out / name, effort, _command(name, effort)))
    return _summary(made, out)


def _check(name: str, points: list[Point], raw: list[Path]) -> None:
    again = f"run 'make figure FIG={name}' again"
    if len(points) != len(raw):
        raise NoData(f"{name}: there are {len(raw)} runs, the figure has {len(points)}: {again}")
    for point, directory in zip(points, raw):
        if not (directory / "done").exists():
            raise NoData(f"{name}: {directory} is not there: {again}")
        if not _is_of(directory, point.scenario):
            raise NoData(f"{name}: {directory} is not of {point.scenario.name}: {again}")


def _is_of(directory: Path, scenario: Scenario) -> bool:
    """Whether data is of this scenario, whatever it was called."""
    return same_data.requested(directory) == json.loads(json.dumps(lab.decides(lab.content(scenario))))


def _make(
    name: str, figure: Figure, points: list[Point], raw: list[Path], directory: Path, effort: Effort, command: str
) -> Made:
    runs = tuple(Run.of(point.scenario, directory) for point, directory in zip(points, raw))
    data = Data(tuple(points), runs)
    directory.mkdir(parents=True, exist_ok=True)
    scores = figure.judged(data)
    values = figure.values(data)
    document = {
        "figure": name,
        "title": figure.title,
        "papers": figure.papers,
        "command": command,
        "quick": effort.quick,
        "seeds": list(effort.seeds),
        "values": values,
        "scores": [score.document() for score in scores],
        "runs": [_run_document(point, run) for point, run in zip(points, runs)],
    }
    (directory / RESULT).write_text(json.dumps(document, indent=1) + "\n")
    figure.plot(data, directory / name)
    return Made(name, document, _print_figure(name, figure, values, scores))


def _command(name: str, effort: Effort) -> str:
    return _asked(f"make figure FIG={name}", effort)


def _asked(command: str, effort: Effort) -> str:
    quick = " QUICK=1" if effort.quick else ""
    seeds = "" if effort == Effort.of(effort.quick) else f" SEEDS={seed_numbers.text(effort.seeds)}"
    return f"{command}{quick}{seeds}"


def _run_document(point: Point, run: Run) -> dict:
    speed = json.loads((run.raw / "speed.json").read_text())
    return {
        "case": str(point.case),
        "kind": point.kind,
        "seed": point.scenario.seed,
        "data": run.raw.name,
        "simulated_s": speed["simulated_s"],
        "wall_s": round(speed["wall_s"], 2),
    }


def _print_figure(name: str, figure: Figure, values: list[dict], scores: list[Score]) -> bool:
    """Prints a figure's values and scores; whether none fails."""
    print(f"\n{name}: {figure.title} ({figure.papers})")
    for row in values:
        numbers = "  ".join(f"{measure} {_text(row[measure])}" for measure in figure.measures)
        print(f"  {row['case']:<12} {row['kind']:<20} {numbers}")
    return print_scores(scores)


def _text(value: dict) -> str:
    return str(Interval(value["mean"], value.get("ci95")))


def _summary(made: list[Made], out: Path) -> bool:
    """Writes the scores of all figures of `out`, those made before included."""
    documents = {path.parent.name: json.loads(path.read_text()) for path in sorted(out.glob(f"*/{RESULT}"))}
    figures = [
        {key: document[key] for key in ("figure", "title", "papers", "command", "scores")}
        | {
            "simulated_s": sum(run["simulated_s"] for run in document["runs"]),
            "processor_s": round(sum(run["wall_s"] for run in document["runs"]), 1),
        }
        for document in documents.values()
    ]
    scores = [score for figure in figures for score in figure["scores"]]
    failed = sum(score["fails"] for score in scores)
    known = sum("known" in score and not score["holds"] and not score["fails"] for score in scores)
    counts = {"scores": len(scores), "failed": failed, "known": known}
    summary = counts | {"figures": figures}
    (out / RESULT).write_text(json.dumps(summary, indent=1) + "\n")
    (out / TEXT).write_text(markdown.results(documents.values()))
    counted = f"{len(scores)} scores, {counts['failed']} failed, {known} known not to hold"
    print(f"\n{len(made)} figures made; {out}/{RESULT}: {counted}")
    sys.stdout.flush()
    return all(figure.passes for figure in made)
