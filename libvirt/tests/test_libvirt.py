# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""`cccctl` and the hook against a real libvirtd, with domains that run.

Run by `make test-libvirt`, beside a libvirtd of its own."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from flows import devices, until
from qemu.domains import Domain
from qemu.errors import HostError
from qemu.host import Daemon
from qemu.shell import host

HERE = Path(__file__).parent
QEMU_ARG = "{http://libvirt.org/schemas/domain/qemu/1.0}arg"
URI = "urn:ccc:vm:1"


def persistent() -> str:
    return host("virsh", "-q", "dumpxml", "--inactive", "web")


def arguments() -> list[str]:
    root = ElementTree.fromstring(persistent())
    return [arg.get("value") for arg in root.iter(QEMU_ARG)]


def refused(daemon: Daemon, *arguments: str) -> str:
    with pytest.raises(HostError) as error:
        daemon.control(*arguments)
    return str(error.value)


def guest_sees(domain: Domain) -> bool:
    return "no device" not in domain.run("cat /sys/kernel/debug/ccc/device")


@pytest.mark.parametrize("example", sorted((HERE.parent / "examples").glob("*.xml")), ids=lambda path: path.stem)
def test_libvirt_takes_the_examples(machine, example):
    text = example.read_text().replace("/usr/bin/qemu-system-x86_64", str(machine.emulator))
    name = ElementTree.fromstring(text).findtext("name")
    host("virsh", "-q", "define", "--validate", "/dev/stdin", stdin=text)
    try:
        told = host("virsh", "-q", "metadata", name, URI)
        assert ElementTree.fromstring(told).get("group") == "uplink"
    finally:
        host("virsh", "-q", "undefine", name)


def test_attach_and_detach_leave_nothing_behind(daemon, domain):
    before = persistent()
    assert daemon.control("attach", "web", "--group", "uplink", "--weight", "3") == "web: attached\n"
    attached = persistent()
    assert daemon.control("attach", "web") == "web: attached as it was\n"
    assert persistent() == attached
    assert any("/run/ccc/vm/web.sock" in argument for argument in arguments())
    daemon.control("attach", "web", "--weight", "5")
    told = ElementTree.fromstring(host("virsh", "-q", "metadata", "web", URI))
    assert told.attrib == {"group": "uplink", "weight": "5"}
    assert len(arguments()) == 6
    assert daemon.control("detach", "web") == "web: detached\n"
    assert daemon.control("detach", "web") == "web: was not attached\n"
    backing = "  <memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n  </memoryBacking>\n"
    after = persistent().replace(backing, "").replace("  <metadata/>\n", "")
    assert after.replace(" xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'", "") == before


def test_the_hook_adds_and_removes_the_vm(daemon, domain):
    daemon.control("attach", "web", "--group", "uplink", "--weight", "3")
    assert "no VM `web`" in refused(daemon, "show", "web")
    domain.start()
    vm = daemon.vm("web")
    assert (vm["group"], vm["weight"], vm["connected"]) == ("uplink", 3, True)
    assert guest_sees(domain)
    host("virsh", "-q", "destroy", "web")
    until("removed", lambda: '"web"' not in daemon.control("--json", "list"))


def test_metadata_are_in_force_without_a_reconnect(daemon, domain, measured):
    daemon.control("attach", "web", "--group", "uplink")
    domain.start()
    connected = daemon.log.count("connected")
    for weight in (4, 0.5):
        element = f'<vm group="uplink" weight="{weight}"/>'
        place = ("--domain", "web", "--uri", URI, "--key", "ccc")
        host("virsh", "-q", "metadata", *place, "--set", element, "--live", "--config")
        took = until("in force", lambda: daemon.vm("web")["weight"] == weight)
        measured(weight=weight, in_force_after_s=took)
    daemon.control("attach", "web", "--weight", "7")
    assert daemon.vm("web")["weight"] == 7
    assert daemon.log.count("connected") == connected


def test_a_daemon_that_comes_back_serves_the_domains_that_run(daemon, domain):
    daemon.control("attach", "web", "--group", "uplink", "--weight", "3")
    domain.start()
    for _ in range(5):
        daemon.kill()
        daemon.serve()
        until("connected again", lambda: daemon.vm("web")["connected"])
        vm = daemon.vm("web")
        assert (vm["group"], vm["weight"]) == ("uplink", 3)


def test_a_domain_without_its_metadata_is_as_usual_until_it_stops(daemon, domain):
    daemon.control("attach", "web", "--group", "uplink", "--weight", "3")
    domain.start()
    host("virsh", "-q", "metadata", "web", URI, "--remove", "--live")
    until("as usual", lambda: (daemon.vm("web")["group"], daemon.vm("web")["weight"]) == ("default", 1))
    assert guest_sees(domain)
    host("virsh", "-q", "destroy", "web")
    until("removed", lambda: '"web"' not in daemon.control("--json", "list"))
    # What was removed was the running domain's.
    domain.start()
    assert daemon.vm("web")["weight"] == 3


def test_a_place_that_is_taken_is_left_alone(daemon, domain):
    daemon.control("attach", "web")
    place = "<address type='pci' bus='0x00' slot='0x18'/>"
    taken = f"<rng model='virtio'><backend model='random'>/dev/urandom</backend>{place}</rng>"
    host("virsh", "-q", "attach-device", "web", "/dev/stdin", "--config", stdin=taken)
    with pytest.raises(HostError, match="slot 24 function 0 not available"):
        host("virsh", "-q", "start", "web")
    daemon.control("attach", "web")
    host("virsh", "-q", "start", "web")
    assert "ccc" in devices(domain)


def test_live_attach_and_detach(daemon, sharing):
    domain = sharing
    domain.start()
    assert not guest_sees(domain)
    for weight in (2, 3):
        daemon.control("attach", "web", "--group", "uplink", "--weight", str(weight), "--live")
        assert "ccc" in devices(domain)
        until("connected", lambda: daemon.vm("web")["connected"])
        assert daemon.vm("web")["weight"] == weight
        until("seen by the guest", lambda: guest_sees(domain))
        assert "coupled as it runs" in daemon.control("attach", "web", "--live")
        daemon.control("detach", "web", "--live")
        assert "ccc" not in devices(domain)
        assert "no VM `web`" in refused(daemon, "show", "web")
        until("gone from the guest", lambda: not guest_sees(domain))
    assert arguments() == []


def test_what_fails_is_undone(daemon, domain, machine):
    before = persistent()
    assert "does not run" in refused(daemon, "attach", "web", "--live")
    assert persistent() == before
    domain.start()
    assert "memory of domain web is not shared" in refused(daemon, "attach", "web", "--live")
    assert "no group `nil`" in refused(daemon, "attach", "web", "--group", "nil", "--live")
    assert persistent() == before
    assert "no VM `web`" in refused(daemon, "show", "web")
    assert URI not in host("virsh", "-q", "dumpxml", "web")
    assert "ccc" not in devices(domain)
    assert "failed to get domain 'nil'" in refused(daemon, "attach", "nil")
