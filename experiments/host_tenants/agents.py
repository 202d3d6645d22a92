# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The papers' fairness test and the weights with guests as tenants that have the agent and no module.

One is a Debian 12 and one a Debian 13, each with its own kernel; coupled and uncoupled in turn, in the
same minutes.
"""

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.interval import Interval
from ccc_experiments.scores import Score, print_scores, write_result

from .demo import GOODPUT_LEAST, JAIN_LEAST, jain, unbroken
from .dumbbell import Dumbbell
from .guest import Guest
from .service import TARGET, Service, until

QUICK = bool(os.environ.get("QUICK"))
SETTLE_S, MEASURE_S = (10, 20) if QUICK else (10, 25)
RUNS = int(os.environ.get("RUNS") or (1 if QUICK else 3))
FLOWS = ((1, 4), (4, 1)) if QUICK else ((1, 4), (4, 1), (1, 16))
RELEASES = {"a": "bookworm", "b": "trixie"}
# By which guests are logged in to: no way behind the bottleneck.
LOGIN = "10.0.2.0/24"
WEIGHTS_WITHIN_PERCENT = 8


@dataclass(frozen=True)
class Case:
    flows: tuple[int, int]
    weights: tuple[float, float]
    coupled: bool

    @property
    def name(self) -> str:
        return f"{' : '.join(map(str, self.flows))}, {'coupled' if self.coupled else 'uncoupled'}"


CASES = [
    *(Case(flows, (1, 1), coupled) for flows in FLOWS for coupled in (False, True)),
    Case((1, 4), (3, 1), True),
]

MIXED = [Case((1, 4), (1, 1), True), Case((4, 1), (1, 1), True), Case((1, 4), (3, 1), True)]
# The first guest where it is coupled by the virtio device.
DEVICE = "device"


class Bed:
    """Guests behind a dumbbell, and the daemon and the relay of their host."""

    def __init__(self, out: Path, stack: ExitStack) -> None:
        groups: dict[str, dict] = {"coupled": {}, "uncoupled": {"coupled": False}}
        self.service = Service(out, groups, LOGIN, {DEVICE: "coupled"})
        stack.callback(self.service.stop)
        self.service.start_daemon()
        self.service.start_relay()
        self.dumbbell = Dumbbell("ccc-agents", senders=0)
        stack.callback(self.dumbbell.end)
        self.dumbbell.make()
        self.guests = []
        # By which the daemon knows them.
        self.names = tuple(RELEASES)
        for number, (name, release) in enumerate(RELEASES.items()):
            device = self.service.run / "vm" / f"{DEVICE}.sock" if name == "a" else None
            guest = Guest(name, release, number, self.service.run, device)
            stack.callback(guest.close)
            self.guests.append(guest)
            self.service.add(name, "vsock", str(guest.vsock), "coupled")
        for guest in self.guests:
            guest.boot(self.dumbbell)
            print(f"{guest.name}: Debian's {guest.kernel()} is up")
        try:
            self.service.await_connected(*RELEASES)
        finally:
            for guest in self.guests:
                (out / f"agent-{guest.name}.log").write_text(guest.agent_log())

    def coupled_flows(self) -> dict[str, int]:
        return {name: self.service.show(name)["coupled_flows"] for name in self.names}

    def change_to_device(self) -> None:
        """The first guest is coupled by the virtio device and the module from now on."""
        self.guests[0].change_to_module()
        self.names = (DEVICE, self.names[1])
        until("the device is in use", lambda: self.service.show(DEVICE)["connected"])


def run(out: Path) -> bool:
    with ExitStack() as stack:
        bed = Bed(out, stack)
        kernels = {guest.name: guest.kernel() for guest in bed.guests}
        runs = [{"run": number, **measured(bed, case)} for number in range(RUNS) for case in CASES]
        bed.change_to_device()
        mixed = [{"run": number, **measured(bed, case, "ccc")} for number in range(RUNS) for case in MIXED]
        for run in mixed:
            run["case"] = f"device beside agent, {run['case']}"
        scores = [*judged(runs, mixed), loopback(bed)]
        runs += mixed
    about = {"what": "guests with the agent, 10 Mbit/s, 100 ms, FIFO of 83 packets", "kernels": kernels}
    write_result(out / "result.json", runs, scores, about)
    return print_scores(scores)


def measured(bed: Bed, case: Case, of_first: str = "reno") -> dict:
    """`of_first` is the congestion control that the first guest's flows ask for."""
    for name, weight in zip(bed.names, case.weights):
        bed.service.change(name, "coupled" if case.coupled else "uncoupled", weight)
    seconds, before = SETTLE_S + MEASURE_S, bed.dumbbell.drops()
    receiver = bed.dumbbell.receive(seconds)
    asked = (of_first, "reno")
    senders = [
        guest.send(flows, seconds + 3, algorithm) for guest, flows, algorithm in zip(bed.guests, case.flows, asked)
    ]
    if case.coupled:
        wanted = dict(zip(bed.names, case.flows))
        until("all flows are coupled", lambda: bed.coupled_flows() == wanted)
    received = json.loads(receiver.communicate()[0])
    for sender in senders:
        sender.wait()
    mbits = []
    for number in range(len(RELEASES)):
        by_second = received["bytes_by_second"][bed.dumbbell.address(number)]
        mbits.append(8e-6 * sum(by_second[SETTLE_S:seconds]) / MEASURE_S)
    by_weight = [mbit / weight for mbit, weight in zip(mbits, case.weights)]
    result = {
        "case": case.name,
        "flows": case.flows,
        "weights": case.weights,
        "coupled": case.coupled,
        "mbits": mbits,
        "sum_mbits": sum(mbits),
        "jain": jain(by_weight),
        "drops": bed.dumbbell.drops() - before,
        **received,
    }
    shown = " : ".join(f"{mbit:.2f}" for mbit in mbits)
    weights = ":".join(f"{weight:g}" for weight in case.weights)
    print(f"{case.name}, weights {weights}: {shown} Mbit/s, Jain {result['jain']:.4f}, {result['drops']} drops")
    return result


