# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Flows that come, go, pause, want less or are far away; what is changed while
they run; a daemon that dies."""

from dataclasses import replace
from itertools import accumulate
from random import Random
from statistics import mean

import pytest
from ccc_experiments import dynamics, live
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Phase, Vm
from ccc_experiments.setups import several_kernels, vm_of


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


def test_who_its_receiver_limits_leaves_the_rest_to_others(run):
    """A window that a receiver closes counted as one that is too small for what waits: 68.8 of 84 Mbit/s."""
    bulk, limited = vm_of("coupled", Flows()), vm_of("coupled", Flows(receive_buffer_bytes=65536))
    path = Bottleneck(rate_mbit=100, delay_ms=40, limit_packets=330)
    scenario = several_kernels("coupled", 1, 10, bulk, limited, bottleneck=path)
    scenario = replace(scenario, name="receiver-limits")
    ran = run(scenario)
    bulk_mbit, limited_mbit = (ran.rate_mbit(vm, 4, 10) for vm in ("vm1", "vm2"))
    assert bulk_mbit + limited_mbit > 94, (bulk_mbit, limited_mbit)
    assert limited_mbit < 12, f"{limited_mbit} Mbit/s: its receiver's window is no limit"


def test_who_writes_in_bursts_leaves_the_rest_to_others(run):
    """The others gave up a part of each burst a round trip too late: 0.93 of uncoupled."""
    path = Bottleneck(limit_packets=20)
    times = [8 + 0.5 * burst for burst in range(32)]
    bursts = [Phase(at + after_s, rate_kbit=rate) for at in times for after_s, rate in ((0, 6_000), (0.1, 0))]

    def sum_mbit(kind, seed):
        vms = vm_of(kind, Flows(count=2)), vm_of(kind, Flows(rate_kbit=200, phases=tuple(bursts)))
        scenario = several_kernels(kind, seed, 24, *vms, bottleneck=path)
        ran = run(replace(scenario, name=f"bursts-{kind}-{seed}"))
        return sum(ran.rate_mbit(vm, 10, 24) for vm in ("vm1", "vm2"))

    parts = [sum_mbit("coupled", seed) / sum_mbit("uncoupled", seed) for seed in (1, 2, 3)]
    assert mean(parts) > 0.98, parts


def test_short_connections_take_no_more_than_they_use(run):
    """Each counted as one that wants all until its only acknowledgement came: 1.2 Mbit/s for 2.7 without them."""
    bulk = [vm_of("coupled", Flows(), delay_ms=10) for _ in range(2)]
    short = [Flows(bytes=1400, start_s=2 + 0.3 * i) for i in range(90)]
    outside = Vm((Flows(count=2),), congestion_control="cubic", device=False, delay_ms=10)
    path = Bottleneck(rate_mbit=20, delay_ms=0, limit_packets=40)

    def bulk_mbit(name, *others):
        scenario = several_kernels("coupled", 1, 30, *bulk, *others, outside, bottleneck=path)
        ran = run(replace(scenario, name=name))
        return sum(ran.rate_mbit(vm, 10, 30) for vm in ("vm1", "vm2"))

    without = bulk_mbit("without-short")
    beside = bulk_mbit("beside-short", vm_of("coupled", *short, delay_ms=200))
    assert beside > 0.9 * without, (beside, without)


def test_answers_to_far_clients_beside_a_near_flow_lose_no_more(run):
    """They told of no queue, in which the near flow was taken to lie: 7 times the packets were lost."""
    random = Random(1)
    starts = accumulate(random.expovariate(80) for _ in range(600))
    answers = [Flows(bytes=4 * 1448, start_s=round(2 + at, 3), start_spread_ms=1) for at in starts if at < 6]
    path = Bottleneck(rate_mbit=50, delay_ms=0, limit_packets=120)

    def dropped(kind, seed):
        vms = vm_of(kind, Flows(), delay_ms=1), vm_of(kind, *answers, delay_ms=30)
        scenario = several_kernels(kind, seed, 9, *vms, bottleneck=path)
        return run(replace(scenario, name=f"near-{kind}-{seed}")).dropped(4, 9)

    seeds = (1, 2)
    coupled, uncoupled = (sum(dropped(kind, seed) for seed in seeds) for kind in ("coupled", "uncoupled"))
    assert coupled < 2 * uncoupled + 20, (coupled, uncoupled)
