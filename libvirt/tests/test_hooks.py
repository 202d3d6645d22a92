# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whatever is wrong with us, no domain ends and no call of libvirt's hangs."""

import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from bare import PATIENCE_S, Bare, Said, alive, call, eventually, restart_libvirtd, starts_alone, virsh
from qemu.host import CONTROL, STATE, Daemon

LIBVIRT = Path(__file__).parents[1]
URI = "urn:ccc:vm:1"
# What has no cccctl.
BARE_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# libvirtd ends a domain whose hook fails at once; this is long after.
AFTERMATH_S = 3.0


@pytest.fixture
def emulator() -> Path:
    return Path(os.environ["CCC_EMULATOR"])


@pytest.fixture
def daemon(programs, tmp_path):
    with Daemon(programs, tmp_path) as daemon:
        yield daemon


@pytest.fixture
def domains(emulator, daemon):
    """One of ours and one that is none of our business."""
    both = [Bare.define(name, emulator) for name in ("ours", "plain")]
    daemon.control("attach", "ours", "--group", "uplink", "--weight", "3")
    yield both
    for domain in both:
        domain.remove()


def metadata(element: str, *where: str) -> None:
    said = virsh("metadata", "ours", *where, "--uri", URI, "--key", "ccc", "--set", element)
    assert said.done, said.text


class Fault:
    """Something that is wrong with us, for as long as it lasts."""

    # Somebody listens at the domain's socket all the same.
    served = False

    # Where libvirtd finds the hook's programs.
    path: str | None = None

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon = daemon
        self.directory = directory

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Down(Fault):
    """No daemon."""

    def begin(self) -> None:
        self.daemon.kill()

    def end(self) -> None:
        self.daemon.serve()


class Hung(Fault):
    """A daemon that does nothing."""

    def begin(self) -> None:
        self.daemon.signal(signal.SIGSTOP)

    def end(self) -> None:
        self.daemon.signal(signal.SIGCONT)


class FullDisk(Fault):
    """Nothing can be written where the daemon keeps its state."""

    served = True

    def begin(self) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "full", STATE.parent], check=True)
        (STATE.parent / "fill").write_bytes(bytes(4096))

    def end(self) -> None:
        subprocess.run(["umount", STATE.parent], check=True)


class NoGroup(Fault):
    """The daemon has lost the group that the metadata name."""

    served = True

    def begin(self) -> None:
        self.daemon.kill()
        STATE.unlink(missing_ok=True)
        self.daemon.serve(group="other")

    def end(self) -> None:
        self.daemon.kill()
        self.daemon.serve()


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
        metadata(f'<vm group="uplink" weight="{weight}"/>', "--config", *["--live"] * running)


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


def vm(daemon: Daemon, name: str = "ours") -> dict | None:
    """What the daemon says of a VM, if it has it."""
    said = call(str(daemon.programs / "cccctl"), "--json", "show", name)
    return json.loads(said.text) if said.done else None


def cccctl(daemon: Daemon, *arguments: str) -> str:
    said = call(str(daemon.programs / "cccctl"), *arguments)
    assert said.done, said.text
    return said.text


def refused(daemon: Daemon, *arguments: str) -> str:
    said = call(str(daemon.programs / "cccctl"), *arguments)
    assert not said.done, said.text
    return said.text


def served_as_wanted(daemon: Daemon) -> bool:
    there = vm(daemon)
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
        ended = [name for name, pid in pids.items() if not alive(pid)]
        assert not ended, f"ended by a restart of libvirtd: {ended}"
        for domain in domains:
            eventually(f"{domain.name} runs", domain.runs)
    finally:
        fault.end()
    # As the service manager does.
    daemon.watch()
    eventually("coupled again when all is well", lambda: served_as_wanted(daemon))
    assert {domain.name: domain.pid() for domain in domains} == pids


