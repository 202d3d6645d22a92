# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The host's own bulk traffic as a tenant: four flows of a cgroup, as of a migration or a backup.

It has the uplink while nobody else sends, and its weight's part of it when a tenant does.
"""

import json
from contextlib import ExitStack
from pathlib import Path

from ccc_experiments import plots
from ccc_experiments.scores import Score, print_scores, write_result

from . import cgroups
from .dumbbell import Dumbbell
from .service import Service

WEIGHTS = {"web": 3, "bulk": 1}
ALONE_S, TOGETHER_S, AFTER_S = 20, 20, 15
# Two of the path when its queue is full: 100 ms, and 83 packets at 10 Mbit/s.
TWO_RTTS_S = 2 * (0.1 + 83 * 1514 * 8 / 10e6)
# Over which a rate is taken.
WINDOW_S = 2.0
# A rate that only a flow that sends has.
SENDS_MBIT = 0.2


def run(out: Path) -> bool:
    about = "web (1 flow, weight 3) beside bulk of the host (4 flows, weight 1)"
    runs, scores, means = judged(out, sampled(out))
    write_result(out / "result.json", runs, scores, {"what": about, "mbits": means})
    return print_scores(scores)


def judged(out: Path, bytes_by_time: list[list[float]]) -> tuple[list[dict], list[Score], dict]:
    """What the host's bulk has had before, beside and after a tenant; the means are web's and its own."""
    samples = rates(bytes_by_time)
    began = next(time for time, web, _ in samples if web > SENDS_MBIT)
    ended = max(time for time, web, _ in samples if web > SENDS_MBIT)
    share = WEIGHTS["bulk"] / sum(WEIGHTS.values())
    alone = mean(samples, began - 8, began - 1)
    yielded = mean(samples, began + TWO_RTTS_S, began + TWO_RTTS_S + WINDOW_S)
    together = mean(samples, began + 5, ended - 1)
    after = mean(samples, ended + TWO_RTTS_S, ended + TWO_RTTS_S + WINDOW_S)
    off = 100 * abs(together[1] / sum(together) / share - 1)
    scores = [
        Score("bulk alone: its rate over that of all", alone[1] / sum(together), "ratio", ">=", 0.95),
        Score("two round trips after a tenant began: bulk over its part",
              yielded[1] / share / sum(together), "ratio", "<=", 1.25),
        Score("together: error of bulk's part", off, "%", "<=", 5),
        Score("two round trips after the tenant ended: bulk over that of all",
              after[1] / sum(together), "ratio", ">=", 0.9),
    ]  # fmt: skip
    means = {"alone": alone, "yielded": yielded, "together": together, "after": after}
    draw(out, samples, began)
    return [{"began": began, "ended": ended, "rates": samples}], scores, means


def sampled(out: Path) -> list[list[float]]:
    """Times, and bytes that have come to the bottleneck from web and from bulk."""
    seconds = ALONE_S + TOGETHER_S + AFTER_S
    service = Service(out, {"uplink": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-yields")
        stack.callback(bed.end)
        bed.make()
        service.add("web", "netns", bed.sender(0), "uplink", WEIGHTS["web"])
        service.add("bulk", "cgroup", cgroups.make("bulk"), "uplink", WEIGHTS["bulk"])
        service.await_connected("web", "bulk")
        bed.receive(seconds + 5)
        watch = bed.watch(seconds)
        bed.send(1, 4, seconds + 5, "reno", cgroups.path("bulk"))
        bed.send(0, 1, TOGETHER_S, "reno", after_s=ALONE_S)
        return json.loads(watch.communicate()[0])


def rates(samples: list[list[float]]) -> list[tuple[float, float, float]]:
    """Mbit/s over a tenth of a second, by its middle."""
    result, first = [], samples[0]
    for sample in samples[1:]:
        if (elapsed := sample[0] - first[0]) >= 0.1:
            web, bulk = (8e-6 * (now - then) / elapsed for now, then in zip(sample[1:], first[1:]))
            result.append(((sample[0] + first[0]) / 2, web, bulk))
            first = sample
    return result


def mean(samples: list[tuple[float, float, float]], begin: float, end: float) -> tuple[float, float]:
    within = [(web, bulk) for time, web, bulk in samples if begin <= time < end]
    return sum(web for web, _ in within) / len(within), sum(bulk for _, bulk in within) / len(within)


def draw(out: Path, samples: list[tuple[float, float, float]], began: float) -> None:
    figure, axes = plots.subplots(7, 3)
    for number, name in ((1, "tenant, weight 3, 1 flow"), (2, "host's bulk, weight 1")):
        axes.plot([sample[0] for sample in samples], [sample[number] for sample in samples], lw=0.8, label=name)
    axes.axvspan(began, began + TWO_RTTS_S, color="#bbbbbb", label="two round trips")
    axes.set_xlabel("time, s")
    axes.set_ylabel("sent, Mbit/s")
    axes.legend(frameon=False)
    plots.save(figure, out / "yields")
