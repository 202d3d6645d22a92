# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Marks in the place of losses, an event that proves to be none, and how recovery ends."""

import csv
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from ccc_experiments import seconds
from ccc_experiments.measure import jain
from ccc_experiments.runs import Run
from ccc_experiments.scenario import (
    Action,
    Bottleneck,
    DelayChange,
    Fault,
    Flows,
    Phase,
    Request,
    Scenario,
    Vm,
)
from ccc_experiments.setups import several_kernels, vm_of

RTT_S = 0.1


def looks(start_s: float, end_s: float, step_s: float) -> tuple[Action, ...]:
    """Questions for the state of the group."""
    count = round((end_s - start_s) / step_s)
    request = Request("GET", "/v1/groups/uplink")
    return tuple(Action(start_s + i * step_s, control=request) for i in range(count))


def groups(raw) -> list[tuple[float, dict]]:
    """When it was asked, and the answer."""
    records = json.loads((raw / "actions.json").read_text())
    return [(record["action"]["at_s"], record["answer"]) for record in records]


def times_in_cwr(raw, start_s: float) -> int:
    """How often flows reduced for a mark."""
    entered, before = 0, {}
    with (raw / "flows.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            flow = row["vm"], row["flow"]
            if row["state"] == "cwr" and before.get(flow) != "cwr" and float(row["time_s"]) >= start_s:
                entered += 1
            before[flow] = row["state"]
    return entered


def marked(name: str, options: str = "", receiver: str = "reno", actions=()) -> Scenario:
    """Two VMs with ECN, one flow against four; marks from 30 ms of queue on."""
    vms = tuple(Vm((Flows(count=count),), ecn=True, module_options=options) for count in (1, 4))
    return Scenario(
        name, vms, 1, 30, coupled=True, sample_ms=20, actions=actions,
        bottleneck=Bottleneck(limit_packets=300, mark_ms=30), receiver_congestion_control=receiver,
    )  # fmt: skip


def test_marks_reduce_the_aggregate_once_for_all_flows(measured, simulate):
    """After slow start: there one TCP is told a second time too, of the queue that the
    first reduction has not yet emptied (Reno alone on this path: 129, 65, 32 packets).
    That leaves the path idle, and slow start goes on until 2.3 s.
    Later that may happen to a packet that leaves within the same millisecond."""
    start_s = 3.0
    scenario = marked("ecn", actions=looks(start_s, 30, 0.05))
    raw = simulate(scenario)
    run = Run(measured(scenario), raw)
    assert run.measured.dropped_packets == run.retransmissions() == 0
    assert jain([run.rate_mbit(vm, start_s, 30) for vm in ("vm1", "vm2")]) >= 0.995
    reductions = [
        (at_s, now["window"] / before["window"], now["epoch"] - before["epoch"])
        for (_, before), (at_s, now) in pairwise(groups(raw))
        if now["epoch"] != before["epoch"]
    ]
    assert len(reductions) >= 3
    # Reno's factor, or what the path holds beside 30 ms of queue; once for each window in
    # which flows were told.
    assert all(0.45 <= factor <= 0.85 and epochs == 1 for _, factor, epochs in reductions), reductions
    again = [at_s for (before_s, *_), (at_s, *_) in pairwise(reductions) if at_s - before_s < 10 * RTT_S]
    assert len(again) <= 1, reductions
    # Most flows are told of each.
    assert times_in_cwr(raw, start_s) > 2 * len(reductions)


@pytest.mark.parametrize("inner", ["cubic", "vegas", "dctcp"])
def test_marks_with_another_inner_algorithm(inner, measured):
    # Only DCTCP's own receiver echoes each mark.
    receiver = "dctcp" if inner == "dctcp" else "reno"
    run = measured(marked(f"ecn-{inner}", f"inner={inner}", receiver))
    assert run.dropped_packets == 0
    assert run.jain >= 0.995
    assert run.sum_mbit >= 8.5


def test_a_spurious_timeout_is_undone_once(simulate):
    """ACKs of one VM come 0.7 s late, then again in time."""
    changes = DelayChange(20, 800), DelayChange(20.8, 100)
    vms = Vm((Flows(),), delay_changes=changes), Vm((Flows(count=4),))
    scenario = Scenario("undo", vms, 1, 26, coupled=True, sample_ms=20, actions=looks(19.5, 23, 0.02))
    raw = simulate(scenario)
    seen = [(group["epoch"], group["ssthresh"], group["window"]) for _, group in groups(raw)]
    before, after = seen[0], seen[-1]
    reduced = [one for one in seen if one[0] == before[0] + 1 and one[1] != before[1]]
    # One reduction, to what the path holds, and all of it taken back; its number stays.
    assert after[:2] == (before[0] + 1, before[1])
    last = [one for one in seen if one[0] == before[0]][-1]
    assert reduced and max(window for *_, window in reduced) <= 0.9 * last[2]
    assert after[2] >= before[2]
    assert Run(None, raw).dropped(19.5, 23) == 0
    with (raw / "flows.csv").open(newline="") as file:
        late = [row for row in csv.DictReader(file) if float(row["time_s"]) > 20]
    states = {(row["vm"], row["state"]) for row in late}
    assert ("vm1", "loss") in states and ("vm2", "loss") not in states


def test_a_lost_tail_that_a_probe_repairs_is_an_event(simulate):
    """One segment is written after a pause, and lost; data that follows later tells of it."""
    phases = (Phase(20, rate_kbit=0), Phase(25, rate_kbit=400), Phase(25.01, rate_kbit=0),
              Phase(26, rate_kbit=400))  # fmt: skip
    vms = Vm((Flows(phases=phases),)), Vm((Flows(),))
    scenario = Scenario(
        "lost-tail", vms, 1, 28, coupled=True, sample_ms=20, actions=looks(24.5, 27.5, 0.02),
        bottleneck=Bottleneck(limit_packets=300),
        faults=(Fault("vm1", 0, 24.9, packets=1),),
    )  # fmt: skip
    raw = simulate(scenario)
    run = Run(None, raw)
    assert run.dropped(24.5, 27.5) == 0, "the queue has lost something too"
    assert run.retransmissions("vm1") - sent_again_by(run, "vm1", 24.9) == 1
    reductions = [
        (at_s, now["epoch"] - before["epoch"], now["window"] / before["window"])
        for (_, before), (at_s, now) in pairwise(groups(raw))
        if now["epoch"] != before["epoch"]
    ]
    assert len(reductions) == 1, reductions
    at_s, epochs, factor = reductions[0]
    assert 26 < at_s < 26.5 and epochs == 1 and 0.45 <= factor <= 0.55, reductions


def sent_again_by(run: Run, vm: str, time_s: float) -> int:
    """Segments that a VM's flow had sent again by then."""
    rows = (run.samples["vm"] == vm) & (run.samples["time_s"] <= time_s)
    return int(run.samples["retrans"][rows][-1])


@pytest.mark.parametrize(("start_s", "least_mbit"), [(20, 9), (20.1, 9), (20.2, 9), (20.25, 8.5)])
def test_a_far_flow_joins_at_the_rate_there_is(start_s, least_mbit, simulate):
    """What was held back in recovery overflowed the queue: 8.0 to 8.4 Mbit/s in the worst second.  At 20.25 s
    the near flow has just halved its window, and the far one counted the queue of before: 7.1 Mbit/s."""
    near = vm_of("coupled", Flows(), delay_ms=10.0)
    far = vm_of("coupled", Flows(start_s=start_s), delay_ms=200.0)
    scenario = several_kernels("coupled", 1, 27, near, far, bottleneck=Bottleneck(limit_packets=20))
    scenario = replace(scenario, name=f"joins-at-{start_s}")
    sums = seconds.sums_mbit(Run.of(scenario, simulate(scenario)), (20, 27))
    assert min(sums) > least_mbit, sums


def test_who_joins_from_afar_is_nobody_outside_the_group(simulate):
    """What waits was foretold of the near flow alone, so the group seemed to share its path, and gave up half at the
    next loss: 11.0 to 12.4 of 19.0 Mbit/s for ten seconds."""
    near = vm_of("coupled", Flows(), delay_ms=10.0)
    far = vm_of("coupled", Flows(start_s=20), delay_ms=300.0)
    bottleneck = Bottleneck(rate_mbit=20, limit_packets=20)
    scenario = several_kernels("coupled", 1, 35, near, far, bottleneck=bottleneck)
    scenario = replace(scenario, name="joins-from-afar")
    sums = seconds.sums_mbit(Run.of(scenario, simulate(scenario)), (24, 35))
    assert sum(sums) / len(sums) > 18, sums
