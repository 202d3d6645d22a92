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
DOCUMENTED = "/// ```\n/// panic!();\n/// ```\npub fn documented() {}\n"
LEAVES = """#[test]
fn leaves() { std::process::Command::new("sleep").arg("600").process_group(0).spawn().unwrap(); }
use std::os::unix::process::CommandExt;
"""


@pytest.mark.parametrize(
    ("library", "program", "last", "flaky"),
    [
        (SOUND, "", "1 passed, 0 failed", []),
        (SOUND + ONCE, "", "2 passed, 0 failed", ["flaky: once"]),
        (SOUND + ALWAYS, "", "1 passed, 1 failed", []),
        (ONCE + ALWAYS, "", "0 passed, 2 failed", []),
        (SOUND + DIES, "", "0 passed, 1 failed", []),
        ("not Rust", "", "0 passed, 1 failed", []),
        (SOUND + ONCE, ALWAYS, "2 passed, 1 failed", ["flaky: once"]),
        (ONCE, DIES, "0 passed, 1 failed", []),
        (ONCE + DOCUMENTED, ONCE.replace("assert!(", "assert!(true || "), "2 passed, 1 failed", ["flaky: once"]),
    ],
    ids=[
        "none fails",
        "one fails once",
        "one fails again",
        "one of two fails again",
        "one ends all",
        "none is built",
        "one of another program fails again",
        "another program dies",
        "one in the documentation fails again",
    ],
)
def test_who_fails_is_run_once_more(library, program, last, flaky, tmp_path):
    done = tried(library, program, tmp_path)
    said = done.stdout.splitlines()
    assert said[-1] == last
    assert done.returncode == 0 if last.endswith(" 0 failed") else done.returncode != 0
    assert [line for line in said if line.startswith("flaky")] == flaky


def test_nobody_waits_for_what_a_test_leaves(tmp_path):
    assert tried(LEAVES, "", tmp_path).stdout.splitlines()[-1] == "1 passed, 0 failed"
    subprocess.run(["pkill", "-f", "^sleep 600$"], check=True)


def tried(library: str, program: str, where: Path) -> subprocess.CompletedProcess:
    (where / "Cargo.toml").write_text('[package]\nname = "tried"\nedition = "2024"\n[workspace]\n')
    for name, text in (("src/lib.rs", library), ("tests/program.rs", program)):
        (where / name).parent.mkdir()
        (where / name).write_text(text)
    environment = os.environ | {"CARGO_TARGET_DIR": str(where / "target")}
    # A pipe would be held open by what is left.
    with (where / "said").open("w+") as log:
        done = subprocess.run([CARGO_TEST], cwd=where, env=environment, stdout=log, timeout=300)
        log.seek(0)
        done.stdout = log.read()
    return done
