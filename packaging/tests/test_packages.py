# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The packages on hosts that have nothing of ours: installed, used, upgraded, downgraded,
removed and purged, by dpkg and systemd."""

import json
import re
import time

import pytest
from container import Container
from testbed import artefacts
from testbed.host import Host
from testbed.wait import until
from versions import NEW, OLD

HOST_PACKAGES = ("ccc-vhost", "cccctl", "qemu-system-x86-ccc")
QEMU = "/usr/lib/ccc/qemu-system-x86_64"
HOOK = "/etc/libvirt/hooks/qemu.d/ccc"
CONFIGURATION = "/etc/ccc/ccc.toml"
# What dpkg and systemd keep of packages that were there once.
KEPT = (
    "/var/lib/dpkg", "/var/log", "/var/cache", "/var/lib/systemd/deb-systemd-helper",
    "/run", "/tmp", "/proc", "/sys",
)  # fmt: skip
# Debian's packages leave the users they made, whose files may be elsewhere.
USERS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid")


@pytest.fixture(params=["bookworm", "trixie"])
def host(request, packages, tmp_path):
    with Container(artefacts.build(request.param), tmp_path, packages) as container:
        yield container.host


def install(host: Host, version: str) -> None:
    """dpkg refuses, if what a package depends on is not there."""
    files = [f"/packages/{version}/{name}_{version}_amd64.deb" for name in HOST_PACKAGES]
    # Asks nothing: a configuration that was changed stays.
    host.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confold", "--install", *files)


def is_well(host: Host) -> bool:
    return host.attempt("cccctl", "status").ok


def files(host: Host) -> set[str]:
    """Every file of the host, but for what packages and services keep on any."""
    pruned = [word for path in KEPT for word in ("-path", path, "-prune", "-o")]
    listed = host.run("find", "/", "-xdev", *pruned, "-type", "f", "-print").splitlines()
    return {path for path in listed if path.rstrip("-") not in USERS}


def test_a_host_has_the_service_and_gives_it_back(host):
    before = files(host)
    install(host, OLD)
    assert host.run("systemctl", "is-active", "ccc-vhost").strip() == "active"
    assert is_well(host)
    assert "vhost-user-ccc-pci" in host.run(QEMU, "-device", "help")
    host.run("systemctl", "enable", "--now", "libvirtd", "ccc-watch")

    host.run("cccctl", "group", "uplink", "--share", "window")
    host.run("sh", "-c", f"echo '# the operator' >> {CONFIGURATION}")
    for version in (NEW, OLD):
        install(host, version)
        until(f"{version} is well", lambda: is_well(host))
        if version == NEW:
            assert f"ccc-vhost {NEW}:" in host.run("cccctl", "status")
        assert "window" in host.run("cccctl", "group", "uplink")
        assert "the operator" in host.run("cat", CONFIGURATION)
        # It ends with the daemon, and systemd starts it again.
        until("domains are watched", lambda: host.attempt("systemctl", "is-active", "ccc-watch").ok)

    # As a daemon that was killed leaves one, of a tap that has gone.
    host.run("ip", "link", "add", "ccc-ifb9", "type", "ifb")
    host.run("ip", "link", "set", "ccc-ifb9", "alias", f"ccc-vhost holds gone0 by {CONFIGURATION}")
    install(host, NEW)
    host.run("dpkg", "--remove", *HOST_PACKAGES)
    assert "ccc-ifb9" not in host.run("ip", "link")
    assert not host.attempt("systemctl", "is-active", "ccc-vhost").ok
    # libvirt's hook stays until it is purged, and must stop no domain.
    host.run(HOOK, "web", "prepare", "begin", "-", stdin=DOMAIN)
    host.run("dpkg", "--purge", *HOST_PACKAGES)
    assert files(host) - before == set()


DOMAIN = """<domain type='kvm'><name>web</name><metadata>
<ccc:vm xmlns:ccc='urn:ccc:vm:1' group='uplink'/></metadata></domain>"""


@pytest.mark.parametrize(("daemon", "tool"), [(NEW, OLD), (OLD, NEW)])
def test_daemon_and_tool_may_be_of_two_releases(host, daemon, tool):
    files = [f"/packages/{daemon}/ccc-vhost_{daemon}_amd64.deb", f"/packages/{tool}/cccctl_{tool}_amd64.deb"]
    host.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confold", "--install", *files)
    until("it is well", lambda: is_well(host))
    assert f"ccc-vhost {daemon}:" in host.run("cccctl", "status")
    # As the hook of a domain does.
    host.run(HOOK, "web", "prepare", "begin", "-", stdin=DOMAIN)
    assert "uplink" in host.run("cccctl", "show", "web")
    host.run("cccctl", "set", "web", "--weight", "3")
    host.run("cccctl", "group", "uplink", "--share", "window")
    for command in ("list", "groups", "rules"):
        host.run("cccctl", command)
    if daemon == OLD:
        refused = host.attempt("cccctl", "trial", "uplink")
        assert not refused.ok and "upgrade ccc-vhost" in refused.stderr
    # What the one has kept, the other reads.
    install(host, OLD if daemon == NEW else NEW)
    until("it is well with the other", lambda: "3" in host.attempt("cccctl", "show", "web").stdout)
    assert "window" in host.run("cccctl", "group", "uplink")
    # Its domain has not started, so all is not well.
    assert json.loads(host.attempt("cccctl", "--json", "status").stdout)["not_kept"] is None
    host.run("cccctl", "remove", "web")


def test_a_downgrade_costs_a_vm_its_cap_alone(host):
    install(host, NEW)
    until("it is well", lambda: is_well(host))
    host.run(HOOK, "web", "prepare", "begin", "-", stdin=DOMAIN)
    host.run("cccctl", "set", "web", "--weight", "3", "--cap", "5gbit")
    install(host, OLD)
    until("the older one answers", lambda: host.attempt("cccctl", "list").ok)
    web = json.loads(host.run("cccctl", "--json", "show", "web"))
    assert (web["weight"], web["group"]) == (3, "uplink"), web
    told = json.loads(host.attempt("cccctl", "--json", "status").stdout)["not_kept"]
    assert "invalid caps" in told, told
    # A cap in the configuration is for the operator to take out, and is named.
    host.run("sh", "-c", f"printf '[vm.mail]\\nsocket = \"/run/ccc/vm/m\"\\ncap_mbit = 5\\n' >> {CONFIGURATION}")
    checked = host.attempt("ccc-vhost", "--config", CONFIGURATION, "--check")
    assert not checked.ok and "vm.mail.cap_mbit" in checked.text, checked.text


def test_systemd_keeps_the_daemon_up(host):
    install(host, OLD)
    until("it is well", lambda: is_well(host))
    for signal in ("KILL", "STOP"):
        pid = main_pid(host)
        host.run("systemctl", "kill", f"--signal={signal}", "ccc-vhost")
        # systemd gives one that hangs up after WatchdogSec.
        until(f"it is back after SIG{signal}", lambda: main_pid(host) not in ("0", pid) and is_well(host))


def test_a_daemon_that_is_stopped_stays_so_and_does_nothing_of_what_it_was_asked_for(host):
    """That is how coupling is switched off, whoever asks for something meanwhile."""
    install(host, NEW)
    until("it is well", lambda: is_well(host))
    host.run("systemctl", "enable", "--now", "libvirtd", "ccc-watch")
    until("domains are watched", lambda: host.attempt("systemctl", "is-active", "ccc-watch").ok)
    assert share(host) == "rate"
    host.run("systemctl", "stop", "ccc-vhost")
    refused = host.attempt("cccctl", "group", "uplink", "--share", "window")
    assert not refused.ok and "systemctl start ccc-vhost" in refused.stderr, refused.text
    # It starts uncoupled.
    host.run(HOOK, "web", "prepare", "begin", "-", stdin=DOMAIN)
    # ccc-watch looks twice a second whether the daemon is there.
    time.sleep(3)
    assert host.attempt("systemctl", "is-active", "ccc-vhost").stdout.strip() == "inactive"

    host.run("systemctl", "start", "ccc-vhost")
    assert share(host) == "rate", "a change that had failed was made"
    assert not host.attempt("cccctl", "show", "web").ok, "a VM that nobody could tell of is there"


def share(host: Host) -> str:
    return json.loads(host.run("cccctl", "--json", "group", "uplink"))["share"]


def test_the_unit_lets_the_daemon_confine_itself(host):
    install(host, NEW)
    until("it is well", lambda: is_well(host))
    said = host.run("journalctl", "--unit=ccc-vhost")
    assert "system calls by seccomp" in said and "files by landlock" in said, said
    # The journal has whose matter a line is, and who has changed it.
    host.run(HOOK, "web", "prepare", "begin", "-", stdin=DOMAIN)
    host.run("cccctl", "set", "web", "--weight", "3")
    told = host.run("journalctl", "--unit=ccc-vhost", "--output=json", "VM=web", "AUDIT=change")
    last = json.loads(told.splitlines()[-1])
    assert "weight 1 → 3" in last["MESSAGE"] and last["PEER"].startswith("uid 0 pid "), last
    host.run("cccctl", "remove", "web")


def test_hosts_without_a_hypervisor_have_the_loader_and_give_it_back(host):
    before = files(host)
    for name in ("ccc-bpf", "ccc-agent"):
        host.run("dpkg", "--install", f"/packages/{NEW}/{name}_{NEW}_amd64.deb")
    for unit in ("ccc-bpf", "ccc-relay"):
        assert host.attempt("systemctl", "is-enabled", unit).stdout.strip() == "disabled"
    assert host.run("ccc-bpf", "--version").strip()
    # A guest couples by one of them.
    refused = host.attempt("dpkg", "--install", f"/packages/{NEW}/ccc-guest-dkms_{NEW}_all.deb")
    assert not refused.ok and "conflict" in refused.text
    host.run("dpkg", "--purge", "ccc-agent", "ccc-bpf")
    assert files(host) - before == set()


def test_a_host_without_libvirt_needs_none_of_it(host):
    host.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", "purge", "libvirt-*", "libvirt0")
    host.attempt("deluser", "libvirt-qemu")
    host.attempt("groupdel", "libvirt-qemu")
    assert not host.attempt("getent", "group", "libvirt-qemu").ok
    words = "apt-get --yes --no-install-recommends install ./ccc-vhost_*.deb ./cccctl_*.deb ./ccc-bpf_*.deb"
    host.run("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", f"cd /packages/{NEW} && {words}")
    until("it is well", lambda: is_well(host))
    there = host.run("dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Package}\n")
    assert "ii  libvirt" not in there, there
    directories = ("/run/ccc", "/run/ccc/vm", "/run/ccc/control", "/run/ccc/tenant")
    owners = host.run("stat", "--format=%U:%G", *directories).split()
    assert owners == ["ccc:libvirt-qemu", "ccc:libvirt-qemu", "ccc:ccc", "ccc:ccc"]
    host.run("cccctl", "tenant", "add", "web", "--cgroup", "system.slice", "--group", "uplink")


def commands(way: str) -> list[str]:
    """What a host's operator types for a way of the README to have a tenant."""
    readme = (artefacts.PROJECT / "README.md").read_text()
    block = re.search(rf"^\*\*{re.escape(way)}\*\*.*?^```\n(.*?)^```", readme, re.M | re.S)
    assert block, f"the README has no way '{way}'"
    lines = (line.partition("#") for line in block[1].splitlines())
    return [command.strip() for command, _, where in lines if not where.strip().startswith("guest")]


