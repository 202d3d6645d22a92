# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What .ci/commits makes of messages of commits."""

import shutil
import subprocess
from pathlib import Path

import pytest

COMMITS = Path(__file__).resolve().parents[2] / ".ci" / "commits"
SIGNED = "Signed-off-by: Somebody <somebody@example.org>"
FAULTS = {
    "no area": ("Mend it", "", "`area: imperative`"),
    "a sentence": ("area: Mends it", "", "`area: imperative`"),
    "a long subject": (f"area: mend {'x' * 50}", "", "has 61 characters"),
    "a long line": ("area: mend it", "x" * 76 + "\n\n", "line 3 has 76 characters"),
}


def git(repository: Path, *words: str) -> str:
    ours = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    return subprocess.run(
        ["git", "-C", repository, *ours, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(COMMITS, tmp_path / ".ci")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Anything goes before the base")
    return tmp_path


def checked(repository: Path, message: str, base: str = "") -> subprocess.CompletedProcess:
    base = base or git(repository, "rev-parse", "HEAD")
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return subprocess.run([repository / ".ci" / "commits", base], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("subject", "body", "told"), FAULTS.values(), ids=FAULTS)
def test_faults_are_told(repository, subject, body, told):
    done = checked(repository, f"{subject}\n\n{body}{SIGNED}")
    assert done.returncode == 1
    assert told in done.stdout


def test_who_does_not_sign_is_told(repository):
    assert "git commit -s" in checked(repository, "area: mend it").stdout


def test_what_is_right_passes(repository):
    done = checked(repository, f"area, other: mend it\n\nWhy.\n\n{SIGNED}")
    assert (done.returncode, done.stdout) == (0, "commits: 1 checked, 0 faults\n")


def test_a_clone_that_does_not_reach_back_is_not_judged(repository):
    done = checked(repository, "Mend it", base="1" * 40)
    assert done.returncode == 0
    assert "not checked" in done.stdout