@each_fault(*FAULTS)
def test_f1_a_start_ends_in_time_and_is_refused_only_with_words(fault, daemon, domains, emulator):
    ours, plain = domains
    alone = starts_alone(emulator)
    if fault.path and not alone:
        pytest.skip("this QEMU waits for a daemon that nobody tells of the domain")
    fault.begin()
    try:
        restart_libvirtd(fault.path)
        plain.start()
        said = virsh("start", "ours")
        if fault.served or alone:
            assert said.done, said.text
        elif not said.done:
            assert "start ccc-vhost, or the domain without the device" in said.text
    finally:
        fault.end()
    restart_libvirtd()
    daemon.watch()
    if not ours.runs():
        ours.start()
    eventually("coupled when all is well", lambda: served_as_wanted(daemon))


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
        assert alive(pid), "one that runs is never ended"
        virsh("destroy", "ours")
        said = virsh("start", "ours")
        assert not said.done and "require = true" in said.text
        plain.start()
    finally:
        choice.unlink()
        daemon.serve()


def test_o5_a_renamed_domain_starts_and_a_clone_is_refused_with_words(daemon, domains):
    ours, _ = domains
    text = virsh("dumpxml", "--inactive", "ours").text
    ours.start()
    lines = [line for line in text.splitlines() if "<uuid>" not in line]
    clone = "\n".join(lines).replace("<name>ours</name>", "<name>clone</name>")
    assert virsh("define", "/dev/stdin", stdin=clone).done
    try:
        said = virsh("start", "clone")
        assert not said.done and "that of ours, as a clone would" in said.text, said.text
        cccctl(daemon, "attach", "clone")
        assert virsh("start", "clone").done
        for name in ("ours", "clone"):
            eventually(f"{name} connected", lambda name=name: (vm(daemon, name) or {}).get("connected"))
    finally:
        Bare("clone").remove()
    virsh("destroy", "ours")
    assert virsh("domrename", "ours", "renamed").done
    try:
        assert virsh("start", "renamed").done
        eventually("connected", lambda: (vm(daemon, "renamed") or {}).get("connected"))
        assert vm(daemon, "renamed")["socket"] == "/run/ccc/vm/ours.sock"
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
    odd = [Bare.define("stock", stock), Bare.define("with space", emulator), Bare.define("right", emulator)]
    try:
        before = [virsh("dumpxml", "--inactive", domain.name).text for domain in odd]
        assert "no device vhost-user-ccc-pci (Device" in refused(daemon, "attach", "stock")
        assert "letters, digits" in refused(daemon, "attach", "with space")
        for path in ("relative.sock", "/" + "s" * 107, str(CONTROL), "/run/ccc/vm/../control/control.sock"):
            told = refused(daemon, "attach", "right", "--vhost-socket", path)
            assert "--vhost-socket" in told, told
        assert "no group `nil`" in refused(daemon, "attach", "right", "--group", "nil")
        assert [virsh("dumpxml", "--inactive", domain.name).text for domain in odd] == before
    finally:
        for domain in odd:
            domain.remove()


def test_o5_attach_says_that_the_hook_is_missing(daemon, domains):
    hook = Path("/etc/libvirt/hooks/qemu.d/ccc")
    away = hook.with_name("ccc.away")
    hook.rename(away)
    away.chmod(0o644)
    try:
        assert "hook is not installed" in cccctl(daemon, "attach", "ours")
    finally:
        away.chmod(0o755)
        away.rename(hook)
    assert "hook" not in cccctl(daemon, "attach", "ours")


@pytest.mark.parametrize("watched", (True, False), ids=("watch", "sync"))
def test_o7_a_domain_that_stops_while_the_daemon_is_away_leaves_nothing(daemon, domains, watched):
    ours, _ = domains
    ours.start()
    cccctl(daemon, "sync")
    if not watched:
        daemon.end_watch()
    daemon.kill()
    virsh("destroy", "ours")
    daemon.serve()
    if not watched:
        assert vm(daemon) is not None, "the daemon cannot know"
        assert "ours: removed" in cccctl(daemon, "sync")
    eventually("removed", lambda: vm(daemon) is None)


