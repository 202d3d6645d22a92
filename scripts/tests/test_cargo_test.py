# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What scripts/cargo-test makes of tests that fail once, and of such that fail again."""

import os
import subprocess
from pathlib import Path

import pytest

CARGO_TEST = Path(__file__).resolve().parents[1] / "cargo-test"

SOUND = "#[test]\nfn sound() {}\n"
ONCE = '#[test]\nfn once() { assert!(std::fs::create_dir("fell").is_err(), "the first time"); }\n'
ALWAYS = "#[test]\nfn always() { panic!(); }\n"
DIES = "#[test]\nfn dies() { std::process::abort(); }\n"


@pytest.mark.parametrize(
    ("tests", "last", "flaky"),
    [
        (SOUND, "1 passed, 0 failed", []),
        (SOUND + ONCE, "2 passed, 0 failed", ["flaky: once"]),
        (SOUND + ALWAYS, "1 passed, 1 failed", []),
        (ONCE + ALWAYS, "0 passed, 1 failed", []),
        (SOUND + DIES, "0 passed, 1 failed", []),
        ("not Rust", "0 passed, 1 failed", []),
    ],
    ids=["none fails", "one fails once", "one fails again", "one of two fails again", "one ends all", "none is built"],
)
def test_who_fails_is_run_once_more(tests, last, flaky, tmp_path):
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "tried"\nedition = "2024"\n[workspace]\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src/lib.rs").write_text(tests)
    environment = os.environ | {"CARGO_TARGET_DIR": str(tmp_path / "target")}
    done = subprocess.run([CARGO_TEST], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    said = done.stdout.splitlines()
    assert said[-1] == last
    assert done.returncode == 0 if last.endswith(" 0 failed") else done.returncode != 0
    assert [line for line in said if line.startswith("flaky")] == flaky
