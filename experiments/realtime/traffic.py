# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs a scenario of the virtual-time laboratory with iperf3 in guests, and
leaves its raw data in the same form."""

import csv
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.measure import measure
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Scenario, Vm
from ccc_experiments.setups import flow_count
from testbed.libvirt import Guest, Job

from . import queue_samples
from .steal import Steal

RECEIVER = "10.2.0.2"
_INTERVAL_S = 0.5
_PORT = 5201
_DATAGRAM_BYTES = 1400


@dataclass(frozen=True)
class Traffic:
    """Between the guests of a run."""

    router: Guest
    vms: tuple[Guest, ...]

    def run(
        self, scenario: Scenario, raw: Path, meanwhile: Callable[[], None] | None = None, last_s: int = 0
    ) -> tuple[Run, dict]:
        """Runs one scenario; `meanwhile` is called when the senders have been started, of
        which the last begins so much later.  The run, and what the host had to spare."""
        raw.mkdir(parents=True, exist_ok=True)
        duration = int(scenario.duration_s)
        receivers = [self._receive(number) for number, _ in enumerate(scenario.vms, 1)]
        time.sleep(1)
        sampler = self.router.begin(f"sample-queue bott {duration + 2}")
        steal = Steal.now()
        senders = [
            _send(guest, number, vm, last_s if guest == self.vms[-1] else 0, duration)
            for number, (guest, vm) in enumerate(zip(self.vms, scenario.vms), 1)
        ]
        if meanwhile:
            meanwhile()
        for sender in senders:
            sender.result(duration + 300)
        host = steal.since()
        queue_samples.write(queue_samples.read(sampler.result(300)), raw)
        reports = {f"vm{n}": json.loads(job.result(300)) for n, job in enumerate(receivers, 1)}
        write_goodput(reports, raw)
        (raw / "host.json").write_text(json.dumps(host, indent=1) + "\n")
        return Run(measure(scenario, raw), raw), host

    def _receive(self, number: int) -> Job:
        port = _PORT + number
        return self.router.begin(f"ip netns exec rcv iperf3 -s -1 -J -i {_INTERVAL_S} -p {port}")


def _send(guest: Guest, number: int, vm: Vm, begin_s: int, duration: int) -> Job:
    """Its flows, or datagrams, from a time on until the end."""
    what = f"-P {flow_count(vm)} -C {vm.congestion_control}"
    if vm.udp_mbit:
        what = f"-u -b {vm.udp_mbit:g}M -l {_DATAGRAM_BYTES}"
    client = f"iperf3 -c {RECEIVER} -p {_PORT + number} {what} -t {duration - begin_s} -i 0 -J"
    return guest.begin(f"sleep {begin_s}; {client}")


def write_goodput(reports: dict[str, dict], raw: Path) -> None:
    """`goodput.csv` and `flows.json` from what the receivers counted."""
    flows = []
    with (raw / "goodput.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", "vm", "flow", "bytes"])
        for vm, report in reports.items():
            received: dict[int, int] = {}
            for interval in report["intervals"]:
                for stream in interval["streams"]:
                    received[stream["socket"]] = received.get(stream["socket"], 0) + stream["bytes"]
                    flow = sorted(received).index(stream["socket"])
                    writer.writerow([round(stream["end"], 1), vm, flow, received[stream["socket"]]])
            flows += [{"vm": vm, "flow": n, "bytes_received": received[key]} for n, key in enumerate(sorted(received))]
    (raw / "flows.json").write_text(json.dumps(flows, indent=1) + "\n")
