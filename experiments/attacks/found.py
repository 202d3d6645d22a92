# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The worst attacks that `ccc-law attack` has composed, to be done to real kernels."""

import json
from pathlib import Path

from ccc_experiments.lab import LabError
from ccc_experiments.scenario import Flows, Link, Vm

from .attacker import Attack

# The queue before a liar's own link; as experiments/law/src/attack.rs has it.
LINK_PACKETS = 50


def attacks(directory: Path) -> tuple[Attack, ...]:
    """Those of a search; they are in any form."""
    result = directory / "result.json"
    if not result.exists():
        raise LabError(f"{result} is not there: run 'make attack-search' first")
    numbers: dict[str, int] = {}
    found = []
    for one in json.loads(result.read_text())["found"]:
        aim = one["aim"]
        numbers[aim] = numbers.get(aim, 0) + 1
        link = one["link_mbit"] and Link(one["link_mbit"], limit_packets=LINK_PACKETS)
        vm = Vm((Flows(count=one["flows"]),), hostile=True, module_options=one["options"], link=link)
        name = f"found: {aim} {numbers[aim]}"
        found.append(Attack(name, vm, "deaf" not in one["options"], quick=True, honest=one["honest"]))
    return tuple(found)


def expected(directory: Path) -> list[str]:
    """What the model says of them."""
    found = json.loads((directory / "result.json").read_text())["found"]
    return [
        f"  {one['aim']}: {one['harm']['kept']:.3f} kept, {one['harm']['taken']:.2f} of its share, "
        f"{one['harm']['loss_percent']:.2f} % lost, {one['honest']} beside it: {one['options']}"
        for one in found
    ]
