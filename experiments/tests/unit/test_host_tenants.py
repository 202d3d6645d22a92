# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the demos of host tenants make of runs that were made up."""

from host_tenants import agents, demo

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
