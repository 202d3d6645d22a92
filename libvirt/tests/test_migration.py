# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Live migration through libvirt, between two hosts with a daemon each."""

import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from coupled_flows import COUNT, all_coupled, daemon_has_all, send
from testbed.errors import CommandError
from testbed.host import stop
from testbed.libvirt import Guest, HostDaemon, set_metadata
from testbed.wait import until

pytestmark = pytest.mark.slow

COUPLED_WITHIN_S = 1.0


@dataclass(frozen=True)
class Side:
    """A host, and the domain as it is when it is there."""

    domain: Guest
    daemon: HostDaemon
    address: str

    @property
    def uri(self) -> tuple[str, str]:
        """Of its libvirtd, and for its QEMU."""
        return f"qemu+tcp://{self.address}/system", f"tcp://{self.address}"

    def has_vm(self) -> bool:
        return self.daemon.vm("web") is not None

    def has_all(self) -> bool:
        """All connections are coupled here, to where the domain may be on its way."""
        self.domain.prioritise()
        return self.has_vm() and daemon_has_all(self.daemon, "web")


@pytest.fixture
def sides(domain, daemon, other, tmp_path):
    directory = tmp_path / "there"
    directory.mkdir()
    with HostDaemon(directory, host=other.host) as far:
        yield Side(domain, daemon, other.here), Side(Guest("web", other.host), far, other.there)


class Resumed:
    """When libvirt says that a domain goes on after it came."""

    def __init__(self, side: Side, log: Path) -> None:
        command = ["virsh", "event", "--event", "lifecycle", "--loop", "--timestamp"]
        self._log = log
        with log.open("w") as file:
            self._process = side.domain.host.start(*command, stdout=file)

    def at(self) -> float:
        event = r"^(\S+ \S+): event 'lifecycle' for domain 'web': Resumed Migrated"
        until("resumed", lambda: re.search(event, self._log.read_text(), re.M))
        stop(self._process)
        when = re.search(event, self._log.read_text(), re.M)[1]
        return datetime.strptime(when, "%Y-%m-%d %H:%M:%S.%f%z").timestamp()


def migrate(source: Side, target: Side, log: Path, *how: str) -> float:
    """Seconds from when the guest went on until all was coupled again."""
    resumed = Resumed(target, log)
    command = ["virsh", "-q", "migrate", "--live", "--persistent", "--undefinesource", *how, "web", *target.uri]
    with source.domain.host.start(*command) as virsh:
        until("arrived", lambda: virsh.poll() or target.has_all())
        arrived = time.time()
    assert virsh.returncode == 0
    until("its agent is there", target.domain.answers)
    return arrived - resumed.at()


def test_a_domain_migrates_there_and_back(sides, receiver, tmp_path, measured):
    here, there = sides
    here.daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3")
    here.domain.boot()
    send(here.domain)
    until("coupled", lambda: all_coupled(here.domain, here.daemon))
    began = time.time()
    # By the source's libvirtd, and by virsh; a weight that was set goes along.
    for source, target, how, weight in ((here, there, ("--p2p",), 3), (there, here, (), 5)):
        took = migrate(source, target, tmp_path / "events", *how)
        measured(to=target.address, coupled_again_s=took)
        assert took <= COUPLED_WITHIN_S
        until("the guest says so too", lambda: all_coupled(target.domain, target.daemon))
        vm = target.daemon.vm("web")
        assert (vm["group"], vm["weight"], vm["connected"]) == ("uplink", weight, True)
        until("the source has forgotten it", lambda: not source.has_vm())
        target.daemon.cccctl("attach", "web", "--weight", "5")
    standstill_s = receiver.standstill_s(began)
    receiver.check(COUNT, "after the migrations")
    measured(migrations=2, standstill_s=standstill_s)


def test_what_was_plugged_or_unplugged_migrates_as_it_is(sides, sharing, receiver, tmp_path):
    here, there = sides
    sharing.boot()
    send(sharing)
    here.daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3", "--live")
    until("coupled", lambda: all_coupled(here.domain, here.daemon))
    migrate(here, there, tmp_path / "events")
    assert all_coupled(there.domain, there.daemon)
    saved = str(tmp_path / "saved")
    there.domain.virsh("save", "web", saved)
    until("forgotten", lambda: not there.has_vm())
    there.domain.virsh("restore", saved)
    there.domain.prioritise()
    until("its agent is there", there.domain.answers)
    until("coupled", lambda: all_coupled(there.domain, there.daemon))
    there.daemon.cccctl("detach", "web", "--live")
    there.domain.virsh("migrate", "--live", "web", *here.uri)
    until("its agent is there", here.domain.answers)
    assert "ccc" not in here.domain.devices()
    assert not here.has_vm()
    assert "no device" in here.domain.run("cat /sys/kernel/debug/ccc/device")
    receiver.check(COUNT, "after the migrations")


@pytest.fixture
def nowhere(sides):
    """A domain that runs, with a group that the destination does not have."""
    here, _ = sides
    here.daemon.cccctl("attach", "web", "--group", "uplink")
    here.domain.boot()
    set_metadata("web", '<vm group="nowhere"/>', "--live")
    return sides


def test_a_destination_that_requires_coupling_refuses_and_the_source_runs_on(nowhere):
    here, there = nowhere
    choice = "mkdir -p /etc/ccc; echo 'require = true' >/etc/ccc/cccctl.toml"
    there.domain.host.run("sh", "-c", choice)
    with pytest.raises(CommandError, match="invalid group: expected the name of a group"):
        here.domain.virsh("migrate", "--live", "web", *there.uri)
    assert here.domain.virsh("domstate", "web").strip() == "running"
    assert here.daemon.vm("web")["group"] == "uplink"
    assert not there.has_vm()


def test_f1_a_destination_without_the_group_takes_it_uncoupled(nowhere):
    here, there = nowhere
    here.domain.virsh("migrate", "--live", "web", *there.uri)
    until("its agent is there", there.domain.answers)
    assert there.daemon.vm("web")["group"] is None
    there.daemon.cccctl("set", "web", "--group", "uplink")
    until("coupled when all is well", lambda: there.daemon.vm("web")["group"] == "uplink")
    there.domain.virsh("destroy", "web")