@pytest.mark.parametrize("tried", ["bookworm", "trixie"])
def test_the_readmes_commands_have_tenants(packages, tmp_path, tried):
    """As they are there, with packages that wait in the directory."""
    with Container(artefacts.build(tried), tmp_path, packages, bpf=True) as container:
        host = container.host
        # There is no network, and nobody to say yes.
        host.run(
            "sh",
            "-c",
            'printf \'APT::Get::Assume-Yes "1";\\nAPT::Install-Recommends "0";\\n\' >/etc/apt/apt.conf.d/test',
        )
        host.run("systemd-run", "--unit=nginx", "sleep", "infinity")
        for way in ("A cgroup or network namespace of the host", "A VM with the agent"):
            for command in commands(way):
                host.run("sh", "-c", f"cd /packages/{NEW} && {command}")
        for service, says in (("ccc-bpf", "serving"), ("ccc-relay", "vsock")):
            until(f"{service} serves", lambda: says in host.run("journalctl", "--no-pager", f"--unit={service}"))
            assert host.run("systemctl", "show", "--property=NRestarts,ActiveState", service).split() == [
                "NRestarts=0",
                "ActiveState=active",
            ]
        until("nginx is coupled", lambda: json.loads(host.run("cccctl", "--json", "show", "web"))["connected"])
        tenants = json.loads(host.run("cccctl", "--json", "tenant", "list"))["vms"]
        assert {vm["name"]: vm["group"] for vm in tenants} == dict.fromkeys(("web", "batch", "vm2"), "uplink")
        host.run("dpkg", "--purge", "ccc-bpf")


def main_pid(host: Host) -> str:
    return host.run("systemctl", "show", "--value", "--property=MainPID", "ccc-vhost").strip()


def test_a_wrong_configuration_is_said_in_the_journal(host):
    install(host, OLD)
    host.run("sh", "-c", f"printf '[vm.web]\\nweight = 0\\n' >> {CONFIGURATION}")
    host.attempt("systemctl", "restart", "ccc-vhost")
    until("it is said", lambda: "vm.web.weight" in host.run("journalctl", "--unit=ccc-vhost"))
