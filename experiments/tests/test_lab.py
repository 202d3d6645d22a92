# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The documents the laboratory is given, and runs with a daemon that dies."""

import json

import pytest
from ccc_experiments import lab, schema
from ccc_experiments.scenario import Action, Flows, GuestAction, Phase, Request, Scenario, Vm


def content(vm: Vm, *actions: Action) -> dict:
    return lab.content(Scenario("test", (vm,), 1, 60, actions=actions))


def test_a_phase_says_only_what_changes():
    phases = (Phase(20, rate_kbit=2000), Phase(21, rate_kbit=None), Phase(22, rate_kbit=0), Phase(30, priority=4))
    (flows,) = content(Vm((Flows(phases=phases),)))["vms"][0]["flows"]
    assert [phase.get("rate_kbit", "left out") for phase in flows["phases"]] == [2000, None, 0, "left out"]
    assert [phase["priority"] for phase in flows["phases"]] == [None, None, None, 4]


def test_what_decides_a_run_is_what_was_said():
    request = Request("PATCH", "/v1/vms/vm1", body={"weight": 4})
    unload = Vm((Flows(),), guest_actions=(GuestAction(1, unload_module=True),))
    decides = lab.decides(content(unload, Action(30, control=request), Action(0.5, kill_daemon=True)))
    control = {"method": "PATCH", "path": "/v1/vms/vm1", "body": {"weight": 4}}
    assert decides["actions"] == [{"at_s": 30, "control": control}, {"at_s": 0.5, "kill_daemon": True}]
    assert decides["vms"][0]["guest_actions"] == [{"at_s": 1, "unload_module": True}]
    assert (decides["seed"], decides["vms"][0]["name"], "name" in decides) == (1, "vm1", False)
    assert decides["vms"][0]["flows"] == [{"count": 1, "start_s": 0, "priority": 0}]


def test_the_types_are_those_of_the_laboratory():
    """`scenario.py` is what the schema makes; that the schema is the laboratory's own, its tests see."""
    assert schema.TYPES.read_text() == schema.types(), "write it by python -m ccc_experiments.schema"


def test_a_bad_scenario_is_refused_with_its_field(parts, tmp_path):
    bad = Scenario("bad", (Vm((Flows(), Flows(count=0))),), 1, 60)
    with pytest.raises(lab.LabError, match=r"invalid vms\[0\].flows\[1\].count: expected 1 to 1000, got 0"):
        lab.run(bad, parts, tmp_path)


def flows(count: int, relay: bool, *actions: Action) -> Scenario:
    vms = (Vm((Flows(),)), Vm((Flows(count=count),)))
    name = f"relay-{relay}-{len(actions)}"
    return Scenario(name, vms, 1, 16, coupled=True, relay=relay, actions=actions)


def test_the_relay_changes_nothing(simulate):
    direct, relayed = simulate(flows(4, False)), simulate(flows(4, True))
    for name in ("flows.csv", "queue.csv", "goodput.csv"):
        assert (direct / name).read_bytes() == (relayed / name).read_bytes(), name


def test_a_daemon_that_comes_back_finds_all_flows(simulate):
    raw = simulate(flows(4, True, Action(8, kill_daemon=True), Action(8.2, start_daemon=True)))
    assert len(json.loads((raw / "actions.json").read_text())) == 2
    # What the second daemon says of them when they end.
    log = (raw / "daemon-2.log").read_text()
    assert "registered 1," in log and "registered 4," in log


@pytest.mark.parametrize("algorithm", ["cubic", "bbr", "vegas", "dctcp"])
def test_v2_namespaces_take_every_algorithm(algorithm, simulate):
    """Also those that Linux has for the privileged only."""
    vms = tuple(Vm((Flows(),), congestion_control=algorithm, device=False) for _ in range(2))
    raw = simulate(Scenario(f"single-{algorithm}", vms, 1, 5, topology="single"))
    (guest,) = json.loads((raw / "meta.json").read_text())["guests"].values()
    for vm in ("vm1", "vm2"):
        assert guest["namespaces"][vm]["net.ipv4.tcp_congestion_control"] == algorithm
    received = [flow["bytes_received"] for flow in json.loads((raw / "flows.json").read_text())]
    assert all(bytes > 100_000 for bytes in received), received
