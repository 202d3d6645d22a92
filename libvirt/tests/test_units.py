# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What is installed: systemd's units, as far as systemd judges them without being
started, programs, manual pages, completions."""

import re
from pathlib import Path

import pytest
from testbed.host import HERE

PROJECT = Path(__file__).resolve().parents[2]
UNITS = sorted((PROJECT / "libvirt/systemd").glob("*.service"))
# Of ten, times ten: what systemd calls "OK" ends at 50.
MOST_EXPOSURE = 20


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_service_may_do_little_else(unit):
    """A threshold that is passed makes systemd-analyze fail."""
    HERE.run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", unit)


def test_what_is_installed_is_whole(tmp_path):
    for _ in range(2):
        HERE.run("env", f"DESTDIR={tmp_path}", "PREFIX=/opt/ccc", PROJECT / "scripts/install")
        (tmp_path / "etc/ccc/ccc.toml").write_text("# the operator's\n")
    assert (tmp_path / "etc/ccc/ccc.toml").read_text() == "# the operator's\n"
    installed = tmp_path / "opt/ccc"
    for unit in (installed / "lib/systemd/system").iterdir():
        programs = re.findall(r"^Exec\w+=(\S+)", unit.read_text(), re.MULTILINE)
        assert programs and all((tmp_path / program[1:]).is_file() for program in programs), unit
    for page in [*installed.glob("share/man/man1/*"), installed / "share/man/man8/ccc-vhost.8"]:
        assert HERE.run("man", "--warnings", "--encoding=utf8", "--local-file", page).strip()
    assert (installed / "share/doc/ccc/docs/operator.md").is_file()
    HERE.run("bash", "-n", installed / "share/bash-completion/completions/cccctl.bash")
    assert HERE.run(installed / "bin/cccctl", "--version").startswith("cccctl ")
