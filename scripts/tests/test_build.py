# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Artefacts: built once for the same inputs, whole or not at all, by whoever comes first."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SCRIPTS))

from ccc_build import command, debian, kernels, module, process, qemu, venv  # noqa: E402
from ccc_build.artefact import Artefact, digest  # noqa: E402
from ccc_build.process import Failed  # noqa: E402


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CCC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(tmp_path: Path, content: str = "made", **rest) -> tuple[Artefact, list[Path]]:
    """An artefact with a file of this content, and where it was built, each time."""
    built: list[Path] = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / "file").write_text(content)

    return Artefact(tmp_path / f"fake-{digest(content)}", build, **rest), built


def test_the_key_changes_with_each_input(tmp_path):
    source = tmp_path / "source"
    source.write_text("one")
    first = digest("version 1", source)
    assert first == digest("version 1", source)
    assert first != digest("version 2", source)
    source.write_text("two")
    assert first != digest("version 1", source)


def test_it_is_built_once_and_found_again(tmp_path):
    artefact, built = make(tmp_path, product="file")
    assert artefact.get() == artefact.get() == artefact.path / "file"
    assert built == [artefact.path]


def test_two_at_once_build_once(tmp_path):
    """Each from a process of its own, as `make -j` does."""
    script = (
        "import sys, time; from pathlib import Path; from ccc_build.artefact import Artefact\n"
        "def build(path):\n"
        "    print('building', flush=True); time.sleep(0.5); (path / 'file').touch()\n"
        f"assert (Artefact(Path({str(tmp_path / 'fake')!r}), build, product='file').get()).exists()"
    )
    calls = [
        subprocess.Popen([sys.executable, "-c", script], cwd=SCRIPTS, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [call.communicate()[0] for call in calls]
    assert [call.returncode for call in calls] == [0] * 4
    assert "".join(said) == "building\n"


def failing(path: Path, **rest) -> Artefact:
    """Fails the first time, with a file left behind; says what it found there the second time."""

    def build(directory: Path) -> None:
        if not (path.parent / "tried").exists():
            (path.parent / "tried").touch()
            (directory / "half").touch()
            raise Failed("no space")
        (directory / "found").write_text(str((directory / "half").exists()))

    return Artefact(path, build, product="found", **rest)


def test_a_failed_build_leaves_nothing(tmp_path):
    artefact = failing(tmp_path / "fake")
    with pytest.raises(Failed):
        artefact.get()
    assert not artefact.path.exists()
    assert artefact.get().read_text() == "False"


def test_an_interrupted_build_goes_on(tmp_path):
    artefact = failing(tmp_path / "fake", resumes=True)
    with pytest.raises(Failed):
        artefact.get()
    assert artefact.get().read_text() == "True"


def test_what_was_killed_half_way_is_not_taken_for_whole(tmp_path):
    artefact, built = make(tmp_path)
    artefact.path.mkdir(parents=True)
    (artefact.path / "half").touch()
    artefact.get()
    assert built and not (artefact.path / "half").exists()


def test_a_program_that_fails_is_told_with_its_errors(tmp_path):
    with pytest.raises(Failed, match="(?s)status 3.*a.c:1: error: no such thing.*log: ") as failed:
        process.run("sh", "-c", "seq 100; echo 'a.c:1: error: no such thing'; seq 100; exit 3", log=tmp_path / "log")
    assert "\n57\n" not in str(failed.value)


def test_progress_is_told(tmp_path, capsys):
    process.run("seq", "500", log=tmp_path / "log", progress="kernel", every=200)
    assert capsys.readouterr().err == "kernel: 200 steps\nkernel: 400 steps\n"


def test_missing_packages_are_told_to_who_is_not_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failed, match="missing: no-such-package; run as root: apt-get install no-such-package"):
        debian.require("dpkg", "no-such-package")


def test_v1_package_lists_that_another_refreshes_are_waited_for(own_cache, monkeypatch):
    monkeypatch.setattr(debian, "mirror", lambda: f"file:{own_cache}")
    monkeypatch.setattr(debian, "PAUSE_S", 0.1)
    suite = debian.Suite("none")
    lists = suite.directory / "lists"
    (lists / "partial").mkdir(parents=True)
    suite.sources_list.touch()
    with (lists / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        release = threading.Timer(1, fcntl.lockf, (lock, fcntl.LOCK_UN))
        release.start()
        # Locks of this process do not keep itself out: apt-get is another.
        debian.apt_get(*suite.options(), "update")
        release.join()


def test_what_apt_cannot_do_is_told_in_its_words(own_cache):
    suite = debian.Suite("none")
    (suite.directory / "lists" / "partial").mkdir(parents=True)
    suite.sources_list.touch()
    with pytest.raises(Failed, match="Unable to locate package no-such-package-of-anybody"):
        debian.apt_get(*suite.options(), "install", "no-such-package-of-anybody")


def test_a_mirror_that_is_away_is_no_reason_to_do_without_what_is_there(own_cache, monkeypatch, capsys):
    monkeypatch.setattr(debian, "mirror", lambda: f"file:{own_cache}/nowhere")
    monkeypatch.setattr(debian, "PAUSE_S", 0)
    assert debian.Suite("none").newest("linux-source") == ""
    assert "could not be refreshed" in capsys.readouterr().err


def test_v1_environments_made_at_once_do_not_wipe_each_other(tmp_path, monkeypatch):
    """Each caller's interpreter has its packages from the moment it is told of it."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("# none\n")
    monkeypatch.setattr(venv, "REQUIREMENTS", requirements)
    works: list[int] = []

    def call() -> None:
        works.append(subprocess.run([venv.venv().get(), "-c", "import pip"]).returncode)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert works == [0] * 4


def test_the_module_is_made_from_sources_only():
    names = {path.name for path in module.sources()}
    assert {"virtio_ccc.h", "Kbuild", "configure.sh"} <= names
    assert not names & {"ccc_compat.h", "ccc.mod.c", "ccc.o", "README.md"}


def test_the_laboratorys_kernel_keeps_its_key(monkeypatch):
    """Another key is another kernel, and with it other data of every seeded run."""
    monkeypatch.setattr(kernels, "require", lambda *packages: None)
    monkeypatch.setattr(kernels, "find_source", lambda *given: ("linux-source-7.2", "7.2.12-1~bpo13+1"))
    monkeypatch.setattr(kernels, "compiler", lambda: "gcc (Debian 12.2.0-14+deb12u1) 12.2.0\n")
    assert kernels.laboratory().path.name == "kernel-b84e5455806a394c"


def test_an_unknown_version_of_qemu_is_refused(monkeypatch):
    monkeypatch.setenv("CCC_QEMU", "9.9")
    with pytest.raises(Failed, match="invalid CCC_QEMU: expected one of 10.0, .*, got '9.9'"):
        qemu.qemu()


def test_an_unknown_artefact_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["build", "kernle"])
    with pytest.raises(SystemExit):
        command.main()
    told = capsys.readouterr().err
    assert "invalid artefact: expected one of kernel, module, " in told and told.endswith(", got kernle\n")


def test_a_cache_that_cannot_be_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("CCC_CACHE", "/proc/nope")
    monkeypatch.setattr(sys, "argv", ["build", "venv"])
    assert command.main() == 1
    told = "invalid cache: expected a directory that is there or can be made, got /proc/nope"
    assert capsys.readouterr().err.startswith(f"venv: {told} ")
    done = subprocess.run([SCRIPTS / "cache"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith(f"cache: {told} ")


def test_the_series_has_a_form_for_each_version_of_qemu(tmp_path):
    """A delta that no longer applies would be seen only when somebody builds that version."""
    for series in qemu.SUITES:
        (tmp_path / series).mkdir()
        patches = qemu.copy_series(series, tmp_path / series)
        old = any("CharBackend" in patch.read_text() for patch in patches)
        assert len(patches) == 11
        assert old == (series == "10.0")
