# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Means of several runs, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % confidence interval.

    One run says nothing of the spread: `half` is None.
    """

    mean: float
    half: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Mean of independent values."""
        return cls(fmean(values), _half(values))

    @classmethod
    def ratio(cls, above: Sequence[float], below: Sequence[float]) -> "Interval":
        """Ratio of the means of values that belong together one by one.

        What a pair has in common, as its seed, does not widen the interval.
        """
        if not fmean(below):
            raise ValueError("the mean to divide by is 0")
        ratio = fmean(above) / fmean(below)
        half = _half([a - ratio * b for a, b in zip(above, below, strict=True)])
        return cls(ratio, half / abs(fmean(below)) if half is not None else None)

    def scaled(self, factor: float, offset: float = 0.0) -> "Interval":
        """The interval of `factor` times the value, plus `offset`."""
        half = None if self.half is None else abs(factor) * self.half
        return Interval(factor * self.mean + offset, half)

    def __str__(self) -> str:
        return f"{self.mean:.4g}" + ("" if self.half is None else f" ± {self.half:.2g}")


def _half(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    quantile = _T[min(len(values) - 1, len(_T)) - 1]
    return quantile * stdev(values) / sqrt(len(values))
