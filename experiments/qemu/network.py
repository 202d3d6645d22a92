# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' dumbbell: VMs on a bridge, and a domain that is the router with
the bottleneck, and the receivers behind it.

    vm1 ──┐
    vm2 ──┤ bridge ── eth0 router ── bott (netem rate, limit) ── rcv receivers
    …     ┘                                   (netem delay on rcv, the way back)
"""

import csv
import json
import re
from pathlib import Path

from ccc_experiments.lab import Bottleneck

from .domains import Domain
from .shell import host

BRIDGE = "cccbr0"
RECEIVER = "10.2.0.2"
# Nowhere are packets put together: they are counted one by one in the queue.
_APART = "ethtool -K {0} tso off gso off gro off >/dev/null 2>&1 || true; ip link set {0} gso_max_segs 1"


def make_bridge() -> None:
    host("ip", "link", "add", BRIDGE, "type", "bridge")
    host("ip", "link", "set", BRIDGE, "up")
    # For who logs in.
    host("ip", "address", "add", "10.1.1.2/24", "dev", BRIDGE)


def address(number: int) -> str:
    """Of a VM."""
    return f"10.1.1.{10 + number}"


def set_up_vm(vm: Domain, number: int) -> None:
    vm.run(
        f"{_APART.format('eth0')}; ip address add {address(number)}/24 dev eth0; ip link set eth0 up;"
        " ip route add default via 10.1.1.1"
    )


def set_up_router(router: Domain, bottleneck: Bottleneck) -> None:
    """Addresses, queues, and a receiver for each VM."""
    router.run(
        f"{_APART.format('eth0')}; ip address add 10.1.1.1/24 dev eth0; ip link set eth0 up;"
        " sysctl -qw net.ipv4.ip_forward=1; modprobe -a veth sch_netem;"
        " ip netns add rcv; ip link add bott type veth peer name rcv netns rcv;"
        f" {_APART.format('bott')}; ip address add 10.2.0.1/24 dev bott; ip link set bott up;"
        f" ip netns exec rcv sh -c '{_APART.format('rcv')}';"
        f" ip -n rcv address add {RECEIVER}/24 dev rcv; ip -n rcv link set rcv up; ip -n rcv link set lo up;"
        " ip -n rcv route add default via 10.2.0.1;"
        f" tc qdisc add dev bott root netem rate {bottleneck.rate_mbit}mbit limit {bottleneck.limit_packets};"
        f" tc -n rcv qdisc add dev rcv root netem delay {bottleneck.delay_ms}ms"
    )


_COUNTERS = re.compile(
    r"time (?P<time>[\d.]+)|Sent (?P<bytes>\d+) bytes (?P<sent>\d+) pkt \(dropped (?P<dropped>\d+)"
    r"|backlog (?P<backlog>\S+)b (?P<packets>\d+)p"
)
_UNITS = {"K": 1024, "M": 1024**2}


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def read_samples(text: str) -> list[dict]:
    """The samples of `sample-queue`, as rows of `queue.csv`."""
    rows: list[dict] = []
    now = 0.0
    for found in _COUNTERS.finditer(text):
        if found["time"]:
            now = float(found["time"])
        elif found["sent"]:
            counters = {"sent_packets": int(found["sent"]), "dropped_packets": int(found["dropped"])}
            rows.append({"time_s": now, **counters})
        elif rows:
            rows[-1] |= {"backlog_bytes": _bytes(found["backlog"]), "backlog_packets": int(found["packets"])}
    return [row for row in rows if "backlog_bytes" in row]


def write_queue(rows: list[dict], raw: Path) -> None:
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
