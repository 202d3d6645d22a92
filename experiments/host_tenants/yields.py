# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The host's own bulk traffic as a tenant: four flows of a cgroup, as of a migration or a backup.

It has the uplink while nobody else sends, and its weight's part of it when a tenant does.
"""

import json
from contextlib import ExitStack
from pathlib import Path

from ccc_experiments.scores import print_scores, write_result

from . import cgroups, rounds
from .dumbbell import Dumbbell
from .rounds import WEIGHTS
from .service import Service

# A tenant comes so many times, and so long it sends and is silent.
TIMES, TOGETHER_S, APART_S = 8, 6, 6
# Until the first time.
ALONE_S = 15


def run(out: Path) -> bool:
    about = "web (1 flow, weight 3) beside bulk of the host (4 flows, weight 1)"
    runs, scores, means = rounds.judged(out, sampled(out), TIMES)
    write_result(out / "result.json", runs, scores, {"what": about, "mbits": means})
    return print_scores(scores)


def sampled(out: Path) -> list[list[float]]:
    """Times, and bytes that have come to the bottleneck from web and from bulk."""
    seconds = ALONE_S + TIMES * (TOGETHER_S + APART_S)
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
        for time in range(TIMES):
            bed.send(0, 1, TOGETHER_S, "reno", after_s=ALONE_S + time * (TOGETHER_S + APART_S))
        return json.loads(watch.communicate()[0])
