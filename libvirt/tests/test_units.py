# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What is installed: systemd's units, as far as systemd judges them without being
started, programs, manual pages, completions."""

import re
import shutil
import stat
from pathlib import Path

import pytest
from testbed.host import HERE

PROJECT = Path(__file__).resolve().parents[2]
UNITS = [*(PROJECT / "libvirt/systemd").glob("*.service"), *(PROJECT / "guest/bpf-ccc/systemd").glob("*.service")]
# Of ten, times ten: what systemd calls "OK" ends at 50.
MOST_EXPOSURE = 20
# They load BPF.
MORE_EXPOSURE = {"ccc-agent.service": 45, "ccc-bpf.service": 45}

# To load BPF.
LOADER = {"CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "CAP_SYS_ADMIN"}
# Whoever adds one says there in the unit what for.
CAPABILITIES = {
    "ccc-agent.service": LOADER | {"CAP_NET_BIND_SERVICE"},
    "ccc-bpf.service": LOADER | {"CAP_DAC_OVERRIDE"},
    "ccc-relay.service": set(),
}


def settings_of(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line)


@pytest.mark.parametrize("name", sorted(CAPABILITIES))
def test_a_service_of_bpf_has_these_capabilities_and_no_others(name):
    settings = settings_of(PROJECT / "guest/bpf-ccc/systemd" / name)
    assert set(settings["CapabilityBoundingSet"].split()) == CAPABILITIES[name]
    assert "AmbientCapabilities" not in settings


@pytest.mark.parametrize("unit", sorted(UNITS), ids=lambda unit: unit.name)
def test_a_service_may_do_little_else(unit):
    """A threshold that is passed makes systemd-analyze fail."""
    threshold = MORE_EXPOSURE.get(unit.name, MOST_EXPOSURE)
    HERE.run("systemd-analyze", "security", "--offline=true", f"--threshold={threshold}", unit)


def test_the_relay_may_have_threads_for_as_many_vms_as_it_may_have_descriptors_for():
    settings = settings_of(PROJECT / "guest/bpf-ccc/systemd/ccc-relay.service")
    descriptors_of_a_vm, threads_of_a_vm = 16, 2
    assert int(settings["TasksMax"]) > int(settings["LimitNOFILE"]) / descriptors_of_a_vm * threads_of_a_vm


@pytest.mark.parametrize("unit", sorted(UNITS), ids=lambda unit: unit.name)
def test_a_service_that_ends_is_started_again_later_and_later(unit):
    """Each 200 ms it would fill the journal, where nobody but an operator can mend what is wrong."""
    settings = settings_of(unit)
    if settings.get("Restart") != "always":
        pytest.skip("it is not")
    assert settings["RestartSteps"] == "8" and settings["RestartMaxDelaySec"] == "5s"


def test_a_service_brings_its_user(tmp_path):
    """Each of the two packages may be there without the other, and they say the same of a user whom both have."""
    made: dict[str, set[str]] = {}
    for number, unit in enumerate(UNITS):
        settings = settings_of(unit)
        if "User" not in settings:
            continue
        root = tmp_path / str(number)
        (root / "usr/lib/sysusers.d").mkdir(parents=True)
        (root / "etc").mkdir()
        for conf in unit.parent.glob("*-sysusers.conf"):
            shutil.copy(conf, root / "usr/lib/sysusers.d")
        HERE.run("systemd-sysusers", f"--root={root}")
        passwd = root / "etc/passwd"
        users = passwd.read_text().splitlines() if passwd.exists() else []
        [user] = [line for line in users if line.split(":")[0] == settings["User"]]
        made.setdefault(settings["User"], set()).add(re.sub(r":[0-9]+:[0-9]+:", ":", user))
    assert made and all(len(words) == 1 for words in made.values()), made


def test_what_operators_have_made_of_the_control_directory_stays(tmp_path):
    """A package's upgrade applies our file alone, a boot all of them."""
    for name in ("sysusers", "tmpfiles"):
        ours = tmp_path / f"usr/lib/{name}.d/ccc.conf"
        ours.parent.mkdir(parents=True)
        shutil.copy(PROJECT / f"libvirt/systemd/ccc-{name}.conf", ours)
    theirs = tmp_path / "etc/tmpfiles.d/ccc-operators.conf"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("z /run/ccc/control 2750 ccc ccc-operators\n")
    (tmp_path / "etc/group").write_text("libvirt-qemu:x:64055:\nccc-operators:x:4242:\n")
    HERE.run("systemd-sysusers", f"--root={tmp_path}")
    tmpfiles = ("systemd-tmpfiles", f"--root={tmp_path}", "--create")
    control = tmp_path / "run/ccc/control"

    HERE.run(*tmpfiles, "ccc.conf")
    first = control.stat()
    assert stat.S_IMODE(first.st_mode) == 0o750 and first.st_uid != 0
    HERE.run(*tmpfiles)
    HERE.run(*tmpfiles, "ccc.conf")
    now = control.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid) == (0o2750, first.st_uid, 4242)


