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
SLOW, FAIR_BUT_SLOW = (2.0, 5.0), (3.5, 3.6)


def judged(scenario: Scenario, *goodputs: tuple[float, float]) -> tuple[list[Run], list]:
    """Runs of a case that bring so much in turn, and its scores."""
    coming = iter(goodputs)
    runs = demo.runs_of(scenario, lambda asked: Run(Measured(asked, next(coming), 0, 0, 0, 0, None), Path(asked.name)))
    return runs, demo.scores([runs], [])


def test_a_case_whose_bound_holds_is_run_once():
    runs, [score] = judged(EQUAL, FAIR)
    assert (len(runs), score.holds) == (1, True)
    assert "fullest_of" not in score.document() and score.remarks == "; one run: no interval"


def test_of_a_case_whose_bound_does_not_hold_the_fullest_of_three_runs_counts():
    runs, [score] = judged(EQUAL, SLOW, FAIR, FAIR_BUT_SLOW)
    assert len({run.raw for run in runs}) == 3
    assert score.holds and score.value > 0.99
    assert score.document()["fullest_of"] == 3 and score.remarks == "; fullest of 3 runs"


def test_a_run_that_holds_does_not_end_them():
    runs, [score] = judged(EQUAL, UNFAIR, FAIR, (3.1, 6.5))
    assert (len(runs), score.holds) == (3, False)


def test_a_fair_run_of_a_slow_machine_excuses_no_fuller_one():
    runs, [score] = judged(EQUAL, UNFAIR, *(FAIR_BUT_SLOW,) * 2)
    assert (len(runs), score.holds) == (demo.RUNS, False)


def test_a_case_that_never_holds_has_failed():
    runs, [score] = judged(EQUAL, *(UNFAIR,) * demo.RUNS)
    assert (len(runs), score.holds) == (demo.RUNS, False)


def test_of_a_weighted_share_the_fullest_counts():
    _, [score] = judged(WEIGHTED, (5.6, 2.04), (6.57, 2.47), (7.01, 2.38))
    assert score.holds and score.value == pytest.approx(1.9, abs=0.1)


def test_nothing_is_claimed_of_what_is_uncoupled():
    runs, scores = judged(UNCOUPLED, UNFAIR)
    assert (len(runs), scores) == (1, [])


def test_attacks_on_qemu_are_the_kits_and_the_one_that_changes_its_module_is_the_last():
    first, *others = attacks.chosen()
    assert not first.vm.hostile and first.vm.device
    assert sorted(attack.name for attack in others) == sorted(attacks.NAMES)
    assert [attack.vm.hostile for attack in others] == [False, False, True]
