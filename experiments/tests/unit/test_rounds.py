# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How soon bulk yields, of samples that were made up."""

import pytest
from host_tenants import rounds
from host_tenants.rounds import RTT_S

BYTES_S, STEP_S = 10e6 / 8, 0.002
BEGAN, ENDED, END = 12.0, 20.0, 26.0


def samples(yields_after: int, takes_after: int = 1) -> list[list[float]]:
    """Each 2 ms: bulk has its part so many round trips after the tenant began."""
    # Its handshake was a round trip before.
    web = bulk = 0.0
    found = []
    for number in range(int(END / STEP_S)):
        time = STEP_S * number
        found.append([time, web, bulk])
        sends = BEGAN <= time < ENDED
        yields = BEGAN + yields_after * RTT_S <= time < ENDED + takes_after * RTT_S
        web += STEP_S * BYTES_S * 0.75 * sends + 74 * (number == int((BEGAN - RTT_S) / STEP_S))
        bulk += STEP_S * BYTES_S * (0.25 if yields else 1)
    return found


def kept(tmp_path, *after: int) -> list[bool]:
    _, scores, _ = rounds.judged(tmp_path, samples(*after))
    return [score.holds for score in scores]


def test_two_round_trips_are_soon_enough(tmp_path):
    assert all(kept(tmp_path, 1)) and all(kept(tmp_path, 2))


@pytest.mark.parametrize("after", [3, 4, 9])
def test_three_are_not(tmp_path, after):
    assert kept(tmp_path, after)[1] is False
    assert kept(tmp_path, 1, after)[4] is False


def test_who_never_yields_does_not_pass(tmp_path):
    assert kept(tmp_path, 1000)[1] is False


def test_a_tenant_that_comes_twice_is_two():
    twice = samples(1)
    last = twice[-1]
    twice += [[last[0] + STEP_S + time, last[1] + web, last[2] + bulk] for time, web, bulk in samples(1)]
    assert [round(began, 1) for began, _ in rounds.sending(twice)] == [BEGAN, END + BEGAN]
