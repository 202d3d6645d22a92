# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Flows that come, go, pause, want less or are far away; what is changed while
they run; a daemon that dies."""

from dataclasses import replace

import pytest
from ccc_experiments import dynamics, live
from ccc_experiments.runs import Run


@pytest.fixture(scope="session")
def run(measured, simulate):
    """Runs a scenario and returns it as a series."""
    return lambda scenario: Run(measured(scenario), simulate(scenario))


@pytest.mark.parametrize("case", dynamics.CASES, ids=lambda case: case.name)
def test_dynamics(case, run):
    runs = [run(scenario) for scenario in dynamics.scenarios(case)]
    for score in dynamics.judge(case, runs):
        # That the whole interval does is asked by `make dynamics`.
        assert not replace(score, half=None).fails, score


@pytest.mark.parametrize(("scenario", "judge"), live.CASES, ids=[s.name for s, _ in live.CASES])
def test_live_changes(scenario, judge, run):
    for score in judge(run(scenario)):
        assert score.holds, score
