# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What is installed says of which commit it is."""

import os
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# Tells what would be built, and builds nothing.
CARGO = "sh -c 'echo version $$CCC_VERSION; exit 1'"


def built(tmp_path: Path, **environment: str) -> str:
    """The version that `make install` would build."""
    command = ("make", "-C", PROJECT, "-o", "deps", "install", f"CARGO={CARGO}", f"DESTDIR={tmp_path}")
    outside = {name: value for name, value in os.environ.items() if name != "CCC_VERSION"}
    done = subprocess.run(command, env=outside | environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("version")]
    return said.removeprefix("version").strip()


def test_make_install_says_of_which_commit(tmp_path):
    said = subprocess.run((PROJECT / "scripts/version",), capture_output=True, text=True, check=True).stdout.strip()
    changelog = (PROJECT / "packaging/debian/changelog").read_text()
    assert said.startswith(changelog.split("(", 1)[1].split(")", 1)[0])
    assert built(tmp_path) == said
    assert built(tmp_path, CCC_VERSION="7") == "7"
