# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whatever is wrong with us, no domain ends and no call of libvirt's hangs."""

import json
import pwd
import shutil
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from testbed.artefacts import program
from testbed.daemon import ControlClient, ControlError, Daemon
from testbed.host import HERE, Host, is_running
from testbed.libvirt import (
    CALL_S,
    CONTROL,
    STATE,
    VM_SOCKETS,
    Domain,
    HostDaemon,
    restart_libvirtd,
    set_metadata,
    virsh,
)
from testbed.qemu import starts_without_daemon
from testbed.wait import until

LIBVIRT = Path(__file__).parents[1]
# What has no cccctl.
BARE_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# libvirtd ends a domain whose hook fails at once; this is long after.
AFTERMATH_S = 3.0


@pytest.fixture
def domains(emulator, daemon):
    """One of ours and one that is none of our business."""
    both = [Domain.of_firmware(name, emulator) for name in ("ours", "plain")]
    daemon.cccctl("attach", "ours", "--group", "uplink", "--weight", "3")
    yield both
    for domain in both:
        domain.remove()


class Fault:
    """Something that is wrong with us, for as long as it lasts."""

    # Somebody listens at the domain's socket all the same.
    served = False

    # Where libvirtd finds the hook's programs.
    path: str | None = None

    def __init__(self, daemon: HostDaemon, directory: Path) -> None:
        self.daemon = daemon
        self.directory = directory

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Down(Fault):
    """No daemon."""

    def begin(self) -> None:
        self.daemon.kill()

    def end(self) -> None:
        self.daemon.start()


class Hung(Fault):
    """A daemon that does nothing."""

    def begin(self) -> None:
        self.daemon.hang()

    def end(self) -> None:
        self.daemon.resume()


class FullDisk(Fault):
    """Nothing can be written where the daemon keeps its state."""

    served = True

    def begin(self) -> None:
        HERE.run("mount", "-t", "tmpfs", "-o", "size=4k", "full", STATE.parent)
        (STATE.parent / "fill").write_bytes(bytes(4096))

    def end(self) -> None:
        HERE.run("umount", STATE.parent)


class NoGroup(Fault):
    """The daemon has lost the group that the metadata name."""

    served = True

    def begin(self) -> None:
        self.daemon.kill()
        STATE.unlink(missing_ok=True)
        self.daemon.start("[group.other]")

    def end(self) -> None:
        self.daemon.kill()
        self.daemon.start()


class WrongMetadata(Fault):
    """Somebody wrote what makes no sense."""

    served = True

    def begin(self) -> None:
        self._write("3,5")

    def end(self) -> None:
        self._write("3")

    @staticmethod
    def _write(weight: str) -> None:
        running = "ours" in virsh("list", "--name").text.split()
        set_metadata("ours", f'<vm group="uplink" weight="{weight}"/>', "--config", *["--live"] * running)


class NoProgram(Fault):
    """cccctl is being upgraded."""

    path = BARE_PATH


class BrokenProgram(Fault):
    """cccctl crashes."""

    path = BARE_PATH

    def begin(self) -> None:
        broken = self.directory / "broken"
        broken.mkdir()
        self.path = f"{broken}:{BARE_PATH}"
        program = broken / "cccctl"
        program.write_text("#!/bin/sh\nkill -SEGV $$\n")
        program.chmod(0o755)


FAULTS = (Down, Hung, FullDisk, NoGroup, WrongMetadata, NoProgram, BrokenProgram)


@pytest.fixture
def fault(request, daemon, tmp_path):
    fault = request.param(daemon, tmp_path)
    yield fault
    # What is not mended here is in the way of whoever comes next.
    restart_libvirtd()


def each_fault(*faults: type[Fault]):
    return pytest.mark.parametrize("fault", faults, ids=lambda kind: kind.__name__, indirect=True)


def cccctl(*arguments: str) -> str:
    outcome = HERE.attempt(program("cccctl"), *arguments, timeout_s=CALL_S)
    assert outcome.ok, outcome.text
    return outcome.text


def refused(*arguments: str) -> str:
    outcome = HERE.attempt(program("cccctl"), *arguments, timeout_s=CALL_S)
    assert not outcome.ok, outcome.text
    return outcome.text


