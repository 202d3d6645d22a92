# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The scripts that set things up: called twice at once, on a busy machine."""

import fcntl
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path) -> Path:
    """A project with our scripts whose experiments need no Python packages."""
    shutil.copytree(SCRIPTS, tmp_path / "scripts", ignore=shutil.ignore_patterns("tests"))
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "requirements.txt").write_text("# none\n")
    return tmp_path


def test_v1_environments_made_at_once_do_not_wipe_each_other(project):
    """Each caller's interpreter has its packages from the moment it is told of it."""
    environment = os.environ | {"CCC_CACHE": str(project / "cache")}
    command = "python=$(scripts/venv) && exec $python -c 'import pip'"
    calls = [
        subprocess.Popen(
            ["sh", "-c", command], cwd=project, env=environment, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    said = [call.communicate()[1] for call in calls]
    assert [call.returncode for call in calls] == [0] * 4, said


@pytest.fixture
def apt(tmp_path) -> Path:
    """The directory of package lists of an apt without sources; the configuration is beside it."""
    lists = tmp_path / "lists"
    (lists / "partial").mkdir(parents=True)
    (tmp_path / "archives" / "partial").mkdir(parents=True)
    (tmp_path / "sources.list").touch()
    (tmp_path / "apt.conf").write_text(
        f'Dir::State::Lists "{lists}";\n'
        f'Dir::Etc::SourceList "{tmp_path}/sources.list";\n'
        'Dir::Etc::SourceParts "-";\n'
        f'Dir::Cache "{tmp_path}";\n'
        'APT::Sandbox::User "root";\n'
    )
    return lists


def test_v1_package_lists_that_another_refreshes_are_waited_for(apt):
    with (apt / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        release = threading.Timer(2, fcntl.lockf, (lock, fcntl.LOCK_UN))
        release.start()
        done = subprocess.run(
            [SCRIPTS / "apt-get", "update"],
            env=os.environ | {"APT_CONFIG": str(apt.with_name("apt.conf"))},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        release.join()
    assert done.returncode == 0, done.stderr


def test_what_apt_cannot_do_is_told_in_its_words(apt):
    done = subprocess.run(
        [SCRIPTS / "apt-get", "install", "no-such-package-of-anybody"],
        env=os.environ | {"APT_CONFIG": str(apt.with_name("apt.conf"))},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Unable to locate package no-such-package-of-anybody" in done.stderr
