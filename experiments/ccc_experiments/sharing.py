# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What figures tell of VMs that share a bottleneck."""

from collections.abc import Hashable

from .figure import Data
from .plots import Panel
from .runs import Run
from .scores import Known, Score
from .shares import WINDOW_S, ShareError


def jain(run: Run) -> float:
    """Jain's index of the VMs' goodput, by weight."""
    return run.measured.weighted_jain


def mean_share_error(run: Run) -> float:
    """Of the worst VM in each second, percent of its share."""
    return _share_error(run).mean


def p99_share_error(run: Run) -> float:
    """Of 99 % of the seconds at most."""
    return _share_error(run).p99


def _share_error(run: Run) -> ShareError:
    if run.measured.share_error is None:
        raise ValueError(f"{run.scenario.name}: too short for shares in windows of {WINDOW_S:g} s")
    return run.measured.share_error


def of_rate(run: Run) -> float:
    """Goodput of all VMs, percent of the bottleneck's rate."""
    return 100 * run.measured.sum_mbit / run.scenario.bottleneck.rate_mbit


# Why the bounds on them do not hold where nothing else is said.
UNEVEN_SECONDS = (
    "over a whole run shares are within 0.5 %; in windows the error falls as one over their length, as that of the "
    "round trip that each end of a window cuts does, and a second of 10 Mbit/s has six or seven"
)
# At 1 : 16, and at 8 : 2 : 1 weighted 1 : 2 : 4.
UNEVEN_SIXTEEN = (
    "with 16 flows in a VM, or windows of three segments, the error falls more slowly than the window grows: the "
    "cause was not found"
)
MEAN_FLOOR, P99_FLOOR = 3.0, 13.0
SIXTEEN_MEAN_FLOOR, SIXTEEN_P99_FLOOR = 7.0, 30.0


def uneven(most_flows: int, least_part: float = 1.0) -> tuple[Known, Known]:
    """Why mean and 99th percentile are not within their bounds, by the most flows of a VM and a flow's least part."""
    if most_flows >= 16 or least_part < 1 / 32:
        return Known(UNEVEN_SIXTEEN, SIXTEEN_MEAN_FLOOR), Known(UNEVEN_SIXTEEN, SIXTEEN_P99_FLOOR)
    return Known(UNEVEN_SECONDS, MEAN_FLOOR), Known(UNEVEN_SECONDS, P99_FLOOR)


def uneven_seconds(case: str, most_flows: int) -> dict[str, Known]:
    """The same by the names of a case's scores."""
    return {_error_name(case, name): known for (_, name, _), known in zip(MOST_SHARE_ERROR, uneven(most_flows))}


def _error_name(case: str, name: str) -> str:
    return f"{case}: worst VM's error of its share in 1 s, {name}"


# What has to be shown of the papers' path, and at 100 Mbit/s.
MOST_SHARE_ERROR = ((mean_share_error, "mean", 0.5), (p99_share_error, "p99", 2.0))


def share_error_scores(data: Data, case: Hashable, guard: bool = False) -> list[Score]:
    """Bounds on the worst VM's error of its share in windows of a second."""
    return [
        data.score(_error_name(str(case), name), case, "coupled", measure, "%", "<=", most, guard=guard)  # fmt: skip
        for measure, name, most in MOST_SHARE_ERROR
    ]


MEASURES = {
    "Jain": jain,
    "share error %": mean_share_error,
    "share error p99 %": p99_share_error,
    "sum Mbit/s": lambda run: run.measured.sum_mbit,
    "queue ms": lambda run: run.measured.queue_ms_mean,
    "loss %": lambda run: run.loss_percent(),
}
PANELS = (
    Panel("Jain's index of the VMs, by weight", jain, {"bottom": 0, "top": 1.04}),
    Panel("worst VM's error in 1 s, %", mean_share_error, log_from=1),
    Panel("sum of goodput, % of the rate", of_rate, {"bottom": 0, "top": 104}),
    Panel("mean queue delay, ms", MEASURES["queue ms"]),
    Panel("packets lost, %", MEASURES["loss %"], log_from=0.01),
)