def served_as_wanted(daemon: HostDaemon) -> bool:
    there = daemon.vm("ours")
    return there is not None and (there["group"], there["weight"], there["connected"]) == ("uplink", 3, True)


@each_fault(*FAULTS)
def test_f1_a_restart_of_libvirtd_ends_no_domain(fault, daemon, domains):
    for domain in domains:
        domain.start()
    pids = {domain.name: domain.pid() for domain in domains}
    fault.begin()
    try:
        restart_libvirtd(fault.path)
        time.sleep(AFTERMATH_S)
        ended = [name for name, pid in pids.items() if not is_running(pid)]
        assert not ended, f"ended by a restart of libvirtd: {ended}"
        for domain in domains:
            until(f"{domain.name} runs", domain.is_running)
    finally:
        fault.end()
    # As the service manager does.
    daemon.watch()
    until("coupled again when all is well", lambda: served_as_wanted(daemon))
    assert {domain.name: domain.pid() for domain in domains} == pids


@each_fault(*FAULTS)
def test_f1_a_start_ends_in_time_and_is_refused_only_with_words(fault, daemon, domains, emulator):
    ours, plain = domains
    alone = starts_without_daemon(emulator)
    if fault.path and not alone:
        pytest.skip("this QEMU waits for a daemon that nobody tells of the domain")
    fault.begin()
    try:
        restart_libvirtd(fault.path)
        plain.start()
        said = virsh("start", "ours")
        if fault.served or alone:
            assert said.ok, said.text
        elif not said.ok:
            assert "start ccc-vhost, or the domain without the device" in said.text
    finally:
        fault.end()
    restart_libvirtd()
    daemon.watch()
    if not ours.is_running():
        ours.start()
    until("coupled when all is well", lambda: served_as_wanted(daemon))


def test_f1_a_domain_that_is_required_to_be_coupled_does_not_start_uncoupled(daemon, domains):
    ours, plain = domains
    choice = Path("/etc/ccc/cccctl.toml")
    try:
        choice.write_text("require = true\n")
        ours.start()
        pid = ours.pid()
        daemon.kill()
        restart_libvirtd()
        time.sleep(AFTERMATH_S)
        assert is_running(pid), "one that runs is never ended"
        virsh("destroy", "ours")
        said = virsh("start", "ours")
        assert not said.ok and "require = true" in said.text
        plain.start()
    finally:
        choice.unlink()
        daemon.start()


def test_o5_a_renamed_domain_starts_and_a_clone_is_refused_with_words(daemon, domains):
    ours, _ = domains
    text = virsh("dumpxml", "--inactive", "ours").text
    ours.start()
    lines = [line for line in text.splitlines() if "<uuid>" not in line]
    clone = "\n".join(lines).replace("<name>ours</name>", "<name>clone</name>")
    assert virsh("define", "/dev/stdin", stdin=clone).ok
    try:
        said = virsh("start", "clone")
        assert not said.ok and "that of ours, as a clone would" in said.text, said.text
        said = json.loads(cccctl("--json", "attach", "clone"))
        assert any("clone" in line for line in said["done"]), said
        assert virsh("start", "clone").ok
        for name in ("ours", "clone"):
            until(f"{name} connected", lambda name=name: (daemon.vm(name) or {}).get("connected"))
    finally:
        Domain("clone").remove()
    virsh("destroy", "ours")
    assert virsh("domrename", "ours", "renamed").ok
    try:
        assert virsh("start", "renamed").ok
        until("connected", lambda: (daemon.vm("renamed") or {}).get("connected"))
        assert daemon.vm("renamed")["socket"] == "/run/ccc/vm/ours.sock"
    finally:
        virsh("destroy", "renamed")
        virsh("domrename", "renamed", "ours")


