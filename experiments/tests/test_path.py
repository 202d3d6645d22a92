# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What scenarios say of the path: rates that change, links of VMs, a way back that loses."""

import json

import pytest
from ccc_experiments import measure
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Bottleneck, Flows, Link, RateChange, Request, Scenario, Vm

RENO = Vm((Flows(),), congestion_control="reno")


@pytest.fixture
def run(simulate):
    def of(name: str, *vms: Vm, topology: str = "vms", **bottleneck) -> Run:
        scenario = Scenario(name, vms, 1, 30, topology=topology, bottleneck=Bottleneck(delay_ms=40, **bottleneck))
        return Run.of(scenario, simulate(scenario))

    return of


@pytest.mark.parametrize("queue", ["fifo", "htb"])
def test_the_rate_changes_for_what_waits_too(queue, run):
    changes = (RateChange(10, 5), RateChange(20, 20))
    changed = run(f"rate-{queue}", RENO, RENO, queue=queue, rate_changes=changes)
    rates = [sum(changed.rate_mbit(vm, *span) for vm in ("vm1", "vm2")) for span in ((5, 10), (11, 20), (25, 30))]
    assert rates == pytest.approx([9.56, 4.78, 19.1], rel=0.03)
    sent = changed.queue["sent_packets"][changed.queue["time_s"] == 10.2]
    before = changed.queue["sent_packets"][changed.queue["time_s"] == 10]
    # 5 Mbit/s at once, of full frames.
    assert int(sent[0] - before[0]) == pytest.approx(0.2 * 5e6 / 8 / 1514, rel=0.05)


def test_a_queues_delay_is_that_of_its_rate_then(run):
    changed = run("rate-fifo", RENO, RENO, queue="fifo", rate_changes=(RateChange(10, 5), RateChange(20, 20)))
    delays = measure.queue_delays_ms(changed.scenario, changed.raw)
    backlog, times = changed.queue["backlog_bytes"], changed.queue["time_s"]
    for span, rate_mbit in ((times < 10, 10), ((times >= 10) & (times < 20), 5), (times >= 20, 20)):
        assert delays[span] == pytest.approx(backlog[span] * 8 / (rate_mbit * 1000))


def test_a_vm_has_no_more_than_its_link(run):
    linked = run("link", Vm(RENO.flows, congestion_control="reno", link=Link(2, limit_packets=20)), RENO)
    assert linked.rate_mbit("vm1", 5, 30) == pytest.approx(2 * 1448 / 1514, rel=0.02)
    assert linked.rate_mbit("vm2", 5, 30) == pytest.approx(7.6, rel=0.03)
    # 20 full frames before it, at most.
    assert linked.srtt_ms("vm1", 5, 30) < 40 + 20 * 1514 * 8 / 2000 + 83 * 1514 * 8 / 10_000
    told = json.loads((linked.raw / "links.json").read_text())
    assert list(told) == ["vm1"]
    assert told["vm1"]["dropped_packets"] > 0
    assert told["vm1"]["sent_bytes"] == pytest.approx(30 * 2e6 / 8, rel=0.05)


def test_a_link_may_lead_past_the_bottleneck(run):
    past = Vm(RENO.flows, congestion_control="reno", link=Link(5, limit_packets=20, past_bottleneck=True))
    beside = run("past", past, RENO)
    assert beside.rate_mbit("vm1", 5, 30) == pytest.approx(5 * 1448 / 1514, rel=0.02)
    assert beside.rate_mbit("vm2", 5, 30) == pytest.approx(10 * 1448 / 1514, rel=0.02)
    assert beside.srtt_ms("vm1", 5, 30) < 40 + 20 * 1514 * 8 / 5000


@pytest.mark.parametrize("topology", ["vms", "single"])
def test_the_way_back_loses_and_spreads(topology, run):
    own = Vm(RENO.flows, congestion_control="reno", return_loss_percent=0, return_jitter_ms=0)
    lossy = run(f"loss-{topology}", RENO, own, topology=topology, return_loss_percent=30, return_jitter_ms=10)
    # Each ACK counts bytes, so few of them slow a flow down and do not stop it.
    assert 1 < lossy.rate_mbit("vm1", 5, 30) < lossy.rate_mbit("vm2", 5, 30)
    guests = json.loads((lossy.raw / "meta.json").read_text())["guests"]
    qdiscs = guests["net" if topology == "vms" else "lab"]["qdiscs"]
    assert "loss 30%" in qdiscs[1] and "delay 40ms  10ms" in qdiscs[1]
    assert "loss" not in qdiscs[2]


def asked(name: str, *vms: Vm, after_s: float = 20, **bottleneck) -> Scenario:
    """A coupled run at whose end the group is asked for."""
    look = Action(after_s - 0.1, control=Request("GET", "/v1/groups/uplink"))
    return Scenario(name, vms, 1, after_s, coupled=True, bottleneck=Bottleneck(**bottleneck), actions=(look,))


def apart(raw) -> tuple[list[str], list[str]]:
    """VMs that do not see their group's queue: by the API, and by the log."""
    (record,) = json.loads((raw / "actions.json").read_text())
    told = [vm["name"] for vm in record["answer"]["vms"] if vm["evidence"]["apart"]]
    lines = (raw / "daemon.log").read_text().splitlines()
    logged = [line.split("VM ")[1].split(":")[0] for line in lines if "does not seem to be behind" in line]
    return told, logged


@pytest.mark.parametrize("own", ["one", "all"])
def test_a_wrong_group_is_said(own, simulate):
    links = [Link(mbit, limit_packets=8 * mbit, past_bottleneck=True) for mbit in (10, 20, 40)]
    linked = tuple(Vm((Flows(),), link=link) for link in links)
    vms, wrong = ((Vm((Flows(),)), Vm((Flows(),)), linked[0]), "vm3") if own == "one" else (linked, "vm1")
    assert apart(simulate(asked(f"wrong-{own}", *vms))) == ([wrong], [wrong])


@pytest.mark.parametrize("queue_packets", [83, 15])
def test_of_a_right_group_nothing_is_said(queue_packets, simulate):
    vms = (Vm((Flows(),), delay_ms=20), Vm((Flows(count=4),), delay_ms=150), Vm((Flows(rate_kbit=800),)))
    scenario = asked(f"right-{queue_packets}", *vms, limit_packets=queue_packets)
    assert apart(simulate(scenario)) == ([], [])
