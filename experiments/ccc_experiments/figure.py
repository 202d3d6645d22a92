# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What a figure is: the runs it needs, what it shows of them, what must hold."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from . import seeds as seed_numbers
from .interval import Interval
from .runs import Run
from .scenario import Scenario
from .scores import Known, Score, with_known

Measure = Callable[[Run], float]
# The kind of runs without coupling.
UNCOUPLED = "uncoupled"
Case = TypeVar("Case", bound=Hashable)

FULL_SEEDS = seed_numbers.scoring(10)
QUICK_SEEDS = seed_numbers.scoring(1)


@dataclass(frozen=True)
class Effort:
    """How much of a figure is run."""

    quick: bool = False
    seeds: tuple[int, ...] = FULL_SEEDS

    @classmethod
    def of(cls, quick: bool, seeds: tuple[int, ...] | None = None) -> "Effort":
        """The full or the quick form, with its own seeds or others."""
        usual = QUICK_SEEDS if quick else FULL_SEEDS
        return cls(quick, usual if seeds is None else seeds)

    def at_least(self, runs: int) -> "Effort":
        """With more seeds, if there are fewer: for what a single run says little of."""
        first = self.seeds[0]
        more = tuple(range(first, first + runs)) if len(self.seeds) < runs else self.seeds
        return replace(self, seeds=more)

    def pick(self, full, quick):
        """One of two, by the form."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Point:
    """A run's place in a figure: `case` along its axis, `kind` its curve.

    A control is only there to be compared with: it is neither reported nor drawn.
    """

    case: Hashable
    kind: str
    scenario: Scenario
    control: bool = False


@dataclass(frozen=True)
class Data:
    """A figure's runs, by case and kind, a run for each seed."""

    points: tuple[Point, ...]
    results: tuple[Run, ...]

    @property
    def cases(self) -> list:
        return list(dict.fromkeys(point.case for point in self.points))

    @property
    def kinds(self) -> list[str]:
        """All but those of controls."""
        return list(dict.fromkeys(point.kind for point in self.points if not point.control))

    @property
    def seeds(self) -> int:
        """How many runs each mean is of."""
        first = self.points[0]
        return len(self.runs(first.case, first.kind))

    def has(self, case: Hashable, kind: str) -> bool:
        return any((p.case, p.kind) == (case, kind) for p in self.points)

    def runs(self, case: Hashable, kind: str) -> list[Run]:
        """The runs of a case and kind, in the order of their seeds."""
        places = zip(self.points, self.results, strict=True)
        found = [run for point, run in places if (point.case, point.kind) == (case, kind)]
        if not found:
            raise KeyError(f"no run of {kind!r} at {case!r}")
        return sorted(found, key=lambda run: run.scenario.seed)

    def each(self, case: Hashable, kind: str, measure: Measure) -> list[float]:
        """A measure of each of these runs."""
        return [measure(run) for run in self.runs(case, kind)]

    def mean(self, case: Hashable, kind: str, measure: Measure) -> Interval:
        return Interval.of(self.each(case, kind, measure))

    def ratio(self, case: Hashable, kind: str, to: str, measure: Measure) -> Interval:
        """A kind's mean over another's, seed by seed."""
        return Interval.ratio(self.each(case, kind, measure), self.each(case, to, measure))

    def off(self, case: Hashable, kind: str, measure: Measure, wanted: float) -> Interval:
        """By how much a kind is off what is wanted, percent: the mean of absolute errors."""
        return Interval.of([100 * abs(got / wanted - 1) for got in self.each(case, kind, measure)])

    def apart(self, case: Hashable, kind: str, to: str, measure: Measure) -> Interval:
        """By how much a kind is off another, seed by seed, percent: the mean of absolute errors."""
        pairs = zip(self.each(case, kind, measure), self.each(case, to, measure), strict=True)
        return Interval.of([100 * abs(one / other - 1) for one, other in pairs])

    def more(self, case: Hashable, kind: str, than: str, measure: Measure) -> Interval:
        """By how much a kind has more than another, seed by seed."""
        pairs = zip(self.each(case, kind, measure), self.each(case, than, measure), strict=True)
        return Interval.of([one - other for one, other in pairs])

    def score(self, name: str, case: Hashable, kind: str, measure: Measure, unit: str, relation: str, limit: float,
              **more) -> Score:  # fmt: skip
        """A bound on a kind's mean, beside what uncoupled flows have there, if they are."""
        mean = self.mean(case, kind, measure)
        return Score.mean(name, mean, unit, relation, limit, **self._uncoupled(case, measure), **more)

    def worst(self, name: str, case: Hashable, kind: str, measure: Measure, unit: str, relation: str, limit: float,
              **more) -> Score:  # fmt: skip
        """A bound on a kind's worst run, likewise."""
        values = self.each(case, kind, measure)
        return Score.worst(name, values, unit, relation, limit, **self._uncoupled(case, measure), **more)

    def _uncoupled(self, case: Hashable, measure: Measure) -> dict[str, float]:
        return {"uncoupled": self.mean(case, UNCOUPLED, measure).mean} if self.has(case, UNCOUPLED) else {}


@dataclass(frozen=True)
class Figure:
    """One figure."""

    # What it shows, for the heading of its results.
    title: str
    # The figures and tables of the papers that it stands for.
    papers: str
    points: Callable[[Effort], Iterable[Point]]
    scores: Callable[[Data], list[Score]]
    plot: Callable[[Data, Path], None]
    # Reported of every case and kind: name with unit, and how it is measured.
    measures: Mapping[str, Measure] = field(default_factory=dict)
    # Scores that are known not to hold, by name, with the reason that docs/results.md has, and a floor.
    known: Mapping[str, Known] = field(default_factory=dict)

    def judged(self, data: Data) -> list[Score]:
        """The scores, those that are known not to hold with the reason."""
        return with_known(self.scores(data), self.known)

    def values(self, data: Data) -> list[dict]:
        """Every measure of every case and kind."""
        reported = (point for point in data.points if not point.control)
        places = dict.fromkeys((point.case, point.kind) for point in reported)
        return [
            {"case": str(case), "kind": kind}
            | {name: _rounded(data.mean(case, kind, measure)) for name, measure in self.measures.items()}
            for case, kind in places
        ]


def grid(
    name: str,
    effort: Effort,
    cases: Iterable[Case],
    kinds: Iterable[str],
    scenario: Callable[[Case, str, int], Scenario],
    controls: Iterable[str] = (),
) -> Iterator[Point]:
    """Every case of every kind and control, with every seed."""
    kinds, controls = tuple(kinds), tuple(controls)
    for case in cases:
        for kind in (*kinds, *controls):
            for seed in effort.seeds:
                named = replace(scenario(case, kind, seed), name=f"{name} {case} {kind} seed {seed}")
                yield Point(case, kind, named, kind in controls)


def _rounded(interval: Interval) -> dict:
    spread = {} if interval.half is None else {"ci95": float(f"{interval.half:.4g}")}
    return {"mean": float(f"{interval.mean:.6g}")} | spread
