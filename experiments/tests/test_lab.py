# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The documents the laboratory is given, and runs with a daemon that dies."""

import json

import pytest
from ccc_experiments.lab import Action, Flows, GuestAction, Phase, Request, Scenario, Vm


def test_a_phase_says_only_what_changes():
    assert Phase(20, 2000).document() == {"at_s": 20, "rate_kbit": 2000}
    assert Phase(20, None).document() == {"at_s": 20, "rate_kbit": None}
    assert Phase(20, 0).document() == {"at_s": 20, "rate_kbit": 0}
    assert Phase(30, priority=4).document() == {"at_s": 30, "priority": 4}


def test_actions_have_one_kind():
    request = Request("PATCH", "/v1/vms/vm1", {"weight": 4})
    control = {"method": "PATCH", "path": "/v1/vms/vm1", "body": {"weight": 4}}
    assert Action(30, request).document() == {"at_s": 30, "control": control}
    assert Action(0, kill_daemon=True).document() == {"at_s": 0, "kill_daemon": True}
    assert GuestAction(1, unload_module=True).document() == {"at_s": 1, "unload_module": True}


def flows(count: int, relay: bool, *actions: Action) -> Scenario:
    vms = (Vm((Flows(1),)), Vm((Flows(count),)))
    name = f"relay-{relay}-{len(actions)}"
    return Scenario(name, vms, True, 1, 16, relay=relay, actions=actions)


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
    vms = tuple(Vm((Flows(1),), congestion_control=algorithm, device=False) for _ in range(2))
    raw = simulate(Scenario(f"single-{algorithm}", vms, False, 1, 5, topology="single"))
    (guest,) = json.loads((raw / "meta.json").read_text())["guests"].values()
    for vm in ("vm1", "vm2"):
        assert guest["namespaces"][vm]["net.ipv4.tcp_congestion_control"] == algorithm
    received = [flow["bytes_received"] for flow in json.loads((raw / "flows.json").read_text())]
    assert all(bytes > 100_000 for bytes in received), received
