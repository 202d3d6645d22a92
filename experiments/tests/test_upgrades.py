# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Hosts and guests are upgraded one by one: daemon and module of this tree beside those of the
release before, and one daemon in the place of the other while flows run."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ccc_experiments import lab
from ccc_experiments.measure import jain, measure
from ccc_experiments.runs import Run
from ccc_experiments.scenario import Action, Flows, Request, Scenario, Vm

PROJECT = Path(__file__).resolve().parents[2]
# As the packages' tests have it.
RELEASE_BEFORE = "1a4ab2d"
KILLED_AT_S, BACK_AT_S, END_S = 10, 10.2, 30


@pytest.fixture(scope="session")
def before(parts, tmp_path_factory):
    """The laboratory with daemon and module of the release before."""
    tree = tmp_path_factory.mktemp("before")
    archive = ("git", "-C", str(PROJECT), "archive", RELEASE_BEFORE)
    done = subprocess.run(archive, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"this tree has no history back to {RELEASE_BEFORE}: {done.stderr.decode()}")
    subprocess.run(["tar", "-C", tree, "-x"], input=done.stdout, check=True)
    # Kept for the next time, and apart from this tree's, whose names are the same.
    target = lab.printed("scripts/cache") / f"target-{RELEASE_BEFORE}"
    build = ("cargo", "build", "--quiet", "--release", "--locked", "-p", "ccc-vhost")
    subprocess.run(build, cwd=tree / "host", env=os.environ | {"CARGO_TARGET_DIR": str(target)}, check=True)
    module = subprocess.run([tree / "scripts/build", "module"], check=True, stdout=subprocess.PIPE, text=True)
    return replace(parts, daemon=target / "release/ccc-vhost", module=Path(module.stdout.strip()) / "ccc.ko")


def one_then_other(first: Path, second: Path, program: Path) -> Path:
    """A program that is one daemon at its first start, and the other from then on."""
    program.write_text(
        f'#!/bin/sh\nif mkdir "$0.started" 2>/dev/null; then exec {first} "$@"; fi\nexec {second} "$@"\n'
    )
    program.chmod(0o755)
    return program


def look(at_s: float) -> Action:
    return Action(at_s, control=Request("GET", "/v1/vms/vm2"))


@pytest.mark.parametrize("guests", ["before", "now"])
@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "downgrade"])
def test_a_daemon_takes_over_flows_whichever_is_older(guests, upgrade, before, parts, cpu, tmp_path):
    daemons = (before.daemon, parts.daemon) if upgrade else (parts.daemon, before.daemon)
    daemon = one_then_other(*daemons, tmp_path / "daemon")
    module = (before if guests == "before" else parts).module
    scenario = Scenario(
        "upgrade", (Vm((Flows(),)), Vm((Flows(count=4),))), 1, END_S, coupled=True, relay=True, sample_ms=50,
        actions=(
            look(KILLED_AT_S - 1), Action(KILLED_AT_S, kill_daemon=True),
            Action(BACK_AT_S, start_daemon=True), look(BACK_AT_S + 1),
        ),
    )  # fmt: skip
    raw = lab.run(scenario, replace(parts, daemon=daemon, module=module), tmp_path / "raw", cpu)
    answers = [entry.get("answer") for entry in json.loads((raw / "actions.json").read_text())]
    coupled = [answer["coupled_flows"] for answer in answers if answer and "coupled_flows" in answer]
    assert coupled == [4, 4], answers
    run = Run(measure(scenario, raw), raw)
    for start_s, end_s in ((4, KILLED_AT_S), (BACK_AT_S + 1, END_S)):
        rates = [run.rate_mbit(vm, start_s, end_s) for vm in ("vm1", "vm2")]
        assert jain(rates) >= 0.98, (start_s, rates)
    seconds = range(4, END_S)
    least = min(run.rate_mbit("vm1", at, at + 1) + run.rate_mbit("vm2", at, at + 1) for at in seconds)
    assert least >= 0.7 * scenario.bottleneck.rate_mbit, least
