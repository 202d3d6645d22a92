# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What counts as a planted fault that was found."""

import json

import pytest
from ccc_experiments import law_mutants
from ccc_experiments.lab import LabError


def test_draws_that_both_violate_say_nothing():
    law = set(range(100))
    assert law_mutants.deviations(law, law) == 0
    assert law_mutants.deviations(law, law | {200, 201}) < law_mutants.CERTAIN


def test_many_draws_of_the_mutant_alone_find_it():
    law = set(range(100))
    assert law_mutants.deviations(law, law | set(range(200, 216))) >= law_mutants.CERTAIN


def test_violations_are_read_as_the_search_writes_them():
    result = {"invariants": {"sum": {"cases": [[7, 1.5], [3, 1.1]]}, "window": {"cases": []}}}
    assert law_mutants.violations(result) == {"sum": {3, 7}, "window": set()}


def test_each_mutant_names_a_text_of_the_engine():
    for mutant in json.loads(law_mutants.MUTANTS.read_text()):
        text = (law_mutants.PROJECT / mutant["file"]).read_text()
        assert text.count(mutant["from"]) == 1, mutant["name"]
        assert mutant["from"] != mutant["to"]


def test_a_mutant_whose_text_is_gone_is_refused(tmp_path):
    mutant = {"name": "gone", "file": "host/ccc-core/src/group.rs", "from": "no such text", "to": ""}
    with pytest.raises(LabError, match="expected its text once in host/ccc-core/src/group.rs, got it 0 times"):
        law_mutants.planted(tmp_path, mutant)
