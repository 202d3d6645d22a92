# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs second by second: a dip of a second does not show in the mean of a run."""

from statistics import fmean

from . import shares
from .figure import Data
from .interval import Interval
from .runs import Run

Span = tuple[int, int]


def sums_mbit(run: Run, span: Span) -> list[float]:
    """What arrived of all VMs in each second, in order or not."""
    arrived = shares.arrived(run.raw, len(run.scenario.vms), *span).sum(axis=0)
    return [float(total) * 8 / 1e6 for total in arrived]


def worst_over(one: Run, other: Run, span: Span) -> float:
    """A run's sum over another's in the second in which it is least."""
    pairs = zip(sums_mbit(one, span), sums_mbit(other, span), strict=True)
    return min(mine / theirs for mine, theirs in pairs if theirs)


def worst(data: Data, case, kind: str, to: str, span: Span) -> Interval:
    """The same of a kind's runs over another's, seed by seed."""
    pairs = zip(data.runs(case, kind), data.runs(case, to), strict=True)
    return Interval.of([worst_over(one, other, span) for one, other in pairs])


def least(data: Data, case, kind: str, to: str, span: Span) -> Interval:
    """A run's least second, of what the other kind's runs have then in the mean, over the same of such a run.

    The least of many seconds is low by chance alone, and lower where runs swing: so
    the other kind is looked at in the same way.
    """
    ours, theirs = ([sums_mbit(run, span) for run in data.runs(case, of)] for of in (kind, to))
    means = [fmean(second) for second in zip(*theirs, strict=True)]

    def of_means(runs: list[list[float]]) -> list[float]:
        return [min(one / mean for one, mean in zip(run, means) if mean) for run in runs]

    return Interval.ratio(of_means(ours), of_means(theirs))