def put(name: str, wanted: dict) -> None:
    """Adds a VM, as an operator's own program does."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE_S)
        stream.connect(str(CONTROL))
        connection = http.client.HTTPConnection("ccc")
        connection.sock = stream
        connection.request("PUT", f"/v1/vms/{name}", json.dumps(wanted), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


def test_o7_what_an_operator_added_by_hand_stays(daemon, domains):
    put("by-hand", {"socket": "/run/ccc/vm/by-hand.sock"})
    assert "by-hand: kept" in cccctl(daemon, "sync")
    daemon.kill()
    daemon.serve()
    time.sleep(AFTERMATH_S)
    assert vm(daemon, "by-hand") is not None
    cccctl(daemon, "remove", "by-hand")
    assert vm(daemon, "by-hand") is None


def test_o7_what_has_a_domain_s_name_and_is_not_its_vm_stays(daemon, domains):
    put("ours", {"socket": "/run/ccc/vm/by-hand.sock"})
    assert "ours: kept" in cccctl(daemon, "sync")
    daemon.watch()
    time.sleep(AFTERMATH_S)
    assert vm(daemon) is not None
    cccctl(daemon, "remove", "ours")


def test_o7_a_vm_of_the_configuration_is_not_said_to_be_removed(programs, emulator, tmp_path):
    domain = Bare.define("ours", emulator)
    try:
        with as_installed(programs, tmp_path, '[vm.ours]\nsocket = "/run/ccc/vm/ours.sock"\n'):
            for command in ("attach", "sync"):
                said = call(str(programs / "cccctl"), *(command, "ours")[: 1 + (command == "attach")])
                assert said.done and "removed" not in said.text, said.text
            assert "libvirt" not in call(str(programs / "cccctl"), "reset", "ours").text
            domain.start()
            said = call(str(programs / "cccctl"), "reset", "ours")
            assert said.done and "its metadata want is told again" in said.text, said.text
    finally:
        domain.remove()


def test_o9_what_is_set_lasts_as_long_as_the_domain_runs(daemon, domains):
    ours, _ = domains
    ours.start()
    cccctl(daemon, "set", "ours", "--coupled", "off", "--weight", "7")

    def as_set() -> bool:
        there = vm(daemon)
        return there is not None and (there["coupled"], there["weight"]) == (False, 7)

    # Whoever looked at the metadata just before may tell what they said then, but no longer.
    eventually("as it was set", as_set)
    for disturb in (daemon.watch, restart_libvirtd, lambda: cccctl(daemon, "sync", "ours"), daemon.watch):
        disturb()
        time.sleep(1)
        assert as_set(), vm(daemon)
    cccctl(daemon, "attach", "ours", "--weight", "8")
    assert (vm(daemon)["coupled"], vm(daemon)["weight"]) == (False, 8)
    virsh("destroy", "ours")
    ours.start()
    assert (vm(daemon)["coupled"], vm(daemon)["weight"]) == (True, 8)


def test_o1_what_is_wrong_in_the_metadata_a_domain_runs_with_is_put_right(daemon, domains):
    ours, _ = domains
    ours.start()
    metadata('<vm group="uplink" wieght="9"/>', "--live")
    assert "cccctl attach" in refused(daemon, "sync", "ours")
    assert served_as_wanted(daemon), "it is as it was"
    cccctl(daemon, "attach", "ours", "--weight", "5")
    cccctl(daemon, "sync", "ours")
    assert vm(daemon)["weight"] == 5


def test_o6_a_transient_domain_stays_transient(daemon, domains):
    def is_kept() -> bool:
        return virsh("list", "--all", "--persistent", "--name").text.strip() != ""

    for domain in domains:
        text = virsh("dumpxml", "--inactive", domain.name).text
        assert virsh("undefine", domain.name).done
        assert virsh("create", "/dev/stdin", stdin=text).done
    assert "has no next start" in refused(daemon, "detach", "ours")
    cccctl(daemon, "attach", "ours", "--weight", "5")
    assert not is_kept(), "libvirt keeps it"
    cccctl(daemon, "sync", "ours")
    assert vm(daemon)["weight"] == 5
    assert "has no next start" in refused(daemon, "attach", "plain")
    assert not is_kept(), "libvirt keeps it"


def test_o9_what_is_set_while_the_disk_is_full_lasts(daemon, domains, tmp_path):
    ours, _ = domains
    ours.start()
    full = FullDisk(daemon, tmp_path)
    full.begin()
    try:
        told = refused(daemon, "set", "ours", "--weight", "7")
        assert "in force" in told, told
    finally:
        full.end()
    cccctl(daemon, "sync", "ours")
    assert vm(daemon)["weight"] == 7


def test_o10_metadata_that_changed_while_the_daemon_was_away_are_told(daemon, domains):
    ours, _ = domains
    ours.start()
    daemon.kill()
    metadata('<vm group="uplink" weight="9"/>', "--live", "--config")
    time.sleep(3)
    daemon.serve()
    eventually("told", lambda: (vm(daemon) or {}).get("weight") == 9)
    # And where the daemon forgets everything.
    daemon.kill()
    STATE.unlink()
    daemon.serve()
    eventually("told again", lambda: (vm(daemon) or {}).get("weight") == 9 and vm(daemon)["connected"])


@pytest.fixture
def numbered(daemon, domains, emulator):
    """A domain whose name is the id of another that runs, both of ours."""
    ours, _ = domains
    ours.start()
    numbered = Bare.define(virsh("domid", "ours").text.strip(), emulator)
    yield numbered
    numbered.remove()


def test_o13_a_name_that_is_the_id_of_another_domain_is_a_name(daemon, domains, numbered):
    ours, name = domains[0], numbered.name
    of_ours = virsh("dumpxml", "--inactive", "ours").text
    cccctl(daemon, "attach", name, "--group", "uplink", "--weight", "2")
    uuid = virsh("domuuid", "ours").text.strip()
    assert virsh("dumpxml", "--inactive", uuid).text == of_ours, "the other has its device"
    numbered.start()
    eventually("it is served", lambda: (vm(daemon, name) or {}).get("connected"))
    cccctl(daemon, "set", name, "--weight", "9")
    cccctl(daemon, "attach", name, "--group", "none")
    assert 'group="uplink" weight="3"' in virsh("dumpxml", uuid).text.replace("'", '"'), "written to the other"
    for disturb in (lambda: cccctl(daemon, "sync"), lambda: cccctl(daemon, "sync", name), daemon.watch):
        disturb()
        time.sleep(1)
        weights = {each: vm(daemon, each)["weight"] for each in ("ours", name)}
        assert weights == {"ours": 3, name: 2}
    cccctl(daemon, "detach", name)
    assert virsh("dumpxml", "--inactive", uuid).text == of_ours, "the other is detached"
    # Left over, which it is only if the domain that was looked at is the right one.
    cccctl(daemon, "attach", name)
    daemon.kill()
    numbered.stop()
    daemon.serve()
    eventually("removed", lambda: vm(daemon, name) is None)
    assert ours.runs() and served_as_wanted(daemon)


def test_o13_ids_and_uuids_are_refused_with_words(daemon, domains):
    domains[0].start()
    before = virsh("dumpxml", "--inactive", "ours").text
    for command in ("domid", "domuuid"):
        other_name = virsh(command, "ours").text.strip()
        for arguments in (("attach",), ("detach",), ("sync",)):
            told = refused(daemon, *arguments, other_name)
            assert f"no domain named {other_name}" in told and "of domain ours; use its name" in told, told
    assert virsh("dumpxml", "--inactive", "ours").text == before


def as_user(user: str, *command: str) -> Said:
    group = pwd.getpwnam(user).pw_gid
    return call("setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", *command)


def connects(user: str, path: Path) -> bool:
    """This user's QEMU could."""
    script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    return as_user(user, "/usr/bin/python3", "-c", script, str(path)).done


