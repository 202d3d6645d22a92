# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The worst attacks that `ccc-law attack` has composed, to be done to real kernels."""

import json
from pathlib import Path

from ccc_experiments.lab import LabError
from ccc_experiments.scenario import Flows, Vm

from .attacker import Attack


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
        vm = Vm((Flows(count=one["flows"]),), hostile=True, module_options=one["options"])
        found.append(Attack(f"found: {aim} {numbers[aim]}", vm, "deaf" not in one["options"], quick=True))
    return tuple(found)


def expected(directory: Path) -> list[str]:
    """What the model says of them."""
    found = json.loads((directory / "result.json").read_text())["found"]
    return [
        f"  {one['aim']}: {one['harm']['kept']:.3f} kept, {one['harm']['taken']:.2f} of its share, "
        f"{one['harm']['loss_percent']:.2f} % lost: {one['options']}"
        for one in found
    ]