APPARMOR = {"libvirtd": "usr.sbin.libvirtd", "libvirt-qemu": "abstractions/libvirt-qemu"}


def test_libvirtds_profile_lets_it_run_our_emulator(tmp_path):
    """It compiles, and is another one with our rule; of what is in force nothing changes."""
    profiles = Path("/etc/apparmor.d")
    if not (profiles / "usr.sbin.libvirtd").is_file() or not shutil.which("apparmor_parser"):
        pytest.skip("no AppArmor, or no profile of libvirtd: apt-get install apparmor libvirt-daemon-system")
    mine = tmp_path / "apparmor.d"
    shutil.copytree(profiles, mine)
    domain = "#include <tunables/global>\nprofile domain {\n  #include <abstractions/libvirt-qemu>\n}\n"
    (tmp_path / "domain").write_text(domain)
    for ours, theirs in APPARMOR.items():
        local = mine / "local" / theirs
        local.write_text("")
        profile = mine / theirs if ours == "libvirtd" else tmp_path / "domain"
        compiler = ("apparmor_parser", "--skip-kernel-load", "--skip-cache", "--base", mine, "--debug", profile)
        emulator = "/usr/lib/ccc/qemu-system-x86_64"
        assert emulator not in HERE.attempt(*compiler).text
        shutil.copy(PROJECT / "libvirt/apparmor" / ours, local)
        compiled = HERE.attempt(*compiler)
        assert compiled.ok and emulator in compiled.text, compiled.text


def test_the_daemons_profile_compiles_and_is_what_its_unit_names(tmp_path):
    """Whether the daemon can do all that it has to in it is seen where AppArmor is in force: make test-packages."""
    if not shutil.which("apparmor_parser"):
        pytest.skip("no apparmor_parser: apt-get install apparmor")
    HERE.run("env", f"DESTDIR={tmp_path}", "PREFIX=/opt/ccc", PROJECT / "scripts/install")
    profile = tmp_path / "etc/apparmor.d/ccc-vhost"
    # What a host has more is read with it.
    base = tmp_path / "base"
    shutil.copytree("/etc/apparmor.d", base)
    (base / "local").mkdir(exist_ok=True)
    (base / "local/ccc-vhost").write_text("/srv/vms/*.sock rw,\n")
    compiler = ("apparmor_parser", "--skip-kernel-load", "--skip-cache", "--base", base)
    compiled = HERE.attempt(*compiler, "--debug", profile)
    assert compiled.ok, compiled.text
    for path in ("/opt/ccc/bin/ccc-vhost", "/srv/vms/", "/run/ccc/", "/var/lib/ccc/"):
        assert path in compiled.text, f"the profile has no rule of {path}"
    [name] = HERE.run(*compiler, "--names", profile).split()
    unit = (tmp_path / "opt/ccc/lib/systemd/system/ccc-vhost.service").read_text()
    # Where AppArmor is not, the daemon starts all the same.
    assert f"\nAppArmorProfile=-{name}\n" in unit, f"the unit does not name {name}"


def test_the_selinux_policy_compiles(tmp_path):
    """As its first lines say; it was in force nowhere."""
    policy = PROJECT / "libvirt/selinux"
    HERE.run("checkmodule", "-M", "-m", "-o", tmp_path / "ccc.mod", policy / "ccc.te")
    HERE.run("semodule_package", "-o", tmp_path / "ccc.pp", "-m", tmp_path / "ccc.mod", "-f", policy / "ccc.fc")
    assert (tmp_path / "ccc.pp").stat().st_size > 0


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
    documents = installed / "share/doc/ccc"
    assert (documents / "docs/operator.md").is_file()
    for document in (documents / "README.md", documents / "docs/README.md", documents / "docs/operator.md"):
        linked = re.findall(r"\]\(([\w./-]+\.md)[)#]", document.read_text())
        assert linked and all((document.parent / link).is_file() for link in linked), document
    HERE.run("bash", "-n", installed / "share/bash-completion/completions/cccctl.bash")
    assert HERE.run(installed / "bin/cccctl", "--version").startswith("cccctl ")
