# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the demos of host tenants make of runs that were made up."""

import json
import signal
import socket
import sys
import time
from subprocess import PIPE, Popen

from host_tenants import agents, demo, faults, traffic
from testbed.wait import until

SHARES = {"mbits": [5.0, 5.0], "sum_mbits": 10.0, "jain": 1.0}
END = {"peer": "10.1.1.2", "after_s": 12.0, "reason": "closed"}


def of_demo() -> list[dict]:
    return [
        {"set": name, "pair": case.pair, "flows": case.flows, "coupled": case.coupled, "ended_early": [], **SHARES}
        for name, cases in demo.CASES.items()
        for case in cases
    ]


def of_agents(cases: list[agents.Case]) -> list[dict]:
    return [
        {"flows": case.flows, "weights": case.weights, "coupled": case.coupled, "ended": [], **SHARES} for case in cases
    ]


def broken(scores: list) -> list[tuple[float, bool]]:
    return [(score.value, score.holds) for score in scores if score.name == "connections that ended early"]


def test_a_connection_of_a_tenant_that_breaks_off_is_seen():
    runs = of_demo()
    assert broken(demo.judged(runs, list(demo.CASES))) == [(0, True)]
    runs[-1]["ended_early"] = [END]
    assert broken(demo.judged(runs, list(demo.CASES))) == [(1, False)]


def test_a_connection_of_a_guest_that_breaks_off_is_seen():
    runs, mixed = of_agents(agents.CASES), of_agents(agents.MIXED)
    assert broken(agents.judged(runs, mixed)) == [(0, True)]
    runs[0]["ended"] = mixed[-1]["ended"] = [END]
    assert broken(agents.judged(runs, mixed)) == [(2, False)]


def test_seconds_in_which_the_receiver_stood_still_are_not_those_of_a_silent_tenant():
    received = [9, 9, 9, 9, 9, 9, 0, 9, 0, 9, 9]
    assert faults.silent_seconds(received, []) == 2
    assert faults.silent_seconds(received, [5, 6, 7]) == 1
    assert faults.blind_part(received, [4, 5, 6, 7]) == 0.6
    assert faults.blind_part(received, []) == 0


def stood_still(number: int) -> list[int]:
    """Seconds in which a receiver says that it did, to which nobody sends for a while and that gets a signal."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, traffic.__file__, "receive", str(port), "60"]
    with socket.socket() as flow, Popen(command, stdout=PIPE) as receiver:
        until("it listens", lambda: flow.connect_ex(("127.0.0.1", port)) == 0)
        receiver.send_signal(number)
        time.sleep(1.5)
        receiver.send_signal(signal.SIGCONT)
        # More than anybody holds for it.
        flow.sendall(bytes(50 << 20))
        receiver.terminate()
        told: list[int] = json.loads(receiver.communicate()[0])["stood_still"]
    return told


def test_a_receiver_tells_when_it_stood_still_and_not_that_nobody_sent():
    assert len(stood_still(signal.SIGSTOP)) >= 2
    # Unless this machine stands still, too.
    assert any(not stood_still(signal.SIGCONT) for _ in range(5))
