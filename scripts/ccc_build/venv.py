# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The Python environment of the experiments and tests."""

from pathlib import Path

from ccc_build.artefact import PROJECT, Artefact, cache, digest
from ccc_build.process import run, say

REQUIREMENTS = PROJECT / "experiments" / "requirements.txt"


def venv() -> Artefact:
    """Python with the packages of experiments/requirements.txt: its interpreter."""

    def build(directory: Path) -> None:
        say("venv: installing Python packages")
        log = Path(f"{directory}.log")
        run("python3", "-m", "venv", directory, log=log)
        pip = directory / "bin" / "pip"
        run(pip, "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS, log=log)

    return Artefact(cache() / f"venv-{digest(REQUIREMENTS)}", build, product="bin/python")
