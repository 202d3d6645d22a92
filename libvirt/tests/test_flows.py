# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an operator does to a domain must not cost its guest a connection."""

import pytest
from flows import COUNT, Flows, all_coupled, taken, until

pytestmark = pytest.mark.slow

RESTARTS = 100
PLUGS = 20


def test_a_daemon_killed_under_load_again_and_again(daemon, domain, uplink, tmp_path, measured):
    daemon.control("attach", "web", "--group", "uplink", "--weight", "3")
    domain.start()
    flows = Flows(domain, uplink, tmp_path)
    until("coupled", lambda: all_coupled(domain, daemon))
    took = []
    for number in range(RESTARTS):
        daemon.kill()
        daemon.serve()
        took.append(until(f"coupled again after restart {number}", lambda: taken(daemon, "web")))
    until("the guest says so too", lambda: all_coupled(domain, daemon))
    vm = daemon.vm("web")
    assert (vm["group"], vm["weight"], vm["connected"]) == ("uplink", 3, True)
    received = flows.end(domain)
    measured(
        restarts=RESTARTS,
        flows=COUNT,
        coupled_again_s_mean=sum(took) / len(took),
        coupled_again_s_max=max(took),
        longest_standstill_s=received.standstill_s(),
    )
    assert received.no_flow_was_reset()


def test_the_device_comes_and_goes_under_load(daemon, sharing, uplink, tmp_path, measured):
    sharing.start()
    flows = Flows(sharing, uplink, tmp_path)
    plugged, unplugged = [], []
    for number in range(PLUGS):
        daemon.control("attach", "web", "--group", "uplink", "--live")
        plugged.append(until(f"coupled after plug {number}", lambda: all_coupled(sharing, daemon)))
        daemon.control("detach", "web", "--live")
        alone = "! grep -q ' coupled$' /sys/kernel/debug/ccc/flows && echo alone || true"
        unplugged.append(until(f"alone after unplug {number}", lambda: "alone" in sharing.run(alone)))
    received = flows.end(sharing)
    measured(
        plugs=PLUGS,
        flows=COUNT,
        coupled_after_plug_s_max=max(plugged),
        alone_after_unplug_s_max=max(unplugged),
        longest_standstill_s=received.standstill_s(),
    )
    assert received.no_flow_was_reset()
