# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Scores: measured values with the bound they have to keep."""

import json
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

    @classmethod
    def mean(cls, name: str, interval: Interval, unit: str, relation: str, limit: float) -> "Score":
        """A score of several runs."""
        return cls(name, interval.mean, unit, relation, limit, interval.half)

    @property
    def holds(self) -> bool:
        return _HOLDS[self.relation](self.value, self.limit)

    def document(self) -> dict:
        spread = {} if self.half is None else {"ci95": round(self.half, 5)}
        return {
            "name": self.name,
            "value": round(self.value, 5),
            **spread,
            "unit": self.unit,
            "bound": f"{self.relation} {self.limit:g}",
            "holds": self.holds,
        }


def write_result(path: Path, runs: list[dict], scores: list[Score], about: dict) -> None:
    """Writes `result.json`, the form every experiment of the project has."""
    document = {**about, "runs": runs, "scores": [score.document() for score in scores]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def print_scores(scores: list[Score]) -> bool:
    """Prints scores, the failed ones marked; returns whether all hold."""
    for score in scores:
        mark = "ok    " if score.holds else "FAILED"
        bound = f"{score.relation} {score.limit:g}"
        value = Interval(score.value, score.half)
        print(f"  {mark} {score.name}: {value} {score.unit} (bound {bound})")
    return all(score.holds for score in scores)