def test_o6_attach_refuses_what_could_not_start(daemon, emulator, tmp_path):
    stock = tmp_path / "qemu-stock"
    stock.write_text(f"""#!/bin/sh
case "$*" in *vhost-user-ccc-pci,help*) echo "Device 'vhost-user-ccc-pci' not found" >&2; exit;; esac
exec {emulator} "$@"
""")
    stock.chmod(0o755)
    odd = [
        Domain.of_firmware("stock", stock),
        Domain.of_firmware("with space", emulator),
        Domain.of_firmware("right", emulator),
    ]
    try:
        before = [domain.xml() for domain in odd]
        assert "no device vhost-user-ccc-pci (Device" in refused("attach", "stock")
        assert "letters, digits" in refused("attach", "with space")
        for path in ("relative.sock", "/" + "s" * 107, str(CONTROL), "/run/ccc/vm/../control/control.sock"):
            told = refused("attach", "right", "--vhost-socket", path)
            assert "--vhost-socket" in told, told
        assert "no group `nil`" in refused("attach", "right", "--group", "nil")
        assert [domain.xml() for domain in odd] == before
    finally:
        for domain in odd:
            domain.remove()


def test_o5_attach_says_that_the_hook_is_missing(daemon, domains):
    hook = Path("/etc/libvirt/hooks/qemu.d/ccc")
    away = hook.with_name("ccc.away")
    hook.rename(away)
    away.chmod(0o644)
    try:
        assert "hook is not installed" in cccctl("attach", "ours")
    finally:
        away.chmod(0o755)
        away.rename(hook)
    assert "restart libvirtd" in cccctl("attach", "ours"), "as a package's hook that was just put there"
    restart_libvirtd()
    assert "hook" not in cccctl("attach", "ours")


@pytest.mark.parametrize("watched", (True, False), ids=("watch", "sync"))
def test_o7_a_domain_that_stops_while_the_daemon_is_away_leaves_nothing(daemon, domains, watched):
    ours, _ = domains
    ours.start()
    cccctl("sync")
    if not watched:
        daemon.end_watch()
    daemon.kill()
    virsh("destroy", "ours")
    daemon.start()
    if not watched:
        assert daemon.vm("ours") is not None, "the daemon cannot know"
        assert "ours: removed" in cccctl("sync")
    until("removed", lambda: daemon.vm("ours") is None)


def put(name: str, wanted: dict) -> None:
    """Adds a VM, as an operator's own program does."""
    ControlClient(CONTROL).put(f"/v1/vms/{name}", wanted)


def test_o7_what_an_operator_added_by_hand_stays(daemon, domains):
    put("by-hand", {"socket": str(VM_SOCKETS / "by-hand.sock")})
    assert "by-hand: kept" in cccctl("sync")
    daemon.kill()
    daemon.start()
    time.sleep(AFTERMATH_S)
    assert daemon.vm("by-hand") is not None
    cccctl("remove", "by-hand")
    assert daemon.vm("by-hand") is None


def test_o7_what_has_a_domain_s_name_and_is_not_its_vm_stays(daemon, domains):
    put("ours", {"socket": str(VM_SOCKETS / "by-hand.sock")})
    assert "ours: kept" in cccctl("sync")
    daemon.watch()
    time.sleep(AFTERMATH_S)
    assert daemon.vm("ours") is not None
    cccctl("remove", "ours")


def test_o7_a_vm_of_the_configuration_is_not_said_to_be_removed(emulator, tmp_path):
    domain = Domain.of_firmware("ours", emulator)
    try:
        with as_installed(tmp_path, '[vm.ours]\nsocket = "/run/ccc/vm/ours.sock"\n'):
            for command in (("attach", "ours"), ("sync",)):
                assert "removed" not in cccctl(*command)
            assert "libvirt" not in cccctl("reset", "ours")
            domain.start()
            assert "its metadata want is told again" in cccctl("reset", "ours")
    finally:
        domain.remove()


def test_o9_what_is_set_lasts_as_long_as_the_domain_runs(daemon, domains):
    ours, _ = domains
    ours.start()
    cccctl("set", "ours", "--coupled", "off", "--weight", "7")

    def as_set() -> bool:
        there = daemon.vm("ours")
        return there is not None and (there["coupled"], there["weight"]) == (False, 7)

    # Whoever looked at the metadata just before may tell what they said then, but no longer.
    until("as it was set", as_set)
    for disturb in (daemon.watch, restart_libvirtd, lambda: cccctl("sync", "ours"), daemon.watch):
        disturb()
        time.sleep(1)
        assert as_set(), daemon.vm("ours")
    cccctl("attach", "ours", "--weight", "8")
    assert (daemon.vm("ours")["coupled"], daemon.vm("ours")["weight"]) == (False, 8)
    virsh("destroy", "ours")
    ours.start()
    assert (daemon.vm("ours")["coupled"], daemon.vm("ours")["weight"]) == (True, 8)


