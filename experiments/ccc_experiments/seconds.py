# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs second by second: a dip of a second does not show in the mean of a run."""

from collections.abc import Callable

from .figure import Data
from .interval import Interval
from .runs import Run

Span = tuple[int, int]


def sums_mbit(run: Run, span: Span) -> list[float]:
    """Goodput of all VMs together in each second."""
    names = [vm.name or f"vm{i}" for i, vm in enumerate(run.scenario.vms, 1)]
    return [sum(run.rate_mbit(name, at, at + 1) for name in names) for at in range(*span)]


def worst_over(one: Run, other: Run, span: Span) -> float:
    """A run's goodput over another's in the second in which it is least."""
    pairs = zip(sums_mbit(one, span), sums_mbit(other, span), strict=True)
    return min(mine / theirs for mine, theirs in pairs if theirs)


def by_seed(data: Data, case, kind: str, to: str, compare: Callable[[Run, Run], float]) -> Interval:
    """A kind's runs compared with another's, seed by seed."""
    return Interval.of([compare(*pair) for pair in zip(data.runs(case, kind), data.runs(case, to), strict=True)])
