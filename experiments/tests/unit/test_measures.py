# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Measures, scores and the cases a user can ask for."""

from dataclasses import replace

import pytest
from ccc_experiments.fairness import COUNTS, SEEDS, BadCase, parse_case
from ccc_experiments.measure import jain, percentile


def test_jain():
    assert jain([5, 5]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 0


def test_percentile():
    assert percentile([3, 1, 2, 4], 0.5) == 2
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([7], 0.95) == 7


def test_the_papers_cases_by_default():
    counts, weights, seeds = parse_case("", "", "")
    assert counts == tuple((1, n) for n in COUNTS)
    assert (set(weights), seeds) == ({(1, 1)}, SEEDS)


def test_a_case_of_ones_own():
    assert parse_case("1:8:3", "1:2:3", "7") == (((1, 8, 3),), ((1.0, 2.0, 3.0),), (7,))
    assert parse_case("", "3:1", "") == (((1, 1),), ((3.0, 1.0),), (101,))
    assert parse_case("1:4", "", "", "7..9")[2] == (7, 8, 9)


@pytest.mark.parametrize(
    ("flows", "weights", "seed"),
    [("1:x", "", ""), ("0:1", "", ""), ("1:4", "3:1:1", ""), ("1:4", "0:1", ""), ("", "", "1:2"), ("1:4", "nan:1", "")],
)
def test_bad_cases_are_refused(flows, weights, seed):
    with pytest.raises(BadCase):
        parse_case(flows, weights, seed)


def test_flows_have_their_numbers_whichever_began_first(tmp_path, data):
    run = data.runs(4, "coupled")[0]
    later = "\n".join(f"{t:.3f},vm1,1,{t * 1e6:.0f},0" for t in (0, 1, 2))
    sooner = "\n".join(f"{t:.3f},vm1,0,{t * 2e6:.0f},0" for t in (1, 2))
    (tmp_path / "goodput.csv").write_text(f"time_s,vm,flow,bytes,segments\n{later}\n{sooner}\n")
    assert replace(run, raw=tmp_path).flow_rates_mbit("vm1", 1, 2) == [16, 8]
