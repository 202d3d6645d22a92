# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What a run in real time had of the machine."""

import os
from dataclasses import dataclass
from pathlib import Path


def _ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    return [int(field) for field in line.split()[1:9]]


@dataclass(frozen=True)
class Steal:
    """The processors' time from a moment on."""

    ticks: list[int]

    @classmethod
    def now(cls) -> "Steal":
        return cls(_ticks())

    def since(self) -> dict:
        """Parts of the time since then, percent; a busy machine disturbs a run
        as much as one whose processors are somebody else's for a while."""
        used = [after - before for before, after in zip(self.ticks, _ticks())]

        def part(*fields: int) -> float:
            return round(100 * sum(used[field] for field in fields) / max(1, sum(used)), 1)

        return {
            "busy_percent": part(0, 1, 2, 5, 6),
            "idle_percent": part(3, 4),
            "steal_percent": part(7),
            "load_1min": os.getloadavg()[0],
        }
