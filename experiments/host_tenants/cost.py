# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an acknowledgement costs: the program's time as the kernel counts it, beside Reno as the
least BPF program that is one, at the same rate in the same minute; and the instructions that it
executes, in an emulated processor, in the mean of what that traffic does."""

import json
import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ccc_experiments.scores import Known, Score, print_scores, write_result

from . import instructions
from .dumbbell import Dumbbell
from .service import Service, bpf, until

SECONDS = 20
FLOWS = 4
MOST_NS = 150
MOST_INSTRUCTIONS = 300
CLOCK = "the kernel reads its clock for two programs more, and counts them, at each ACK"


@dataclass(frozen=True)
class Traffic:
    """Four flows on a path; how many of their ACKs send a message depends on their windows."""

    rate: str
    packets: int
    delay_ms: int
    time: Known
    messages: Known

    @property
    def name(self) -> str:
        return f"{self.rate.removesuffix('mbit')} Mbit/s, {self.delay_ms} ms"


TRAFFIC = (
    Traffic(
        "200mbit", 400, 10,
        Known(CLOCK, 1500),
        Known("at the edge: 14 to 16 % of ACKs send a message, from one run to another", 330),
    ),
    Traffic(
        "10mbit", 83, 100,
        Known(f"{CLOCK}, and each finds the caches cold", 4000),
        Known("windows of 20 packets and less: a third of ACKs sends a message", 480),
    ),
)  # fmt: skip
# What TCP calls for each of them.
EACH_ACK = ("in_ack_event", "cong_avoid", "min_tso_segs")
PROJECT = Path(__file__).resolve().parents[2]
PLAIN = PROJECT / "guest/bpf-ccc/tests/plain_reno.bpf.c"
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


def run(out: Path) -> bool:
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(STATISTICS.write_text, STATISTICS.read_text())
        STATISTICS.write_text("1")
        stack.callback(service.stop)
        service.start()
        register_plain(out, stack)
        until("the program is loaded", lambda: any(service.pins.glob("*/complete")))
        known = {one.get("name"): one["id"] for one in bpf("prog") if one.get("type") == "struct_ops"}
        ours = {call: known[f"ccc_{call}"] for call in EACH_ACK}
        executed = instructions.count(ours, known["plain_cong_avoid"])
        runs = [measured(service, traffic, number) for number, traffic in enumerate(TRAFFIC)]
    beyond = executed["quiet"]["mean"] - executed["reno"]
    scores = [_instructions("an ACK that changes nothing", beyond)]
    for traffic, one in zip(TRAFFIC, runs):
        scores += scored(traffic, one, executed)
    write_result(out / "result.json", [{"instructions": executed}, *runs], scores, {})
    print(json.dumps([executed, *runs], indent=1))
    return print_scores(scores)


def measured(service: Service, traffic: Traffic, number: int) -> dict:
    """The program's time and messages beside BPF Reno's on the same path."""
    name = f"cost{number}"
    with ExitStack() as stack:
        bed = Dumbbell(f"ccc-{name}", rate=traffic.rate, packets=traffic.packets, delay_ms=traffic.delay_ms)
        stack.callback(bed.end)
        bed.make()
        service.add(name, "netns", bed.sender(0), "g")
        stack.callback(service.remove, name)
        service.await_connected(name)
        used = {"ccc": counted(bed, 0, "reno", "ccc_"), "plain": counted(bed, 1, "plain_reno", "plain_")}
        told = service.show(name)["counters"]
    each = {which: per_ack(programs) for which, programs in used.items()}
    acks = used["ccc"]["ccc_in_ack_event"][1]
    return {
        "path": traffic.name,
        "ns_per_ack": each,
        "programs": used,
        "ratio": each["ccc"] / each["plain"],
        "messages_per_ack": told["updated"] / acks,
        # Each flow finds each line that is written once at the most.
        "lines_per_ack_at_most": min(1, told["published"] * FLOWS / acks),
    }


def scored(traffic: Traffic, one: dict, executed: dict) -> list[Score]:
    quiet, changed, message = (executed[name]["mean"] for name in ("quiet", "line changes", "message"))
    each = one["ns_per_ack"]
    messages, lines = one["messages_per_ack"] * (message - quiet), changed - quiet
    silent = quiet - executed["reno"] + messages
    mean = f"{traffic.name}: an ACK in the mean"
    time = f"{traffic.name}: an ACK coupled, beyond one of BPF Reno"
    return [
        Score(time, each["ccc"] - each["plain"], "ns", "<=", MOST_NS, known=traffic.time),
        _instructions(mean, silent + one["lines_per_ack_at_most"] * lines, traffic.messages),
        _instructions(f"{mean}, if all find another line", silent + lines, traffic.messages),
    ]


def _instructions(name: str, value: float, known: Known | None = None) -> Score:
    return Score(f"{name}, beyond one of BPF Reno", value, "instructions", "<=", MOST_INSTRUCTIONS, known=known)


def register_plain(out: Path, stack: ExitStack) -> None:
    target = out / "plain_reno.o"
    flags = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-ffreestanding"]
    compiled = [os.environ.get("CLANG", "clang"), *flags, "-c", str(PLAIN), "-o", str(target)]
    includes = ["-I", str(PROJECT / "guest"), "-I", str(PROJECT / "guest/include"), "-I", "/usr/include"]
    subprocess.run([*compiled, *includes], check=True)
    subprocess.run(["bpftool", "struct_ops", "register", str(target)], check=True, stdout=subprocess.DEVNULL)
    stack.callback(subprocess.run, ["bpftool", "struct_ops", "unregister", "name", "plain_reno"], check=True)


def counted(bed: Dumbbell, sender: int, algorithm: str, prefix: str) -> dict[str, tuple[int, int]]:
    """Time and runs of the programs with this prefix while its flows run."""
    before = times(prefix)
    receiver = bed.receive(SECONDS)
    bed.send(sender, FLOWS, SECONDS - 1, algorithm).wait()
    receiver.wait()
    until("statistics", lambda: times(prefix) != before)
    after = times(prefix)
    return {name: (after[name][0] - ns, after[name][1] - runs) for name, (ns, runs) in before.items()}


def times(prefix: str) -> dict[str, tuple[int, int]]:
    ours = [one for one in bpf("prog") if one.get("name", "").startswith(prefix)]
    return {one["name"]: (one.get("run_time_ns", 0), one.get("run_cnt", 0)) for one in ours}


def per_ack(programs: dict[str, tuple[int, int]]) -> float:
    acks = next(runs for name, (_, runs) in programs.items() if "cong_avoid" in name)
    return sum(ns for ns, _ in programs.values()) / max(acks, 1)
