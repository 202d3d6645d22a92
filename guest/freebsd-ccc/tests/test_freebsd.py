# SPDX-License-Identifier: BSD-3-Clause
"""The modules on a real kernel of FreeBSD, with the real daemon."""

import time

from testbed.bottleneck import ADDRESS, PORT
from testbed.wait import until

EBUSY = 16


def send(guest, flows, seconds, priority=0):
    guest.does("flows", ADDRESS, PORT, flows, seconds, priority)


def await_coupled(guest, daemon, flows, timeout_s=60):
    until(f"{guest.name}: {flows} flows coupled", lambda: daemon.coupled_flows(guest.name) == flows, timeout_s)


def test_flows_are_coupled_and_leave(bed, measured):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    until("the tables are accepted", lambda: guest.tables() == "accepted", 30)
    send(guest, 4, 20)
    await_coupled(guest, daemon, 4)
    assert guest.counts("slots_used") == 4
    before = bed.receiver.arrived()
    time.sleep(8)
    got = {port: count - before.get(port, 0) for port, count in bed.receiver.arrived().items()}
    measured(mbits=[round(count / 1e6, 2) for count in got.values()])
    until("the flows have left", lambda: daemon.coupled_flows("bsd") == 0 and guest.counts("slots_used") == 0, 60)
