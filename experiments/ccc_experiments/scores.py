# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Scores: measured values with the bound they have to keep.

A bound holds if the whole 95 % confidence interval keeps it. It tells something
only if uncoupled flows do not keep it, too: a score that they keep says that it
is a guard, against what coupling could make worse.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .interval import Interval

_HOLDS = {
    ">=": lambda value, limit: value >= limit,
    "<=": lambda value, limit: value <= limit,
    "<": lambda value, limit: value < limit,
    "==": lambda value, limit: value == limit,
}


@dataclass(frozen=True)
class Known:
    """Why a bound is known not to hold, and what the value may not fall past all the same."""

    reason: str
    floor: float


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
    # Of how many runs it is the worst, in place of a mean.
    worst_of: int | None = None
    # Of how many it is the one whose path was fullest.
    fullest_of: int | None = None
    # What uncoupled flows have, where that can be said.
    uncoupled: float | None = None
    # Whether uncoupled flows keep the bound, and are to.
    guard: bool = False
    # That it does not hold, if that is known.
    known: Known | None = None

    def __post_init__(self) -> None:
        if "over uncoupled" in self.name and self.uncoupled is None:
            raise ValueError(f"invalid score '{self.name}': expected what uncoupled flows have, got none: "
                             "use Score.ratio")  # fmt: skip

    @classmethod
    def mean(cls, name: str, interval: Interval, unit: str, relation: str, limit: float, **more) -> "Score":
        """A score of several runs."""
        return cls(name, interval.mean, unit, relation, limit, interval.half, **more)

    @classmethod
    def ratio(cls, name: str, interval: Interval, relation: str, limit: float) -> "Score":
        """Of a ratio to uncoupled flows, whose own is 1: what 1 keeps is a guard."""
        guard = _HOLDS[relation](1, limit)
        return cls.mean(name, interval, "ratio", relation, limit, uncoupled=1.0, guard=guard)

    @classmethod
    def worst(cls, name: str, values: Sequence[float], unit: str, relation: str, limit: float, **more) -> "Score":
        """A score of the worst of several runs."""
        value = min(values) if relation == ">=" else max(values)
        return cls(name, value, unit, relation, limit, worst_of=len(values), **more)

    @classmethod
    def over(cls, runs: Sequence["Score"]) -> "Score":
        """One score, taken from several runs."""
        first, *_ = runs
        interval = Interval.of([score.value for score in runs])
        theirs = [score.uncoupled for score in runs if score.uncoupled is not None]
        uncoupled = Interval.of(theirs).mean if theirs else None
        return cls.mean(
            first.name, interval, first.unit, first.relation, first.limit,
            uncoupled=uncoupled, guard=first.guard, known=first.known,
        )  # fmt: skip

    @property
    def holds(self) -> bool:
        """Whether all of the interval keeps the bound; of one run, whether it does."""
        half = self.half or 0.0
        return all(_HOLDS[self.relation](value, self.limit) for value in (self.value - half, self.value + half))

    @property
    def tells(self) -> bool:
        """Whether it is a guard, or uncoupled flows do not keep the bound, as far as is known."""
        return self.guard or self.uncoupled is None or not _HOLDS[self.relation](self.uncoupled, self.limit)

    @property
    def fails(self) -> bool:
        """Whether it does not hold and nobody has said why, is below its floor, or tells nothing."""
        if not self.tells:
            return True
        return not self.holds and (self.known is None or not _HOLDS[self.relation](self.value, self.known.floor))

    @property
    def mark(self) -> str:
        """What became of it, in a word."""
        if self.fails:
            return "FAILED"
        if self.known is None:
            return "guard" if self.guard else "ok"
        return "holds now" if self.holds else "known"

    @property
    def remarks(self) -> str:
        """What there is to say of its value and its bound."""
        said = []
        if self.half is None:
            several = {"worst": self.worst_of, "fullest": self.fullest_of}
            of = [f"{what} of {count} runs" for what, count in several.items() if (count or 1) > 1]
            said += of or ["one run: no interval"]
        if not self.tells:
            said.append(f"tells nothing: uncoupled has {self.uncoupled:.4g}")
        if self.known is not None:
            below = self.fails and self.tells
            said.append(f"known not to hold, {'PAST' if below else 'with'} its floor of {self.known.floor:g}: "
                        f"{self.known.reason}")  # fmt: skip
        return "".join(f"; {one}" for one in said)

    def document(self) -> dict:
        optional = {
            "ci95": None if self.half is None else round(self.half, 5),
            "worst_of": self.worst_of,
            "fullest_of": self.fullest_of,
            "uncoupled": None if self.uncoupled is None else round(self.uncoupled, 5),
            "guard": self.guard or None,
        }
        return {
            "name": self.name,
            "value": round(self.value, 5),
            **{key: value for key, value in optional.items() if value is not None},
            "unit": self.unit,
            "bound": f"{self.relation} {self.limit:g}",
            "holds": self.holds,
            "fails": self.fails,
        } | ({} if self.known is None else {"known": self.known.reason, "floor": self.known.floor})


def with_known(scores: Iterable[Score], known: Mapping[str, Known]) -> list[Score]:
    """Scores, those that are known by name not to hold with the reason."""
    return [replace(score, known=known.get(score.name)) for score in scores]


def write_result(path: Path, runs: list[dict], scores: list[Score], about: dict) -> None:
    """Writes `result.json`, the form every experiment of the project has."""
    document = {**about, "runs": runs, "scores": [score.document() for score in scores]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def print_scores(scores: list[Score]) -> bool:
    """Prints scores, marked by what became of them; returns whether none fails."""
    for score in scores:
        bound = f"{score.relation} {score.limit:g}"
        value = Interval(score.value, score.half)
        print(f"  {score.mark:<9} {score.name}: {value} {score.unit} (bound {bound}){score.remarks}")
    return not any(score.fails for score in scores)
