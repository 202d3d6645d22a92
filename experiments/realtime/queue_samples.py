# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The bottleneck's queue as the guest's `sample-queue` prints it, and as the
virtual-time laboratory writes it."""

import csv
import json
import re
from pathlib import Path

_COUNTERS = re.compile(
    r"qdisc \S+ \S+(?: dev \S+)? (?P<place>\S+)"
    r"|time (?P<time>[\d.]+)|Sent (?P<bytes>\d+) bytes (?P<sent>\d+) pkt \(dropped (?P<dropped>\d+)"
    r"|backlog (?P<backlog>\S+)b (?P<packets>\d+)p"
)
_UNITS = {"K": 1024, "M": 1024**2}


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def read(text: str) -> list[dict]:
    """The samples of `sample-queue`, as rows of `queue.csv`."""
    rows: list[dict] = []
    now, of_root = 0.0, True
    for found in _COUNTERS.finditer(text):
        if found["time"]:
            now = float(found["time"])
        elif found["place"]:
            # The root's counters have those of what is below it.
            of_root = found["place"] == "root"
        elif not of_root:
            continue
        elif found["sent"]:
            counters = {"sent_packets": int(found["sent"]), "dropped_packets": int(found["dropped"])}
            rows.append({"time_s": now, **counters})
        elif rows:
            rows[-1] |= {"backlog_bytes": _bytes(found["backlog"]), "backlog_packets": int(found["packets"])}
    return [row for row in rows if "backlog_bytes" in row]


def write(rows: list[dict], raw: Path) -> None:
    """`queue.csv` and `bottleneck.json`, as the virtual-time laboratory has them."""
    first, last = rows[0], rows[-1]
    with (raw / "queue.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(first))
        writer.writeheader()
        for row in rows:
            relative = {key: row[key] - first[key] for key in ("sent_packets", "dropped_packets")}
            writer.writerow(row | relative | {"time_s": round(row["time_s"] - first["time_s"], 2)})
    total = {key: last[key] - first[key] for key in ("sent_packets", "dropped_packets")}
    (raw / "bottleneck.json").write_text(json.dumps(total, indent=1) + "\n")
