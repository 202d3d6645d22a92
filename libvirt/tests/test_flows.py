# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an operator does to a domain must not cost its guest a connection."""

import time

import pytest
from coupled_flows import COUNT, all_coupled, daemon_has_all, send
from testbed.wait import until

pytestmark = pytest.mark.slow

RESTARTS = 100
PLUGS = 20


def test_a_daemon_killed_under_load_again_and_again(daemon, domain, receiver, measured):
    daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3")
    domain.boot()
    send(domain)
    until("all flows coupled", lambda: all_coupled(domain, daemon))
    began, took_s = time.time(), []
    for number in range(RESTARTS):
        daemon.kill()
        daemon.start()
        took_s.append(until(f"coupled again after restart {number}", lambda: daemon_has_all(daemon, "web")))
    until("all flows coupled for the guest", lambda: all_coupled(domain, daemon))
    vm = daemon.vm("web")
    assert (vm["group"], vm["weight"], vm["connected"]) == ("uplink", 3, True)
    standstill_s = receiver.standstill_s(began)
    receiver.check(COUNT, "after the restarts")
    mean_s = sum(took_s) / len(took_s)
    measured(restarts=RESTARTS, coupled_again_mean_s=mean_s, coupled_again_max_s=max(took_s), standstill_s=standstill_s)


def test_the_device_comes_and_goes_under_load(daemon, sharing, receiver, measured):
    sharing.boot()
    send(sharing)
    began, plugged_s, unplugged_s = time.time(), [], []
    for number in range(PLUGS):
        daemon.cccctl("attach", "web", "--group", "uplink", "--live")
        plugged_s.append(until(f"coupled after plug {number}", lambda: all_coupled(sharing, daemon)))
        daemon.cccctl("detach", "web", "--live")
        alone = "! grep -q ' coupled$' /sys/kernel/debug/ccc/flows && echo alone || true"
        unplugged_s.append(until(f"alone after unplug {number}", lambda: "alone" in sharing.run(alone)))
    standstill_s = receiver.standstill_s(began)
    receiver.check(COUNT, "after the last unplug")
    longest = {"coupled_max_s": max(plugged_s), "alone_max_s": max(unplugged_s), "standstill_s": standstill_s}
    measured(plugs=PLUGS, **longest)
