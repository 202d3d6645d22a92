# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an operator can measure of a group's own traffic."""

import json

import pytest
from coupled_flows import COUNT, all_coupled, send
from testbed.wait import until

pytestmark = pytest.mark.slow


def test_a_trial_tells_what_coupling_brings(daemon, domain, receiver, measured):
    daemon.cccctl("attach", "web", "--group", "uplink")
    domain.boot()
    send(domain)
    until("all flows coupled", lambda: all_coupled(domain, daemon))
    phases = ("--off", "10s", "--settle", "3s", "--times", "3")
    told = json.loads(daemon.cccctl("--json", "trial", "uplink", *phases))
    measures = told["measures"]
    events = measures["events_per_gbyte"]
    measured(**{name: of and of["difference"] for name, of in measures.items()})
    assert len(told["pairs"]) == 3
    assert all(pair[how]["goodput_mbit"] > 0 for pair in told["pairs"] for how in ("coupled", "uncoupled")), told
    # What ctrlTCP is for: one controller loses less than four.
    assert events["coupled"] < events["uncoupled"], told
    until("all flows coupled again", lambda: all_coupled(domain, daemon))
    receiver.check(COUNT, "after the trial")
