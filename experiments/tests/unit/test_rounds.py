# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How soon bulk yields, of samples that were made up."""

import pytest
from host_tenants import rounds
from host_tenants.rounds import RTT_S

BYTES_S, STEP_S = 10e6 / 8, 0.002
BEGAN, ENDED, END = 12.0, 20.0, 26.0


YIELDS, TAKES = "a tenant begins: round trips", "a tenant ends: round trips"
USED = ("of the path that it uses", "of the path that both use then", "of the path that is used then")


def samples(yields_after: int, takes_after: int = 1, used: float = 1) -> list[list[float]]:
    """Each 2 ms: bulk has its part so many round trips after the tenant began."""
    # Its handshake was a round trip before.
    web = bulk = 0.0
    found = []
    for number in range(int(END / STEP_S)):
        time = STEP_S * number
        found.append([time, web, bulk])
        sends = BEGAN <= time < ENDED
        yields = BEGAN + yields_after * RTT_S <= time < ENDED + takes_after * RTT_S
        web += STEP_S * BYTES_S * 0.75 * used * sends + 74 * (number == int((BEGAN - RTT_S) / STEP_S))
        bulk += STEP_S * BYTES_S * used * (0.25 if yields else 1)
    return found


def missed(tmp_path, *after: int, used: float = 1, times: int = 1) -> set[str]:
    _, scores, _ = rounds.judged(tmp_path, samples(*after, used=used), times)
    return {score.name.strip() for score in scores if not score.holds}


def has(names: set[str], begin: str) -> bool:
    return any(name.startswith(begin) for name in names)


def test_two_round_trips_are_soon_enough(tmp_path):
    assert not missed(tmp_path, 1) and not missed(tmp_path, 2) and not missed(tmp_path, 2, 2)


@pytest.mark.parametrize("after", [3, 4, 9])
def test_three_are_not(tmp_path, after):
    assert has(missed(tmp_path, after), YIELDS)
    assert has(missed(tmp_path, 1, after), TAKES)


def test_who_never_yields_does_not_pass(tmp_path):
    assert has(missed(tmp_path, 1000), YIELDS)


def test_what_of_the_path_is_lost_is_seen(tmp_path):
    assert missed(tmp_path, 1, used=0.5) == set(USED)


def test_a_tenant_that_did_not_come_each_time_is_seen(tmp_path):
    assert missed(tmp_path, 1, times=2) == {"times that the tenant came"}


def test_a_tenant_that_comes_twice_is_two():
    twice = samples(1)
    last = twice[-1]
    twice += [[last[0] + STEP_S + time, last[1] + web, last[2] + bulk] for time, web, bulk in samples(1)]
    assert [round(began, 1) for began, _ in rounds.sending(twice)] == [BEGAN, END + BEGAN]