def test_o1_what_is_wrong_in_the_metadata_a_domain_runs_with_is_put_right(daemon, domains):
    ours, _ = domains
    ours.start()
    set_metadata("ours", '<vm group="uplink" wieght="9"/>', "--live")
    assert "cccctl attach" in refused("sync", "ours")
    assert served_as_wanted(daemon), "it is as it was"
    cccctl("attach", "ours", "--weight", "5")
    cccctl("sync", "ours")
    assert daemon.vm("ours")["weight"] == 5


def test_o6_a_transient_domain_stays_transient(daemon, domains):
    def is_kept() -> bool:
        return virsh("list", "--all", "--persistent", "--name").text.strip() != ""

    for domain in domains:
        text = domain.xml()
        assert virsh("undefine", domain.name).ok
        assert virsh("create", "/dev/stdin", stdin=text).ok
    assert "has no next start" in refused("detach", "ours")
    cccctl("attach", "ours", "--weight", "5")
    assert not is_kept(), "libvirt keeps it"
    cccctl("sync", "ours")
    assert daemon.vm("ours")["weight"] == 5
    assert "has no next start" in refused("attach", "plain")
    assert not is_kept(), "libvirt keeps it"


def test_o9_what_is_set_while_the_disk_is_full_lasts(daemon, domains, tmp_path):
    ours, _ = domains
    ours.start()
    full = FullDisk(daemon, tmp_path)
    full.begin()
    try:
        told = refused("set", "ours", "--weight", "7")
        assert "in force" in told, told
    finally:
        full.end()
    cccctl("sync", "ours")
    assert daemon.vm("ours")["weight"] == 7


def test_o10_metadata_that_changed_while_the_daemon_was_away_are_told(daemon, domains):
    ours, _ = domains
    ours.start()
    daemon.kill()
    set_metadata("ours", '<vm group="uplink" weight="9"/>', "--live", "--config")
    time.sleep(3)
    daemon.start()
    until("told", lambda: (daemon.vm("ours") or {}).get("weight") == 9)
    # And where the daemon forgets everything.
    daemon.kill()
    STATE.unlink()
    daemon.start()
    until("told again", lambda: (daemon.vm("ours") or {}).get("weight") == 9 and daemon.vm("ours")["connected"])


@pytest.fixture
def numbered(daemon, domains, emulator):
    """A domain whose name is the id of another that runs, both of ours."""
    ours, _ = domains
    ours.start()
    numbered = Domain.of_firmware(virsh("domid", "ours").text.strip(), emulator)
    yield numbered
    numbered.remove()


def test_o13_a_name_that_is_the_id_of_another_domain_is_a_name(daemon, domains, numbered):
    ours, name = domains[0], numbered.name
    of_ours = virsh("dumpxml", "--inactive", "ours").text
    cccctl("attach", name, "--group", "uplink", "--weight", "2")
    uuid = virsh("domuuid", "ours").text.strip()
    assert virsh("dumpxml", "--inactive", uuid).text == of_ours, "the other has its device"
    numbered.start()
    until("it is served", lambda: (daemon.vm(name) or {}).get("connected"))
    cccctl("set", name, "--weight", "9")
    cccctl("attach", name, "--group", "none")
    assert 'group="uplink" weight="3"' in virsh("dumpxml", uuid).text.replace("'", '"'), "written to the other"
    for disturb in (lambda: cccctl("sync"), lambda: cccctl("sync", name), daemon.watch):
        disturb()
        time.sleep(1)
        weights = {each: daemon.vm(each)["weight"] for each in ("ours", name)}
        assert weights == {"ours": 3, name: 2}
    cccctl("detach", name)
    assert virsh("dumpxml", "--inactive", uuid).text == of_ours, "the other is detached"
    # Left over, which it is only if the domain that was looked at is the right one.
    cccctl("attach", name)
    daemon.kill()
    numbered.destroy()
    daemon.start()
    until("removed", lambda: daemon.vm(name) is None)
    # QEMU may come back to the daemon only after that.
    until("the other is served", lambda: served_as_wanted(daemon))
    assert ours.is_running()


