# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What scripts/suites makes of what suites say of themselves."""

import subprocess
from pathlib import Path

import pytest

SUITES = Path(__file__).resolve().parents[1] / "suites"

SAID = {
    "cargo, of several programs": (
        "test result: ok. 3 passed; 0 failed; 0 ignored\ntest result: FAILED. 1 passed; 2 failed; 0 ignored",
        "4 passed, 2 failed",
    ),
    "pytest": ("=== 2 failed, 5 passed, 1 error in 3.21s ===", "5 passed, 3 failed"),
    "pytest -q": ("1 failed, 2 passed in 0.10s", "2 passed, 1 failed"),
    "a script of ours, and what it ran": ("== 1 failed, 3 passed in 1s ==\n7 passed, 1 failed", "7 passed, 1 failed"),
    "an experiment": ("  ok        Jain's index: 1\n  FAILED    share: 9\n  known     loss: 2", "1 passed, 1 failed"),
    "nothing": ("", "0 passed, 1 failed"),
}


def run(script: str, tmp_path: Path, stream: str = "") -> subprocess.CompletedProcess:
    text = f"logs={tmp_path}; stream={stream}; . {SUITES}\n{script}\ntotal"
    return subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("said", "counted"), SAID.values(), ids=SAID)
@pytest.mark.parametrize("stream", ["", "1"])
def test_v1_the_count_is_whole(said, counted, stream, tmp_path):
    (tmp_path / "said").write_text(said + "\n")
    failed = not counted.endswith(" 0 failed")
    done = run(f"suite one sh -c 'cat {tmp_path}/said; exit {int(failed)}'", tmp_path, stream)
    assert done.stdout.splitlines()[-1] == counted
    assert done.returncode == failed


def test_a_suite_that_dies_has_failed(tmp_path):
    done = run("suite one sh -c 'echo 4 passed, 0 failed; exit 3'; check two true; check three false", tmp_path)
    assert done.stdout.splitlines()[-1] == "5 passed, 2 failed"
