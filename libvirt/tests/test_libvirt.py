# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""`cccctl` and the hook against a real libvirtd, with domains that run.

Run by `make test-libvirt`, beside a libvirtd of its own."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from testbed.errors import CommandError
from testbed.host import HERE
from testbed.libvirt import METADATA_URI, Guest, HostDaemon, set_metadata
from testbed.wait import until

LIBVIRT = Path(__file__).parents[1]
QEMU_ARG = "{http://libvirt.org/schemas/domain/qemu/1.0}arg"


def persistent() -> str:
    return HERE.run("virsh", "-q", "dumpxml", "--inactive", "web")


def arguments() -> list[str]:
    root = ElementTree.fromstring(persistent())
    return [arg.get("value") for arg in root.iter(QEMU_ARG)]


def refused(daemon: HostDaemon, *arguments: str) -> str:
    with pytest.raises(CommandError) as error:
        daemon.cccctl(*arguments)
    return str(error.value)


def guest_sees(domain: Guest) -> bool:
    return "no device" not in domain.run("cat /sys/kernel/debug/ccc/device")


@pytest.mark.parametrize("example", sorted((LIBVIRT / "examples").glob("*.xml")), ids=lambda path: path.stem)
def test_libvirt_takes_the_examples(machine, example):
    text = example.read_text().replace("/usr/bin/qemu-system-x86_64", str(machine.emulator))
    name = ElementTree.fromstring(text).findtext("name")
    HERE.run("virsh", "-q", "define", "--validate", "/dev/stdin", stdin=text)
    try:
        told = HERE.run("virsh", "-q", "metadata", name, METADATA_URI)
        assert ElementTree.fromstring(told).get("group") == "uplink"
    finally:
        HERE.run("virsh", "-q", "undefine", name)


def test_attach_and_detach_leave_nothing_behind(daemon, domain):
    before = persistent()
    assert daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3") == "web: attached\n"
    attached = persistent()
    assert daemon.cccctl("attach", "web") == "web: attached as it was\n"
    assert persistent() == attached
    assert any("/run/ccc/vm/web.sock" in argument for argument in arguments())
    daemon.cccctl("attach", "web", "--weight", "5")
    told = ElementTree.fromstring(HERE.run("virsh", "-q", "metadata", "web", METADATA_URI))
    assert told.attrib == {"group": "uplink", "weight": "5"}
    assert len(arguments()) == 6
    assert daemon.cccctl("detach", "web") == "web: detached\n"
    assert daemon.cccctl("detach", "web") == "web: was not attached\n"
    backing = "  <memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n  </memoryBacking>\n"
    after = persistent().replace(backing, "").replace("  <metadata/>\n", "")
    assert after.replace(" xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'", "") == before


def test_the_hook_adds_and_removes_the_vm(daemon, domain):
    daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3")
    assert "no VM `web`" in refused(daemon, "show", "web")
    domain.boot()
    vm = daemon.vm("web")
    assert (vm["group"], vm["weight"], vm["connected"]) == ("uplink", 3, True)
    assert guest_sees(domain)
    HERE.run("virsh", "-q", "destroy", "web")
    until("removed", lambda: daemon.vm("web") is None)


def test_metadata_are_in_force_without_a_reconnect(daemon, domain, measured):
    daemon.cccctl("attach", "web", "--group", "uplink")
    domain.boot()
    connected = daemon.log.count("connected")
    for weight in (4, 0.5):
        set_metadata("web", f'<vm group="uplink" weight="{weight}"/>', "--live", "--config")
        took = until("in force", lambda: daemon.vm("web")["weight"] == weight)
        measured(weight=weight, in_force_after_s=took)
    daemon.cccctl("attach", "web", "--weight", "7")
    assert daemon.vm("web")["weight"] == 7
    assert daemon.log.count("connected") == connected


def test_a_daemon_that_comes_back_serves_the_domains_that_run(daemon, domain):
    daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3")
    domain.boot()
    for _ in range(5):
        daemon.kill()
        daemon.start()
        until("connected again", lambda: daemon.vm("web")["connected"])
        vm = daemon.vm("web")
        assert (vm["group"], vm["weight"]) == ("uplink", 3)


def test_a_domain_without_its_metadata_is_as_usual_until_it_stops(daemon, domain):
    daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3")
    domain.boot()
    HERE.run("virsh", "-q", "metadata", "web", METADATA_URI, "--remove", "--live")
    until("as usual", lambda: (daemon.vm("web")["group"], daemon.vm("web")["weight"]) == ("default", 1))
    assert guest_sees(domain)
    HERE.run("virsh", "-q", "destroy", "web")
    until("removed", lambda: daemon.vm("web") is None)
    # What was removed was the running domain's.
    domain.boot()
    assert daemon.vm("web")["weight"] == 3


def test_a_place_that_is_taken_is_left_alone(daemon, domain):
    daemon.cccctl("attach", "web")
    place = "<address type='pci' bus='0x00' slot='0x18'/>"
    taken = f"<rng model='virtio'><backend model='random'>/dev/urandom</backend>{place}</rng>"
    HERE.run("virsh", "-q", "attach-device", "web", "/dev/stdin", "--config", stdin=taken)
    with pytest.raises(CommandError, match="slot 24 function 0 not available"):
        HERE.run("virsh", "-q", "start", "web")
    daemon.cccctl("attach", "web")
    HERE.run("virsh", "-q", "start", "web")
    assert "ccc" in domain.devices()


def test_live_attach_and_detach(daemon, sharing):
    domain = sharing
    domain.boot()
    assert not guest_sees(domain)
    for weight in (2, 3):
        daemon.cccctl("attach", "web", "--group", "uplink", "--weight", str(weight), "--live")
        assert "ccc" in domain.devices()
        until("connected", lambda: daemon.vm("web")["connected"])
        assert daemon.vm("web")["weight"] == weight
        until("seen by the guest", lambda: guest_sees(domain))
        assert "coupled as it runs" in daemon.cccctl("attach", "web", "--live")
        daemon.cccctl("detach", "web", "--live")
        assert "ccc" not in domain.devices()
        assert "no VM `web`" in refused(daemon, "show", "web")
        until("gone from the guest", lambda: not guest_sees(domain))
    assert arguments() == []


def test_what_fails_is_undone(daemon, domain, machine):
    before = persistent()
    assert "does not run" in refused(daemon, "attach", "web", "--live")
    assert persistent() == before
    domain.boot()
    assert "memory of domain web is not shared" in refused(daemon, "attach", "web", "--live")
    assert "no group `nil`" in refused(daemon, "attach", "web", "--group", "nil", "--live")
    assert persistent() == before
    assert "no VM `web`" in refused(daemon, "show", "web")
    assert METADATA_URI not in HERE.run("virsh", "-q", "dumpxml", "web")
    assert "ccc" not in domain.devices()
    assert "failed to get domain 'nil'" in refused(daemon, "attach", "nil")
