# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The roles of hosts on one in namespaces, at full speed: removal, upgrades, plays that are interrupted."""

import json
import shutil
from pathlib import Path

from owner import DOMAIN, EMULATOR, state
from testbed.host import HERE
from testbed.wait import until

ALL = {
    "host_operators": "ops", "host_operators_members": ["root"], "host_metrics": "127.0.0.1:9170",
    "host_metrics_from": ["127.0.0.1/32"], "host_groups": {"uplink": {"enforce": "on"}}, "host_patience": 3,
    "host_rules": [{"destination": "192.0.2.0/24", "group": "none"}], "host_daemon": {"max_flows": 5000},
}  # fmt: skip
ALICE = {"domain_list": [{"name": "alice"}]}
NEWER = "99.0"
# Ends whoever is logged in, and what they do, when the daemon runs and the hook is not there.
CUT = """until systemctl -q is-active ccc-vhost; do sleep 0.02; done
pkill -KILL sshd; pkill -KILL -x apt-get; pkill -KILL -x dpkg; pkill -KILL python3"""


def have(controller, role: str, *arguments: str, **variables: object):
    return controller.play("role.yml", *arguments, role=role, where="hosts", **variables)


def host_role(controller, packages, *arguments: str, **variables: object):
    return have(controller, "host", *arguments, **{"host_kvm": False, "host_packages": str(packages)} | variables)


def half_unpacked(host, package: str) -> None:
    """As dpkg knows a package when the power goes while it unpacks."""
    state = "install reinstreq half-installed"
    host.host.run("sed", "-i", f"/^Package: {package}$/,/^$/s/^Status: .*/Status: {state}/", "/var/lib/dpkg/status")


def connected(host) -> list[str]:
    vms = json.loads(host.host.run("cccctl", "--json", "list"))["vms"]
    return [vm["name"] for vm in vms if vm["connected"]]


def pid_of(host, name: str) -> str:
    return host.host.run("cat", f"/run/libvirt/qemu/{name}.pid")


def version(host) -> str:
    return host.host.run("dpkg-query", "--show", "--showformat=${Version}", "ccc-vhost")


def newer(host, packages: Path, directory: Path) -> str:
    """A line for apt of a repository of these packages in a later version."""
    repository = host.root / "repository"
    repository.mkdir()
    for file in packages.glob("*_amd64.deb"):
        tree = directory / file.name
        HERE.run("dpkg-deb", "--raw-extract", file, tree)
        control = tree / "DEBIAN/control"
        lines = [
            f"Version: {NEWER}" if line.startswith("Version:") else line for line in control.read_text().splitlines()
        ]
        control.write_text("\n".join(lines) + "\n")
        HERE.run("dpkg-deb", "--build", "-Znone", tree, repository)
        shutil.rmtree(tree)
    (repository / "Packages").write_text(HERE.run("env", "-C", repository, "dpkg-scanpackages", "-m", "."))
    return "deb [trusted=yes] file:/repository ./"


def test_a_domain_is_told_from_others_and_left_as_it_is_where_a_step_cannot_be_done(owned, packages):
    host, controller = owned
    assert host_role(controller, packages).status == 0
    run = host.host.run
    # Of the same name but for a blank; and one that libvirt would forget.
    for command, name in (("define", "alice "), ("create", "bob")):
        text = DOMAIN.replace("<name>NAME", f"<name>{name}").replace("NAME", "x")
        run("virsh", "-q", command, "/dev/stdin", stdin=text)

    def described() -> dict[str, str]:
        uuids = run("virsh", "-q", "list", "--all", "--uuid").split()
        return {uuid: run("virsh", "-q", "dumpxml", "--inactive", uuid) for uuid in uuids}

    before = described()
    (alice,) = (uuid for uuid, text in before.items() if "<name>alice</name>" in text)

    assert have(controller, "domain", **ALICE).status == 0
    device = "vhost-user-ccc-pci"
    assert device in run("virsh", "-q", "dumpxml", "--inactive", alice)
    transient = have(controller, "domain", domain_list=[{"name": "bob"}])
    assert transient.status != 0 and "domain bob: it is transient" in transient.text, transient.why
    assert "bob" in run("virsh", "-q", "list", "--name", "--transient")
    none = have(controller, "domain", domain_list=[{"name": "alice", "state": "absent", "emulator": "/none"}])
    assert none.status != 0 and "invalid emulator: expected a program, got /none" in none.text, none.why
    assert device in run("virsh", "-q", "dumpxml", "--inactive", alice), "it was detached nevertheless"
    changed = {uuid for uuid, text in described().items() if text != before[uuid]}
    assert changed == {alice}


