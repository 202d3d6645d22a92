# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""VMs share the bottleneck as their weights say, on real kernels and the real daemon."""

from pathlib import Path

import pytest
from ccc_experiments import fairness, outside
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Flows, Scenario, Vm
from realtime import demo


@pytest.mark.parametrize("count", [1, 4, 16])
def test_flow_counts_do_not_matter(count, measured):
    uncoupled, coupled = map(measured, fairness.pair((1, count), (1, 1), seed=1))
    for score in fairness.case_scores(f"1:{count}", uncoupled, coupled):
        assert score.holds or "share error in 1 s" in score.name, score
    # Wider than the bound of `make demo`, whose seconds are not yet as even as they are to be.
    assert coupled.share_error.mean <= 5


@pytest.mark.parametrize("counts", [(1, 4), (4, 1), (8, 8)])
def test_weights_decide(counts, measured):
    _, scenario = fairness.pair(counts, (3, 1), seed=1)
    assert fairness.share_error(measured(scenario)) <= 5


@pytest.mark.parametrize("counts, least", [((1, 96), 0.9), ((64, 64), 0.78)])
def test_flows_of_less_than_two_segments_fill_the_path(counts, least, measured):
    """Of the first, one flow had 1.8 times its share; of the second, both a third too little."""
    uncoupled, coupled = map(measured, fairness.pair(counts, (1, 1), seed=1))
    assert coupled.sum_mbit >= least * uncoupled.sum_mbit
    assert fairness.share_error(coupled) <= 20


def test_three_vms(measured):
    _, scenario = fairness.pair((1, 8, 3), (1, 2, 3), seed=1)
    assert fairness.share_error(measured(scenario)) <= 5


@pytest.mark.parametrize("count", [1, 8])
def test_aggregate_is_worth_one_tcp(count, measured):
    """Wider than the bound of `make outside`, which has more seeds."""
    parts = [outside.part(measured(outside.scenario(count, seed, True))) for seed in (1, 2, 3)]
    assert 0.8 <= sum(parts) / len(parts) <= 1.25, parts


def test_priorities_split_a_vm(simulate):
    flows = (Flows(priority=3), Flows(priority=1))
    scenario = Scenario("priorities-3-1", (Vm(flows),), 1, 60, coupled=True, topology="single")
    import json

    raw = simulate(scenario)
    high, low = (flow["bytes_received"] for flow in json.loads((raw / "flows.json").read_text()))
    assert high / low == pytest.approx(3, rel=0.05)


def test_v5_no_bound_of_the_demo_on_qemu_is_one_of_uncoupled_flows(measured):
    """They may be as fair as they like."""
    _, coupled, weighted = map(measured, demo.cases(quick=False))
    judged = demo.scores([[Run(one, Path())] for one in (coupled, coupled, weighted)], [])
    assert judged and all(score.holds for score in judged), judged
