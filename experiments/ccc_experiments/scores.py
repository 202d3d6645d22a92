# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Scores: measured values with the bound they have to keep."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .interval import Interval

_HOLDS = {
    ">=": lambda value, limit: value >= limit,
    "<=": lambda value, limit: value <= limit,
    "<": lambda value, limit: value < limit,
}


@dataclass(frozen=True)
class Score:
    """`value` `relation` `limit`, or not."""

    name: str
    value: float
    unit: str
    relation: str
    limit: float
    # Half the width of the 95 % confidence interval, where there are several runs.
    half: float | None = None
    # Why it is known not to hold, if it is.
    known: str | None = None

    @classmethod
    def mean(cls, name: str, interval: Interval, unit: str, relation: str, limit: float) -> "Score":
        """A score of several runs."""
        return cls(name, interval.mean, unit, relation, limit, interval.half)

    @classmethod
    def over(cls, runs: Sequence["Score"]) -> "Score":
        """One score, taken from several runs."""
        first, *_ = runs
        interval = Interval.of([score.value for score in runs])
        return cls.mean(first.name, interval, first.unit, first.relation, first.limit)

    @property
    def holds(self) -> bool:
        return _HOLDS[self.relation](self.value, self.limit)

    @property
    def fails(self) -> bool:
        """Whether it does not hold and nobody has said why."""
        return not self.holds and self.known is None

    @property
    def mark(self) -> str:
        """What became of it, in a word."""
        if self.known is None:
            return "ok" if self.holds else "FAILED"
        return "holds now" if self.holds else "known"

    def document(self) -> dict:
        spread = {} if self.half is None else {"ci95": round(self.half, 5)}
        return {
            "name": self.name,
            "value": round(self.value, 5),
            **spread,
            "unit": self.unit,
            "bound": f"{self.relation} {self.limit:g}",
            "holds": self.holds,
        } | ({} if self.known is None else {"known": self.known})


def write_result(path: Path, runs: list[dict], scores: list[Score], about: dict) -> None:
    """Writes `result.json`, the form every experiment of the project has."""
    document = {**about, "runs": runs, "scores": [score.document() for score in scores]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def print_scores(scores: list[Score]) -> bool:
    """Prints scores, marked by what became of them; returns whether none fails."""
    for score in scores:
        bound = f"{score.relation} {score.limit:g}"
        value = Interval(score.value, score.half)
        reason = "" if score.known is None else f"; known not to hold: {score.known}"
        print(f"  {score.mark:<9} {score.name}: {value} {score.unit} (bound {bound}){reason}")
    return not any(score.fails for score in scores)