def test_removal_leaves_a_host_as_it_was(owned, packages):
    """Whatever was configured; not while a domain needs it, whether it runs with it or is to."""
    host, controller = owned
    host.host.run("groupadd", "--system", "ops")
    before = state(host)
    there = host_role(controller, packages, **ALL)
    assert there.status == 0, there.why
    again = host_role(controller, packages, **ALL)
    assert again.status == 0 and again.changed["host"] == 0, again.why
    confined = host.host.run("cat", "/etc/apparmor.d/local/usr.sbin.libvirtd")
    assert "/usr/lib/ccc/qemu-system-x86_64 PUx," in confined

    assert have(controller, "domain", **ALICE).status == 0
    host.host.run("virsh", "-q", "start", "alice")
    away = {"domain_list": [{"name": "alice", "state": "absent", "emulator": EMULATOR}]}
    detached = have(controller, "domain", **away)
    assert detached.status == 0 and "alice: attached or detached from the next start on" in detached.text, detached.why
    refused = host_role(controller, packages, host_state="absent", **ALL)
    assert refused.status != 0 and "detach alice first" in refused.text, refused.why
    host.host.run("virsh", "-q", "destroy", "alice")
    host.host.run("virsh", "-q", "start", "alice")
    pid = pid_of(host, "alice")

    told = host_role(controller, packages, "--check", host_state="absent", **ALL)
    assert told.status == 0 and told.changed["host"] > 0, told.why
    assert host.host.attempt("cccctl", "status").ok, "check mode has removed something"
    half_unpacked(host, "cccctl")
    removed = host_role(controller, packages, host_state="absent", **ALL)
    assert removed.status == 0, removed.why
    after = state(host)
    assert {line for line in after ^ before if not line.startswith("ops:")} == set()
    assert pid_of(host, "alice") == pid, "a domain was ended"


def test_a_play_that_is_interrupted_between_package_and_hook_harms_no_domain(owned, packages):
    host, controller = owned
    host.host.run("virsh", "-q", "start", "alice")
    pid = pid_of(host, "alice")
    host.host.run("systemd-run", "--quiet", "sh", "-c", CUT)
    broken = host_role(controller, packages)
    assert broken.status != 0, "it was not interrupted"
    assert not host.host.attempt("test", "-e", "/usr/bin/cccctl").ok, "the hook was there already"

    assert pid_of(host, "alice") == pid
    host.host.run("virsh", "-q", "destroy", "alice")
    host.host.run("virsh", "-q", "start", "alice")
    pid = pid_of(host, "alice")
    host.host.run("systemctl", "restart", "ssh")
    half_unpacked(host, "ccc-vhost")
    converged = host_role(controller, packages)
    assert converged.status == 0, converged.why
    again = host_role(controller, packages)
    assert again.status == 0 and again.changed["host"] == 0, again.why
    assert pid_of(host, "alice") == pid, "a domain was ended"


def test_a_host_is_left_as_it_was_where_packages_or_settings_are_wrong(owned, packages):
    """What only apt and the daemon know is found before anything is installed, in check mode, too."""
    host, controller = owned
    before = state(host)
    wrong = (
        ({"host_groups": {"uplink": {"equivalent_tcps": 0}}}, "invalid group.uplink.equivalent_tcps"),
        ({"host_daemon": {"max_flows": -1}}, "max_flows"),
        ({"host_rules": [{"destination": "192.0.2.0/99", "group": "none"}]}, "destination"),
        ({"host_packages": ""}, "missing packages: expected ccc-vhost, cccctl, qemu-system-x86-ccc in apt's sources"),
        ({"host_operators": "ops", "host_operators_members": ["eve"]}, "expected users of the host, got eve"),
    )
    for variables, told in wrong:
        for arguments in ((), ("--check",)):
            refused = host_role(controller, packages, *arguments, **variables)
            assert refused.status != 0 and told in refused.text, refused.why
    assert state(host) ^ before == set()


def test_a_daemon_is_upgraded_under_a_running_domain(owned, packages, tmp_path):
    """From a repository; and one that would not take its configuration is not installed."""
    host, controller = owned
    assert host_role(controller, packages).status == 0
    assert have(controller, "domain", **ALICE).status == 0
    host.host.run("virsh", "-q", "start", "alice")
    until("alice is connected", lambda: connected(host) == ["alice"])
    pid, old = pid_of(host, "alice"), version(host)

    later = {"host_packages": "", "host_repository": newer(host, packages, tmp_path), "host_version": "latest"}
    wrong = {"host_groups": {"uplink": {"wieght": 3}}}
    before = state(host)
    for arguments in ((), ("--check",)):
        refused = host_role(controller, packages, *arguments, **later | wrong)
        assert refused.status != 0 and "invalid group.uplink.wieght" in refused.text, refused.why
    assert state(host) ^ before == set() and connected(host) == ["alice"]

    upgraded = host_role(controller, packages, **later)
    assert upgraded.status == 0, upgraded.why
    assert version(host) == NEWER != old
    assert connected(host) == ["alice"] and pid_of(host, "alice") == pid
    again = host_role(controller, packages, **later)
    assert again.status == 0 and again.changed["host"] == 0, again.why