@contextmanager
def as_installed(programs: Path, tmp_path: Path, config: str = ""):
    """The daemon with a user of its own, in the directories as they are installed."""
    conf = (LIBVIRT / "systemd/ccc-tmpfiles.conf").read_text()
    # A user that every machine has stands for the daemon's.
    (tmp_path / "ccc.conf").write_text(conf.replace(" ccc ", " daemon "))
    assert call("rm", "-rf", "/run/ccc").done
    made = call("systemd-tmpfiles", "--create", str(tmp_path / "ccc.conf"))
    assert Path("/run/ccc/control").owner() == "daemon", made.text
    (tmp_path / "ccc.toml").write_text(f'[daemon]\ncontrol = "{CONTROL}"\n{config}')
    # Where another user may read them.
    place = Path(tempfile.mkdtemp(dir="/run"))
    place.chmod(0o755)
    for file in (programs / "ccc-vhost", tmp_path / "ccc.toml"):
        shutil.copy(file, place)
    command = ["setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", place / "ccc-vhost"]
    with subprocess.Popen([*command, "--config", place / "ccc.toml"]) as daemon:
        try:
            eventually("it serves", CONTROL.exists)
            yield
        finally:
            daemon.terminate()
    shutil.rmtree(place)
    call("rm", "-rf", "/run/ccc")