def loopback(bed: Bed) -> Score:
    """The relay by CIDs, which needs a kernel's own vsock: with daemon and agent in one guest, by CID 1."""
    guest, where = bed.guests[-1], "/run/ccc"
    guest.kill_agent()
    for program in ("ccc-vhost", "cccctl"):
        guest.put(TARGET / program, "/usr/local/bin")
    control = f"{where}/control.sock"
    guest.run(f"mkdir -p {where}/vm; cat >{where}/ccc.toml", f'[daemon]\ncontrol = "{control}"\n[group.g]\n'.encode())
    begin = "systemd-run -qu"
    guest.run(
        f"modprobe vsock_loopback; {begin} daemon ccc-vhost --config {where}/ccc.toml;"
        f" until cccctl --socket {control} list >/dev/null 2>&1; do sleep 0.2; done;"
        f" cccctl --socket {control} tenant add self --vsock 1 --group g;"
        f" {begin} relay ccc-bpf relay --control {control}; {begin} agent ccc-bpf agent --cid 1"
    )
    receiver, sender = bed.dumbbell.receive(30), guest.send(2, 25, "cubic")

    def coupled() -> int:
        return json.loads(guest.run(f"cccctl --json --socket {control} show self"))["coupled_flows"]

    try:
        until("flows are coupled by CID", lambda: coupled() >= 2)
        found = coupled()
    except TimeoutError:
        found = coupled()
        print(guest.run("journalctl -qu relay -u agent -u daemon -o cat"))
    for process in (sender, receiver):
        process.kill()
        process.wait()
    return Score("by CID, in one guest: flows coupled of 2", found, "1", ">=", 2)


def judged(runs: list[dict], mixed: list[dict]) -> list[Score]:
    ends = (run["ended"] for run in (*runs, *mixed))
    return [*scored(runs), *scored_mixed(mixed, runs), unbroken(ends)]


def scored_mixed(runs: list[dict], before: list[dict]) -> list[Score]:
    """One guest has the device and the module, the other the agent: what they have is as their weights, and
    as much as uncoupled, in the minutes before."""
    scores = []
    for case in MIXED:
        some = [one for one in runs if one["flows"] == case.flows and one["weights"] == case.weights]
        off = [100 * abs(one["mbits"][0] / one["mbits"][1] * case.weights[1] / case.weights[0] - 1) for one in some]
        what = f"device beside agent, {case.flows[0]} : {case.flows[1]}, weights {case.weights[0]} : {case.weights[1]}"
        scores.append(Score.mean(f"{what}: error of the shares", Interval.of(off), "%", "<=", WEIGHTS_WITHIN_PERCENT))
        scores.append(goodput(what, some, uncoupled(before, case.flows)))
    return scores


def uncoupled(runs: list[dict], flows: tuple[int, int]) -> list[dict]:
    """There are no weights then."""
    return [run for run in runs if not run["coupled"] and run["flows"] == flows]


def goodput(what: str, runs: list[dict], before: list[dict]) -> Score:
    sums = ([run["sum_mbits"] for run in some] for some in (runs, before))
    return Score.ratio(f"{what}: goodput over uncoupled", Interval.ratio(*sums), ">=", GOODPUT_LEAST)


def scored(runs: list[dict]) -> list[Score]:
    scores = []
    equal = [run for run in runs if run["weights"] == (1, 1)]
    for flows in dict.fromkeys(run["flows"] for run in equal):
        with_it = [one for one in equal if one["flows"] == flows and one["coupled"]]
        without = uncoupled(runs, flows)
        what = " : ".join(map(str, flows))
        jains, before = (Interval.of([one["jain"] for one in some]) for some in (with_it, without))
        scores.append(
            Score.mean(f"{what}: Jain's index of the guests", jains, "1", ">=", JAIN_LEAST, uncoupled=before.mean)
        )
        scores.append(goodput(what, with_it, without))
    weighted = [run for run in runs if run["weights"] != (1, 1)]
    off = [100 * abs(one["mbits"][0] / one["mbits"][1] * one["weights"][1] / one["weights"][0] - 1) for one in weighted]
    scores.append(Score.mean("3 : 1: error of the weights", Interval.of(off), "%", "<=", WEIGHTS_WITHIN_PERCENT))
    scores.append(goodput("3 : 1", weighted, uncoupled(runs, weighted[0]["flows"])))
    return scores
