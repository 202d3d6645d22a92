# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What machines of an inventory measured, as it is scored."""

from dataclasses import replace

import pytest
from ccc_experiments.measure import Measured
from ccc_experiments.scenario import Flows, Scenario, Vm
from ccc_experiments.shares import ShareError
from realtime import inventory, queue_samples

# Of tc -s, with two queues below the root.
TC = """time {time}
qdisc mq 1: root
 Sent {bytes} bytes {packets} pkt (dropped {drops}, overlimits 0 requeues 2)
 backlog 3000b 2p requeues 2
qdisc fq_codel 8001: dev eth0 parent 1:2 limit 10240p
 Sent 7 bytes 7 pkt (dropped 7, overlimits 0 requeues 0)
 backlog 7b 7p requeues 0
qdisc ingress ffff: parent ffff:fff1 ----------------
 Sent 9 bytes 9 pkt (dropped 9, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
"""


def ran(goodput, *, flows=(1, 4), weights=(1, 1), queue_ms=50.0, drops=10):
    vms = tuple(Vm((Flows(count=count),), weight=weight) for count, weight in zip(flows, weights))
    return Measured(Scenario("case", vms, 0, 30.0), goodput, queue_ms, queue_ms, 1000, drops)


def failing(uncoupled, coupled, looked=True):
    return [score.name for score in inventory.scores(uncoupled, coupled, looked) if score.fails]


UNCOUPLED = ran((4.0, 15.0), queue_ms=80.0, drops=300)


def test_what_coupling_is_to_do_holds():
    assert failing(UNCOUPLED, ran((9.4, 9.5))) == []


def test_fair_shares_of_nothing_fail():
    assert failing(UNCOUPLED, ran((0.5, 0.5))) == ["coupled over uncoupled goodput"]


@pytest.mark.parametrize("weights", [(1, 1), (3, 1)])
def test_who_has_nothing_fails(weights):
    share = failing(UNCOUPLED, ran((0.0, 19.0), weights=weights))
    assert len(share) == 1 and ("Jain" in share[0] or "share" in share[0])


def test_more_losses_and_a_longer_queue_fail_where_somebody_looked():
    worse = ran((9.4, 9.5), queue_ms=81.0, drops=301)
    assert failing(UNCOUPLED, worse) == ["coupled over uncoupled queue", "coupled over uncoupled drops"]
    assert failing(UNCOUPLED, worse, looked=False) == []


def test_flows_that_share_by_themselves_are_guarded():
    alike = {"flows": (1, 1), "drops": 0}
    assert failing(ran((9.5, 9.5), **alike), ran((9.5, 9.4), **alike)) == []
    assert failing(ran((9.5, 9.5), **alike), ran((15.0, 4.0), **alike)) == ["Jain's index coupled"]


def test_who_takes_turns_fails():
    uncoupled, coupled = (
        replace(run, share_error=ShareError(mean=mean, p99=mean))
        for run, mean in ((UNCOUPLED, 60.0), (ran((9.4, 9.5)), 50.0))
    )
    assert failing(uncoupled, coupled) == ["share error in 1 s, mean"]


def test_a_run_in_which_one_sent_nothing_is_none():
    with pytest.raises(inventory.BadRun, match="got nothing of one"):
        failing(ran((0.0, 19.0)), ran((9.4, 9.5)))


def test_a_queue_that_is_always_empty_is_none():
    with pytest.raises(inventory.BadRun, match="name another interface"):
        failing(ran((4.0, 15.0), queue_ms=0.0), ran((9.4, 9.5), queue_ms=0.0))


def test_a_queue_is_that_of_the_root():
    text = "".join(TC.format(time=at, bytes=at * 1500, packets=at, drops=at) for at in (1, 2))
    rows = queue_samples.read(text)
    assert [(row["time_s"], row["sent_packets"], row["dropped_packets"]) for row in rows] == [(1, 1, 1), (2, 2, 2)]
    assert {row["backlog_packets"] for row in rows} == {2}
