# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The kit of attacks, as far as it needs no kernel."""

import json
import re

import pytest
from attacks import found, known
from attacks.attacker import ATTACKS
from attacks.figure import WHAT, Kit
from ccc_experiments import lab
from ccc_experiments.figure import Effort

HOSTILE = lab.PROJECT / "guest" / "tests" / "hostile"
LAW = lab.PROJECT / "experiments" / "law" / "src" / "lies.rs"
# What the model has not: it has no device.
OF_THE_DEVICE = {"reset", "release"}


def parameters() -> set[str]:
    texts = (path.read_text() for path in HOSTILE.glob("*.c"))
    return {name for text in texts for name in re.findall(r"module_param\(lie_(\w+),", text)}


def test_attacks_tell_lies_that_the_hostile_module_knows():
    told = {lie for attack in ATTACKS for lie in re.findall(r"lie_(\w+)=", attack.vm.module_options)}
    assert told <= parameters()
    assert not [attack.name for attack in ATTACKS if attack.vm.module_options and not attack.vm.hostile]


def test_the_model_knows_the_lies_of_the_hostile_module():
    modelled = set(re.findall(r'\("(\w+)", &mut self\.', LAW.read_text()))
    assert modelled == parameters() - OF_THE_DEVICE


def test_an_attacker_stands_where_an_honest_vm_stood():
    kit = Kit(ATTACKS)
    points = list(kit.points(Effort(quick=True, seeds=(101,))))
    attacked = [point.scenario for point in points if not point.control]
    honest = [point.scenario for point in points if point.control]
    assert len(attacked) == len(honest) == len([attack for attack in ATTACKS if attack.quick])
    for one, other in zip(attacked, honest, strict=True):
        assert set(other.vms) == {other.vms[0]} and len(other.vms) in (3, 4)
        assert one.vms[:-1] == other.vms[:-1] and one.vms[-1] != other.vms[-1]


def test_attacks_are_named_once_and_what_is_known_is_of_one():
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    for measured in known.MEASURED.values():
        assert set(measured) <= set(names)
        assert all(len(values) == len(WHAT) for values in measured.values())


def test_a_floor_is_short_of_all_that_an_attacker_can_have():
    for enforce, measured in known.MEASURED.items():
        for attack, values in measured.items():
            for what, value in zip(WHAT, values):
                if value is not None and what in known.ALL:
                    assert value < known.floor(what, value) < known.ALL[what], (enforce, attack, what)


def test_what_the_daemon_counts_of_an_attack_is_there():
    conduct = lab.PROJECT / "host" / "ccc-vhost" / "src" / "admin" / "reply.rs"
    there = re.findall(r"pub (\w+): (?:u64|u32|usize),", conduct.read_text().split("struct ConductView")[1])
    assert {attack.counter for attack in ATTACKS if attack.counter} <= set(there)


def test_what_a_search_found_is_done_to_real_kernels(tmp_path):
    with pytest.raises(lab.LabError, match="make attack-search"):
        found.attacks(tmp_path)
    harm = {"kept": 0.1, "taken": 3, "loss_percent": 0}
    one = {"aim": "share", "flows": 2, "harm": harm, "honest": 2, "link_mbit": None}
    both = [one | {"options": "lie_loss=1"}, one | {"options": "lie_deaf=1", "link_mbit": 4}]
    (tmp_path / "result.json").write_text(json.dumps({"found": both}))
    first, second = found.attacks(tmp_path)
    assert (first.name, second.name) == ("found: share 1", "found: share 2")
    assert (first.obeys, second.obeys) == (True, False)
    assert first.vm.hostile and first.vm.flows[0].count == 2
    assert first.honest == 2 and first.vm.link is None and second.vm.link.rate_mbit == 4
