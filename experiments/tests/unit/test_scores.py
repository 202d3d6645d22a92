# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""When a bound holds, what it tells, and which seeds score."""

import numpy as np
import pytest
from ccc_experiments import seeds
from ccc_experiments.fairness import BadCase, parse_case
from ccc_experiments.figure import FULL_SEEDS, QUICK_SEEDS, Effort
from ccc_experiments.interval import Interval
from ccc_experiments.scores import Known, Score
from ccc_experiments.shares import share_errors


def mean(value: float, half: float | None, relation: str, limit: float, **more) -> Score:
    return Score.mean("x", Interval(value, half), "1", relation, limit, **more)


def test_a_bound_holds_if_its_whole_interval_does():
    assert mean(0.995, 0.004, ">=", 0.99).holds
    assert not mean(0.995, 0.006, ">=", 0.99).holds
    assert mean(0.9, 0.09, "<", 1).holds
    assert not mean(0.9, 0.1, "<", 1).holds
    assert not mean(1.1, 0.3, "<=", 1).holds


def test_one_run_has_no_interval_and_says_so():
    score = mean(1.0, None, ">=", 0.99)
    assert score.holds and "one run: no interval" in score.remarks
    assert "ci95" not in score.document()
    assert mean(1.0, 0.0, ">=", 0.99).remarks == ""


def test_the_worst_of_several_runs_says_of_how_many():
    score = Score.worst("x", [0.999, 0.99, 0.998], "1", ">=", 0.995)
    assert (score.value, score.holds) == (0.99, False)
    assert "worst of 3 runs" in score.remarks
    assert Score.worst("x", [1, 3, 2], "RTT", "<=", 2).value == 3


def test_a_bound_that_uncoupled_keeps_fails_unless_it_is_a_guard():
    assert mean(0.9999, 0.0, ">=", 0.99, uncoupled=0.73).mark == "ok"
    needless = mean(0.9999, 0.0, ">=", 0.99, uncoupled=0.994)
    assert needless.holds and needless.fails
    assert "tells nothing: uncoupled has 0.994" in needless.remarks
    assert mean(0.9999, 0.0, ">=", 0.99, uncoupled=0.994, guard=True).mark == "guard"


def test_ratios_to_uncoupled_know_what_uncoupled_has():
    assert not Score.ratio("loss", Interval(0.1, 0.01), "<=", 0.2).guard
    goodput = Score.ratio("goodput", Interval(0.999, 0.001), ">=", 0.99)
    assert goodput.guard and not goodput.fails


def test_what_is_over_uncoupled_says_what_uncoupled_has():
    with pytest.raises(ValueError, match="expected what uncoupled flows have"):
        Score.mean("goodput over uncoupled", Interval(0.99, 0.01), "ratio", ">=", 0.98)


def test_a_known_score_fails_past_its_floor():
    known = Known("why", 0.9)
    assert mean(0.95, 0.02, ">=", 0.99, known=known).mark == "known"
    assert mean(0.995, 0.001, ">=", 0.99, known=known).mark == "holds now"
    assert mean(0.91, 0.02, ">=", 0.99, known=known).mark == "known", "a floor is no claim"
    past = mean(0.89, 0.02, ">=", 0.99, known=known)
    assert past.fails and "PAST its floor of 0.9: why" in past.remarks


def test_pairs_of_runs_become_one_score():
    pair = [Score("x", value, "1", ">=", 1, uncoupled=other) for value, other in ((2, 0.5), (4, 0.7))]
    score = Score.over(pair)
    assert (score.value, score.uncoupled) == (3, 0.6)
    assert score.half == pytest.approx(12.706)
    assert not score.holds


def test_errors_do_not_cancel(data):
    """Half as much and half more are both half off."""
    seeds_of = {101: 0.5, 102: 1.5}
    off = data.off(4, "coupled", lambda run: seeds_of[run.scenario.seed], 1)
    assert (off.mean, off.half) == (50, 0)
    apart = data.apart(4, "coupled", "uncoupled", lambda run: seeds_of[run.scenario.seed] ** run.scenario.coupled)
    assert apart.mean == 50


def test_seeds_that_score_are_none_that_tune():
    assert seeds.parse("3") == (101, 102, 103)
    assert seeds.parse("1..50") == tuple(range(1, 51))
    assert seeds.parse("101..110") == FULL_SEEDS and QUICK_SEEDS == (101,)
    assert seeds.parse(seeds.text(FULL_SEEDS)) == FULL_SEEDS
    assert Effort.of(quick=True).at_least(3).seeds == (101, 102, 103)


@pytest.mark.parametrize("text", ["", "x", "0", "5..1", "-1..3", "1..", "1..2..3", "1:3", "1..99999", "٣"])
def test_bad_seeds_are_refused(text):
    with pytest.raises(seeds.BadSeeds, match="expected how many"):
        seeds.parse(text)


def test_one_seed_or_several_but_not_both():
    with pytest.raises(BadCase, match="it or SEEDS, got both"):
        parse_case("1:4", "", "1", "3")


def test_the_error_is_the_worst_tenants_of_its_own_share():
    got = np.array([[50.0, 45.0, 20.0], [50.0, 55.0, 60.0]])
    assert share_errors(got, (1, 1)) == pytest.approx([0, 10, 50])
    # Of 1 : 3 in the last window all is right.
    assert share_errors(got, (1, 3))[2] == pytest.approx(0)
    assert share_errors(got, (1, 3))[0] == pytest.approx(100)
    assert share_errors(np.zeros((2, 1)), (1, 1)) == [0]


def test_a_run_has_its_share_error(data):
    run = data.runs(4, "coupled")[0]
    assert run.measured.share_error is None, "five seconds are slow start"
