# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How the demo on QEMU judges cases that were run more than once; the runs are made up. And its attacks."""

from pathlib import Path

import pytest
from ccc_experiments.measure import Measured
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Scenario
from realtime import attacks, demo

UNCOUPLED, EQUAL, WEIGHTED = demo.cases(quick=False)
FAIR, UNFAIR = (4.7, 4.8), (3.2, 6.3)


def judged(scenario: Scenario, *goodputs: tuple[float, float]) -> tuple[list[Run], list]:
    """Runs of a case that bring so much in turn, and its scores."""
    coming = iter(goodputs)
    runs = demo.runs_of(scenario, lambda asked: Run(Measured(asked, next(coming), 0, 0, 0, 0, None), Path(asked.name)))
    return runs, demo.scores([runs], [])


def test_a_case_whose_bound_holds_is_run_once():
    runs, [score] = judged(EQUAL, FAIR)
    assert (len(runs), score.holds) == (1, True)
    assert "median_of" not in score.document() and score.remarks == "; one run: no interval"


@pytest.mark.parametrize("second, third, holds", [(FAIR, FAIR, True), (FAIR, UNFAIR, False), (UNFAIR, UNFAIR, False)])
def test_of_a_case_whose_bound_does_not_hold_the_median_of_three_counts(second, third, holds):
    runs, [score] = judged(EQUAL, UNFAIR, second, third)
    assert len({run.raw for run in runs}) == 3
    assert score.holds == holds
    assert score.document()["median_of"] == 3 and score.remarks == "; median of 3 runs"


def test_of_a_weighted_share_the_median_error_counts():
    _, [score] = judged(WEIGHTED, (6, 3), (7.1, 2.4), (7.2, 2.3))
    assert score.holds and score.value == pytest.approx(4.3, abs=0.1)


def test_nothing_is_claimed_of_what_is_uncoupled():
    runs, scores = judged(UNCOUPLED, UNFAIR)
    assert (len(runs), scores) == (1, [])


def test_attacks_on_qemu_are_the_kits_and_the_one_that_changes_its_module_is_the_last():
    first, *others = attacks.chosen()
    assert not first.vm.hostile and first.vm.device
    assert sorted(attack.name for attack in others) == sorted(attacks.NAMES)
    assert [attack.vm.hostile for attack in others] == [False, False, True]
