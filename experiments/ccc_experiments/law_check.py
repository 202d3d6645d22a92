# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The law fuzzer's model beside the laboratory, on ten conditions.

What both simulate is the same scenario; what may differ is bounded here.
"""

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from . import lab, tables
from .measure import Measured, measure
from .scenario import Bottleneck, Flows, RateChange, Scenario, Vm
from .scores import Known, Score, print_scores, write_result

SEED = 101
KINDS = ("uncoupled", "coupled")
# Of the laboratory's: the goodput of all.  Both have the same headers and no other losses.
SUM = 0.03
# What a VM has, as a part of what all have.  Who loses is chance, and more so uncoupled.
PARTS = {"uncoupled": 0.10, "coupled": 0.03}
# Mean window of the aggregate over the second half, of the laboratory's.
WINDOWS = {"uncoupled": 0.15, "coupled": 0.15}
# Drops, as a ratio, with so many more on either side: small numbers say little.
DROPS = {"uncoupled": 1.6, "coupled": 2.0}
DROPS_MORE = 15
# Whether the group takes the path for its own is decided at an edge here: on the model's
# side of it fewer reductions are halvings (seeds 101 and 1 to 3: 3.4 to 6.3 %).
KNOWN = {"short queue, coupled: sum of goodput off": Known("reductions at an edge of the law", 0.07)}


def _vms(
    *counts: int, delays_ms: tuple[float, ...] = (), weights: tuple[float, ...] = (), inner: str = ""
) -> tuple[Vm, ...]:
    return tuple(
        Vm(
            (Flows(count=count),),
            weight=weights[i] if weights else 1.0,
            delay_ms=delays_ms[i] if delays_ms else None,
            module_options=inner,
        )
        for i, count in enumerate(counts)
    )


def _path(rate_mbit: float, delay_ms: float, limit_packets: int, **more) -> Bottleneck:
    return Bottleneck(rate_mbit=rate_mbit, delay_ms=delay_ms, limit_packets=limit_packets, **more)


def conditions() -> dict[str, Scenario]:
    """The ten, by name."""
    papers = Bottleneck()
    bulk, joiner = Vm((Flows(),)), Vm((Flows(start_s=20.0, stop_s=40.0),))
    near_far = (replace(bulk, delay_ms=10.0), replace(joiner, delay_ms=200.0))
    shorts = tuple(Flows(start_s=5.0 + 2 * i, bytes=200_000) for i in range(20))
    halved = _path(10, 100, 83, rate_changes=(RateChange(at_s=30.0, rate_mbit=5.0),))
    cases = {
        "1 to 4": (papers, _vms(1, 4)),
        "1 to 16": (papers, _vms(1, 16)),
        "weights 5 to 2 to 1": (papers, _vms(2, 2, 2, weights=(5.0, 2.0, 1.0))),
        "cubic 1 to 4": (papers, _vms(1, 4, inner="inner=cubic")),
        "short queue": (_path(20, 40, 20), _vms(1, 6)),
        "near and far": (_path(10, 100, 83), _vms(1, 1, delays_ms=(20.0, 200.0))),
        "far joins near": (_path(10, 10, 20), near_far),
        "limited": (papers, (bulk, Vm((Flows(rate_kbit=2000.0),)))),
        "short flows": (papers, (bulk, Vm(shorts))),
        "rate halved": (halved, _vms(1, 2)),
    }
    return {name: Scenario(name, vms, SEED, 60.0, bottleneck=path) for name, (path, vms) in cases.items()}


def for_laboratory(scenario: Scenario, kind: str) -> Scenario:
    """The scenario as the laboratory runs it coupled, or with what is inside `ccc` alone."""
    name = f"{scenario.name.replace(' ', '-')}-{kind}"
    if kind == "coupled":
        return replace(scenario, name=name, coupled=True)
    return replace(scenario, name=name, vms=tuple(_alone(vm) for vm in scenario.vms))


def _alone(vm: Vm) -> Vm:
    """With the algorithm that is inside its `ccc`."""
    inner = "cubic" if "cubic" in vm.module_options else "reno"
    return replace(vm, congestion_control=inner, module_options="")


@dataclass(frozen=True)
class Numbers:
    """What is compared."""

    sum_mbit: float
    parts: tuple[float, ...]
    window_packets: float
    dropped_packets: int

    def document(self) -> dict:
        return {
            "sum_mbit": round(self.sum_mbit, 3),
            "parts": [round(part, 4) for part in self.parts],
            "window_packets": round(self.window_packets, 1),
            "dropped_packets": self.dropped_packets,
        }


def laboratory(scenario: Scenario, raw: Path) -> Numbers:
    measured: Measured = measure(scenario, raw)
    flows = tables.read(raw, "flows")
    half = flows["time_s"] >= scenario.duration_s / 2
    samples = np.unique(flows["time_s"][half])
    window = flows["cwnd_packets"][half].sum() / max(len(samples), 1)
    parts = tuple(mbit / measured.sum_mbit for mbit in measured.vm_goodput_mbit)
    return Numbers(measured.sum_mbit, parts, float(window), measured.dropped_packets)


def model(run: dict, duration_s: float) -> Numbers:
    totals = [sum(vm) for vm in run["vm_bytes"]]
    whole = sum(totals)
    parts = tuple(total / whole for total in totals)
    dropped = sum(run["dropped_segments"])
    return Numbers(whole * 8 / 1e6 / duration_s, parts, sum(run["flow_windows"]), dropped)


def run_model(scenario: Scenario, parts: lab.Parts, out: Path) -> dict[str, Numbers]:
    """Both kinds, by the model."""
    request = out / f"{scenario.name.replace(' ', '-')}.json"
    request.write_text(json.dumps(lab.document(replace(scenario, coupled=True), parts)) + "\n")
    program = parts.lab.with_name("ccc-law")
    done = subprocess.run([program, "run", request, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise lab.LabError(f"{scenario.name}: {program} failed with status {done.returncode}")
    runs = json.loads(done.stdout)
    return {kind: model(runs[kind], scenario.duration_s) for kind in KINDS}


def scores(name: str, kind: str, theirs: Numbers, ours: Numbers) -> list[Score]:
    """How far the model is from the laboratory."""
    apart = max(abs(a - b) for a, b in zip(theirs.parts, ours.parts))
    more, fewer = sorted((theirs.dropped_packets, ours.dropped_packets), reverse=True)
    bounds = {
        "sum of goodput off": (abs(ours.sum_mbit / theirs.sum_mbit - 1), SUM),
        "a VM's part off": (apart, PARTS[kind]),
        "windows off": (abs(ours.window_packets / theirs.window_packets - 1), WINDOWS[kind]),
        "drops, larger of smaller": ((more - DROPS_MORE) / max(fewer, 1), DROPS[kind]),
    }
    named = {f"{name}, {kind}: {what}": value for what, value in bounds.items()}
    return [Score(what, value, "", "<=", bound, known=KNOWN.get(what)) for what, (value, bound) in named.items()]


def run(out: Path) -> bool:
    """`make law-check`."""
    parts = lab.Parts.built()
    asked = [(s, kind) for s in conditions().values() for kind in KINDS]
    scenarios = [for_laboratory(s, kind) for s, kind in asked]
    raw = lab.run_all(scenarios, parts, out / "raw")
    models = {name: run_model(s, parts, out) for name, s in conditions().items()}
    every: list[Score] = []
    document = []
    for (scenario, kind), laboratory_s, directory in zip(asked, scenarios, raw):
        theirs, ours = laboratory(laboratory_s, directory), models[scenario.name][kind]
        every += scores(scenario.name, kind, theirs, ours)
        both = {"laboratory": theirs.document(), "model": ours.document()}
        document.append({"condition": scenario.name, "kind": kind} | both)
        print(f"{scenario.name}, {kind}:", *(f"\n  {who:11}{numbers}" for who, numbers in both.items()))
    write_result(out / "result.json", document, every, {"experiment": "law-check", "seed": SEED})
    return print_scores(every)
