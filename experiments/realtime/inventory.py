# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The fairness test on machines of an inventory, scored and drawn as every experiment is:
python -m realtime.inventory DIR, which has

  plan.json                   the VMs, each with `name`, `flows`, `weight`; `duration_s`, `rate_mbit`
  uncoupled/, coupled/        vmN.json, what iperf3 -J has received; queue.txt, if the bottleneck was
                              looked at: what `sample-queue` printed

The role `experiment` of the Ansible collection leaves it so.
"""

import argparse
import json
import sys
from pathlib import Path

from ccc_experiments import fairness, table
from ccc_experiments.interval import Interval
from ccc_experiments.measure import Measured, goodputs, measure
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Bottleneck, Flows, Scenario, Vm
from ccc_experiments.scores import Score, print_scores, write_result
from ccc_experiments.setups import flow_count
from ccc_experiments.shares import ShareError

from . import figure, queue_samples
from .traffic import write_goodput

KINDS = ("uncoupled", "coupled")
# Of no meaning where nobody has looked at the bottleneck's queue.
_OF_QUEUE = ("queue_ms_mean", "queue_ms_p95", "sent_packets", "dropped_packets")

# Fewer flows fill a queue and lose as one does.
MANY_FLOWS = 4


class BadRun(Exception):
    """What is there is not what a run leaves."""


def _read(path: Path) -> dict:
    try:
        document: dict = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadRun(f"invalid {path}: expected a JSON document, got none: {error}") from None
    if "error" in document:
        raise BadRun(f"invalid {path}: expected a whole run, got iperf3's error: {document['error']}")
    return document


def scenario(plan: dict, kind: str) -> Scenario:
    """The run as the laboratory would be asked for it."""
    vms = tuple(Vm((Flows(count=vm["flows"]),), weight=vm["weight"]) for vm in plan["vms"])
    bottleneck = Bottleneck(rate_mbit=plan.get("rate_mbit") or 0.0)
    return Scenario(kind, vms, 0, plan["duration_s"], coupled=kind == "coupled", bottleneck=bottleneck)


def run_of(directory: Path, plan: dict, kind: str) -> tuple[Run, bool]:
    """One of the two runs, and whether its bottleneck was looked at."""
    raw, asked = directory / kind, scenario(plan, kind)
    reports = {f"vm{n}": _read(raw / f"vm{n}.json") for n, _ in enumerate(plan["vms"], 1)}
    write_goodput(reports, raw)
    samples = raw / "queue.txt"
    rows = queue_samples.read(samples.read_text()) if samples.exists() else []
    if plan.get("queue_host") and not rows:
        raise BadRun(f"invalid {samples}: expected samples of the queue at {plan['queue_host']}, got none")
    if rows and plan.get("rate_mbit"):
        queue_samples.write(rows, raw)
        return Run(measure(asked, raw), raw), True
    error = ShareError.of(raw, [vm.weight for vm in asked.vms], asked.duration_s)
    return Run(Measured(asked, goodputs(asked, raw), 0.0, 0.0, 0, 0, error), raw), False


def scores(uncoupled: Measured, coupled: Measured, looked: bool) -> list[Score]:
    """The bounds of `make demo-qemu` for shares; and that nobody has them at the path's cost."""
    if min(uncoupled.vm_goodput_mbit) <= 0:
        raise BadRun("invalid run uncoupled: expected something of each virtual machine, got nothing of one")
    goodput = Interval(coupled.sum_mbit / uncoupled.sum_mbit)
    result = [*_shares(uncoupled, coupled), Score.ratio("coupled over uncoupled goodput", goodput, ">=", 0.95)]
    if looked and sum(flow_count(vm) for vm in coupled.scenario.vms) >= MANY_FLOWS:
        result += _of_queue(uncoupled, coupled)
    return result


def _of_queue(uncoupled: Measured, coupled: Measured) -> list[Score]:
    if uncoupled.queue_ms_mean <= 0:
        raise BadRun("invalid run uncoupled: expected packets in the bottleneck's queue, got none at any time; "
                     "name another interface")  # fmt: skip
    queue = Interval(coupled.queue_ms_mean / uncoupled.queue_ms_mean)
    result = [Score.ratio("coupled over uncoupled queue", queue, "<", 1)]
    # A queue that marks may lose nothing.
    if uncoupled.dropped_packets > 0:
        drops = Interval(coupled.dropped_packets / uncoupled.dropped_packets)
        result.append(Score.ratio("coupled over uncoupled drops", drops, "<", 1))
    return result


def _shares(uncoupled: Measured, coupled: Measured) -> list[Score]:
    guard = fairness.share_by_themselves(coupled.scenario)
    if len({vm.weight for vm in coupled.scenario.vms}) == 1:
        whole = Score("Jain's index coupled", coupled.jain, "1", ">=", 0.98, uncoupled=uncoupled.jain, guard=guard)
    else:
        error, theirs = fairness.share_error(coupled), fairness.share_error(uncoupled)
        whole = Score("worst error of weighted share", error, "%", "<=", 8, uncoupled=theirs, guard=guard)
    if coupled.share_error is None or uncoupled.share_error is None:
        return [whole]
    # Who takes turns has a fair share of the whole time.
    mean, theirs = coupled.share_error.mean, uncoupled.share_error.mean
    return [whole, Score("share error in 1 s, mean", mean, "%", "<=", 8, uncoupled=theirs, guard=guard)]


def score(directory: Path) -> bool:
    """Writes `result.json` and the figure; whether every score holds."""
    plan = _read(directory / "plan.json")
    both = [run_of(directory, plan, kind) for kind in KINDS]
    runs, looked = [run for run, _ in both], all(seen for _, seen in both)
    table.print_table([run.measured for run in runs])
    if not looked:
        print("nobody looked at the bottleneck's queue: queue and drops are not known")
    documents = [run.measured.document() for run in runs]
    if not looked:
        documents = [{key: value for key, value in one.items() if key not in _OF_QUEUE} for one in documents]
    uncoupled, coupled = (run.measured for run in runs)
    judged = scores(uncoupled, coupled, looked)
    about = {"experiment": "inventory", "duration_s": plan["duration_s"], "vms": [vm["name"] for vm in plan["vms"]]}
    write_result(directory / "result.json", documents, judged, about)
    figure.by_case({"iperf3": runs}, directory / "fairness")
    print()
    holds = print_scores(judged)
    print(f"\n{directory}/result.json, {directory}/fairness.svg")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(prog="realtime.inventory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    try:
        return 0 if score(parser.parse_args().directory) else 1
    except BadRun as bad:
        print(f"inventory: {bad}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
