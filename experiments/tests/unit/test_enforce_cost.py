# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What is read from the console of the guest of `make bench-enforce`."""

import pytest
from ccc_experiments import enforce_cost
from ccc_experiments.lab import LabError

# The loop has a round in 4 ns, but for what else is to be done.
ROUNDS = {
    "no-daemon": (250_000_000, 1_000_000_000, 0),
    "taps-10": (249_000_000, 1_000_000_000, 0),
    "taps-100": (240_000_000, 1_000_000_000, 0),
    "waiting-fifo": (47_900_000, 200_000_000, 700),
    "waiting-htb": (46_500_000, 200_000_000, 700),
    "waiting-held": (46_850_000, 200_000_000, 702),
}
PACKETS = {"none": 12100, "fifo": 12300, "fifo-again": 12301, "htb-fq_codel": 14000, "held": 14600, "let-go": 12302}


def console(**other: tuple[int, int, int]) -> str:
    """What a guest says, some of it other."""
    lines = [f"@ {name} {took}.0 5000" for name, took in PACKETS.items() for _ in range(enforce_cost.TIMES)]
    for name, numbers in (ROUNDS | other).items():
        times = enforce_cost.TIMES if name in enforce_cost.WAITING else enforce_cost.LOOKED
        lines += [f"= {name} {' '.join(map(str, numbers))}"] * times
    return "\r\n".join(["[    1.0] Run /init", *lines, "@ end"])


def test_what_the_loop_has_not_had_is_what_packets_and_looks_took():
    each = enforce_cost.costs(console())
    assert each["held"] == 14600
    assert each["waiting-fifo"] == pytest.approx(12000)
    assert each["waiting-htb"] == pytest.approx(20000)
    assert each["waiting-held"] == pytest.approx(18000)
    # 90 taps more take 3.6 % of a second with 20 looks.
    assert enforce_cost.of_a_look(each) == pytest.approx(20000)


def test_packets_that_were_dropped_do_not_count_as_cheap():
    with pytest.raises(LabError, match="not all packets have arrived"):
        enforce_cost.costs(console(**{"waiting-held": (46_850_000, 200_000_000, 400)}))
