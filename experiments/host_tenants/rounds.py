# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""How soon a tenant's bulk yields to another that begins, and has all once that ends: in round trips.

Rates are those of each round trip, means over the times that the other comes: a mean of seconds would not
tell two round trips from ten.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.scores import Score

WEIGHTS = {"web": 3, "bulk": 1}
SHARE = WEIGHTS["bulk"] / sum(WEIGHTS.values())
# Of the path when its queue is full: 100 ms, and 83 packets at 10 Mbit/s.
PATH_MBITS = 10
RTT_S = 0.1 + 83 * 1514 * 8 / (PATH_MBITS * 1e6)
# After so many the bulk has what is its own; so many are looked at.
ROUNDS, LOOKED_AT = 2, 10
# How far from its part the bulk is to be, in one round trip; one packet of 40 is 2.5 %.
MOST, LEAST = 1.25, 0.9
# Of the path, that both together use at the least: or half of it could be lost and all parts be right.
USED = 0.95
# Once a tenant has ended: what bulk takes two round trips for is not used meanwhile.
USED_LATER = 0.8
# More than what begins a connection, a round trip before its data, and less than the first of these.
HANDSHAKE_BYTES = 500


def judged(out: Path, samples: list[list[float]], times: int) -> tuple[list[dict], list[Score], dict]:
    """What the host's bulk has had beside a tenant that comes and goes so many times, by round trips; the
    means are web's and its own."""
    spans = sending(samples)
    settled = ROUNDS * RTT_S
    alone = mean([rate(samples, spans[0][0] - 8, spans[0][0] - 1)])
    together = mean([rate(samples, began + 10 * RTT_S, ended - RTT_S) for began, ended in spans])
    uplink = sum(together)
    yielding = by_round(samples, [began for began, _ in spans])
    taking = by_round(samples, [ended for _, ended in spans])
    parts = [bulk / (SHARE * uplink) for _, bulk in yielding]
    rests = [bulk / uplink for _, bulk in taking]
    used = [sum(web + bulk for web, bulk in rounds) / len(rounds) / PATH_MBITS for rounds in (yielding, taking)]
    scores = [
        Score("times that the tenant came", len(spans), "1", "==", times, guard=True),
        Score("bulk alone: its rate over that of all", alone[1] / uplink, "ratio", ">=", 0.95, guard=True),
        Score("  of the path that it uses", alone[1] / PATH_MBITS, "ratio", ">=", USED, guard=True),
        Score("a tenant begins: round trips until bulk has its part and no more",
              settles(part <= MOST for part in parts), "1", "<=", ROUNDS),
        Score("  and then over its part", sum(parts[ROUNDS:]) / len(parts[ROUNDS:]), "ratio", "<=", 1.1),
        Score("  of the path that both use then", used[0], "ratio", ">=", USED, guard=True),
        Score("together: error of bulk's part", 100 * abs(together[1] / uplink / SHARE - 1), "%", "<=", 5),
        Score("a tenant ends: round trips until bulk has all", settles(took(rests)), "1", "<=", ROUNDS,
              guard=True),
        Score("  and then over that of all", sum(rests[ROUNDS:]) / len(rests[ROUNDS:]), "ratio", ">=", LEAST,
              guard=True),
        Score("  of the path that is used then", used[1], "ratio", ">=", USED_LATER, guard=True),
    ]  # fmt: skip
    draw(out, samples, spans, settled)
    found = {"sending": spans, "over_its_part_by_round": parts, "over_all_by_round": rests, "samples": samples}
    return [found], scores, {"alone": alone, "together": together}


def sending(samples: list[list[float]]) -> list[tuple[float, float]]:
    """When the tenant's data began and ended to come, each time; less than half a second is no end."""
    spans: list[tuple[float, float]] = []
    silent = samples[0][1]
    for before, after in pairwise(samples):
        if after[1] == before[1]:
            continue
        if spans and before[0] - spans[-1][1] < 0.5:
            spans[-1] = (spans[-1][0], after[0])
            silent = after[1]
        elif after[1] - silent > HANDSHAKE_BYTES:
            spans.append((before[0], after[0]))
    return spans


def settles(holds: Iterable[bool]) -> int:
    """From which round trip on it holds in each."""
    return max((number for number, one in enumerate(holds, 1) if not one), default=0)


def took(rests: list[float]) -> list[bool]:
    """Whether bulk had all in this round trip or an earlier one: then it may lose and have less."""
    return [max(rests[: number + 1]) >= LEAST for number in range(len(rests))]


def by_round(samples: list[list[float]], events: list[float]) -> list[tuple[float, float]]:
    """Mbit/s in each round trip after an event, the mean of all events."""
    events = [event for event in events if event + LOOKED_AT * RTT_S <= samples[-1][0]]
    begins = [number * RTT_S for number in range(LOOKED_AT)]
    return [mean([rate(samples, event + begin, event + begin + RTT_S) for event in events]) for begin in begins]


def rate(samples: list[list[float]], begin: float, end: float) -> tuple[float, float]:
    """Mbit/s of web and of bulk."""
    first, last = bytes_until(samples, begin), bytes_until(samples, end)
    web, bulk = (8e-6 * (after - before) / (end - begin) for before, after in zip(first, last))
    return web, bulk


def bytes_until(samples: list[list[float]], time: float) -> tuple[float, float]:
    """Between two samples, evenly."""
    at = min(max(bisect_left(samples, [time]), 1), len(samples) - 1)
    before, after = samples[at - 1], samples[at]
    part = min(max((time - before[0]) / (after[0] - before[0]), 0), 1)
    web, bulk = (one + part * (other - one) for one, other in zip(before[1:], after[1:]))
    return web, bulk


def mean(rates: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(web for web, _ in rates) / len(rates), sum(bulk for _, bulk in rates) / len(rates)


def draw(out: Path, samples: list[list[float]], spans: list[tuple[float, float]], settled: float) -> None:
    figure, axes = plots.subplots(7, 3)
    times = [samples[0][0] + 0.1 * number for number in range(int(10 * (samples[-1][0] - samples[0][0])))]
    rates = [rate(samples, time, time + 0.1) for time in times]
    for number, name in enumerate(("tenant, weight 3, 1 flow", "host's bulk, weight 1")):
        axes.plot(times, [one[number] for one in rates], lw=0.8, label=name)
    for began, _ in spans:
        axes.axvspan(began, began + settled, color="#bbbbbb", label="two round trips" if began == spans[0][0] else None)
    axes.set_xlabel("time, s")
    axes.set_ylabel("sent, Mbit/s")
    axes.legend(frameon=False)
    plots.save(figure, out / "yields")