def test_o13_ids_and_uuids_are_refused_with_words(daemon, domains):
    domains[0].start()
    before = virsh("dumpxml", "--inactive", "ours").text
    for command in ("domid", "domuuid"):
        other_name = virsh(command, "ours").text.strip()
        for arguments in (("attach",), ("detach",), ("sync",)):
            told = refused(*arguments, other_name)
            assert f"no domain named {other_name}" in told and "of domain ours; use its name" in told, told
    assert virsh("dumpxml", "--inactive", "ours").text == before


def as_user(user: str, *command: str) -> bool:
    """Whether a command succeeds for this user."""
    group = pwd.getpwnam(user).pw_gid
    return HERE.attempt("setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", *command).ok


def connects(user: str, path: Path) -> bool:
    """This user's QEMU could."""
    script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    return as_user(user, "/usr/bin/python3", "-c", script, str(path))


@contextmanager
def as_installed(tmp_path: Path, sections: str = ""):
    """The daemon with a user of its own, in the directories as they are installed."""
    conf = (LIBVIRT / "systemd/ccc-tmpfiles.conf").read_text()
    # A user that every machine has stands for the daemon's.
    (tmp_path / "ccc.conf").write_text(conf.replace(" ccc ", " daemon ").replace(" :ccc", " :daemon"))
    HERE.run("rm", "-rf", "/run/ccc")
    made = HERE.attempt("systemd-tmpfiles", "--create", tmp_path / "ccc.conf")
    assert Path("/run/ccc/control").owner() == "daemon", made.text
    # Where another user may read them.
    place = Path(tempfile.mkdtemp(dir="/run"))
    place.chmod(0o755)
    shutil.copy(program("ccc-vhost"), place)
    user = Host(("setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups"))
    with Daemon(place, sections, CONTROL, host=user, executable=place / "ccc-vhost") as daemon:
        yield daemon
    shutil.rmtree(place)
    HERE.run("rm", "-rf", "/run/ccc")


def test_f9_qemu_reaches_its_socket_and_not_that_of_operators(emulator, tmp_path):
    vm_socket = Path("/run/ccc/vm/web.sock")
    with as_installed(tmp_path, f'[vm.web]\nsocket = "{vm_socket}"\n'):
        assert vm_socket.group() == "libvirt-qemu"
        assert connects("libvirt-qemu", vm_socket), "QEMU cannot connect"
        assert not connects("libvirt-qemu", CONTROL), "QEMU may do what operators may"
        assert connects("root", CONTROL)
        for directory in (Path("/run/ccc"), vm_socket.parent, CONTROL.parent):
            assert not as_user("libvirt-qemu", "touch", str(directory / "mine.sock")), directory
        assert not as_user("libvirt-qemu", "ls", str(CONTROL.parent))
        assert not as_user("nobody", "ls", str(vm_socket.parent))


def test_f9_a_domain_attached_when_sockets_were_in_run_ccc_goes_on(emulator, tmp_path):
    old, new = Path("/run/ccc/old.sock"), VM_SOCKETS / "old.sock"

    domain = Domain.of_firmware("old", emulator)
    try:
        with as_installed(tmp_path, "[group.uplink]\n") as daemon:

            def served_at() -> str | None:
                there = daemon.vm("old") or {}
                return there["socket"] if there.get("connected") and there["group"] == "uplink" else None

            cccctl("attach", "old", "--group", "uplink")
            text = domain.xml().replace(str(new), str(old))
            assert virsh("define", "/dev/stdin", stdin=text).ok
            domain.start()
            until("served where it connects", lambda: served_at() == str(old))
            assert connects("libvirt-qemu", old), "QEMU cannot connect"
            left_over = old.with_name("left-over.sock")
            with socket.socket(socket.AF_UNIX) as stream:
                stream.bind(str(left_over))
            with pytest.raises(ControlError, match="socket of another user.*remove it"):
                put("left-over", {"socket": str(left_over)})
            cccctl("attach", "old")
            assert served_at() == str(old), "it runs as it was"
            domain.destroy()
            domain.start()
            until("served at the new one", lambda: served_at() == str(new))
    finally:
        domain.remove()
