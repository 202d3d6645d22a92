# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Fixtures of the packages' tests: `make test-packages`."""

import os
from pathlib import Path

import pytest
from testbed import artefacts
from testbed.host import HERE
from versions import NEW, OLD, RELEASE_BEFORE

pytest_plugins = ["testbed.fixtures"]


@pytest.fixture
def suite() -> str:
    return "test-packages"


@pytest.fixture(scope="session")
def packages(tmp_path_factory) -> Path:
    """A directory for each of two versions; PACKAGES=DIR takes those there."""
    if made := os.environ.get("PACKAGES"):
        return Path(made)
    directory = tmp_path_factory.mktemp("packages")
    before = tmp_path_factory.mktemp("before")
    archive = HERE.attempt("git", "-C", artefacts.PROJECT, "archive", "-o", before / "tar", RELEASE_BEFORE)
    if not archive.ok:
        pytest.skip(f"this tree has no history back to {RELEASE_BEFORE}: {archive.stderr}")
    HERE.run("tar", "-C", before, "-xf", before / "tar")
    # To cargo a crate of another release is the same crate: this tree's would be taken for built.
    target = Path(HERE.run(artefacts.PROJECT / "scripts/cache").strip()) / f"packages-{RELEASE_BEFORE}"
    target.mkdir(exist_ok=True)
    (before / "scripts/cache").write_text(f"#!/bin/sh\necho '{target}'\n")
    for version, tree in ((OLD, before), (NEW, artefacts.PROJECT)):
        environment = (f"OUT={directory / version}", f"VERSION={version}")
        HERE.run("env", *environment, tree / "scripts/packages")
    return directory
