# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an acknowledgement costs: the program's time as the kernel counts it, beside Reno as the
least BPF program that is one, at the same rate in the same minute; and the instructions that it
executes, in an emulated processor."""

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

from ccc_experiments.scores import Known, Score, print_scores, write_result

from . import instructions
from .dumbbell import Dumbbell
from .service import Service, bpf, until

SECONDS = 20
MOST_NS = 150
MOST_INSTRUCTIONS = 300
TIMES = Known("the kernel reads its clock for two programs more, and counts them, at each ACK", 1500)
MESSAGES = Known("an ACK that sends a message costs three times one that does not", 360)
LINES = Known("a line that has changed is read and divided, if only to find the same packets", 540)
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
        bed = Dumbbell("ccc-cost", rate="200mbit", packets=400, delay_ms=10)
        stack.callback(bed.end)
        bed.make()
        service.add("a", "netns", bed.sender(0), "g")
        service.await_connected("a")
        used = {"ccc": counted(bed, 0, "reno", "ccc_"), "plain": counted(bed, 1, "plain_reno", "plain_")}
        taken = service.show("a")["counters"]["updated"]
    each = {name: per_ack(programs) for name, programs in used.items()}
    telling = taken / used["ccc"]["ccc_in_ack_event"][1]
    runs = [
        {
            "ns_per_ack": each,
            "programs": used,
            "ratio": each["ccc"] / each["plain"],
            "messages_per_ack": telling,
            "instructions": executed,
        }
    ]
    beyond = {name: executed[name]["median"] - executed["reno"] for name in ("quiet", "line changes")}
    messages = telling * executed["message"]
    scores = [
        Score("an ACK coupled, beyond one of BPF Reno", each["ccc"] - each["plain"], "ns", "<=", MOST_NS, known=TIMES),
        _instructions("an ACK that changes nothing", beyond["quiet"]),
        _instructions("in the mean, with this traffic's messages", beyond["quiet"] + messages, MESSAGES),
        _instructions("the same, if all find another line", beyond["line changes"] + messages, LINES),
    ]
    write_result(out / "result.json", runs, scores, {})
    print(json.dumps(runs[0], indent=1))
    return print_scores(scores)


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
    """Time and runs of the programs with this prefix while four flows run."""
    before = times(prefix)
    receiver = bed.receive(SECONDS)
    bed.send(sender, 4, SECONDS - 1, algorithm).wait()
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