def test_f9_qemu_reaches_its_socket_and_not_that_of_operators(programs, emulator, tmp_path):
    vm_socket = Path("/run/ccc/vm/web.sock")
    with as_installed(programs, tmp_path, f'[vm.web]\nsocket = "{vm_socket}"\n'):
        assert vm_socket.group() == "libvirt-qemu"
        assert connects("libvirt-qemu", vm_socket), "QEMU cannot connect"
        assert not connects("libvirt-qemu", CONTROL), "QEMU may do what operators may"
        assert connects("root", CONTROL)
        for directory in (Path("/run/ccc"), vm_socket.parent, CONTROL.parent):
            assert not as_user("libvirt-qemu", "touch", str(directory / "mine.sock")).done, directory
        assert not as_user("libvirt-qemu", "ls", str(CONTROL.parent)).done
        assert not as_user("nobody", "ls", str(vm_socket.parent)).done


def test_f9_a_domain_attached_when_sockets_were_in_run_ccc_goes_on(programs, emulator, tmp_path):
    old, new = Path("/run/ccc/old.sock"), Path("/run/ccc/vm/old.sock")
    program = str(programs / "cccctl")

    def served_at() -> str | None:
        said = call(program, "--json", "show", "old")
        there = json.loads(said.text) if said.done else {}
        return there["socket"] if there.get("connected") and there["group"] == "uplink" else None

    domain = Bare.define("old", emulator)
    try:
        with as_installed(programs, tmp_path, "[group.uplink]\n"):
            said = call(program, "attach", "old", "--group", "uplink")
            assert said.done, said.text
            text = virsh("dumpxml", "--inactive", "old").text.replace(str(new), str(old))
            assert virsh("define", "/dev/stdin", stdin=text).done
            domain.start()
            eventually("it is served where it connects", lambda: served_at() == str(old))
            assert connects("libvirt-qemu", old), "QEMU cannot connect"
            left_over = old.with_name("left-over.sock")
            with socket.socket(socket.AF_UNIX) as stream:
                stream.bind(str(left_over))
            with pytest.raises(AssertionError, match="socket of another user.*remove it"):
                put("left-over", {"socket": str(left_over)})
            said = call(program, "attach", "old")
            assert said.done, said.text
            assert served_at() == str(old), "it runs as it was"
            domain.stop()
            domain.start()
            eventually("it has the new one", lambda: served_at() == str(new))
    finally:
        domain.remove()
