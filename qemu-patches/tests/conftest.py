# SPDX-License-Identifier: GPL-2.0
"""What the tests of QEMU's device share: a bottleneck, its receiver, daemons and guests.
All of it is real; guests are emulated, so times are those of a slow machine."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from guests import FLOWS, SendingGuest
from testbed import artefacts
from testbed.bottleneck import Bottleneck, Receiver
from testbed.daemon import Daemon
from testbed.host import Namespace
from testbed.older_daemon import OlderDaemon
from testbed.wait import until

pytest_plugins = ["testbed.fixtures"]


@pytest.fixture
def suite() -> str:
    return "test-qemu"


class Bed:
    """One test's bridge, bottleneck, receiver, daemons and guests, and their end."""

    def __init__(self, emulator: Path, directory: Path, stack: ExitStack) -> None:
        self._emulator, self._directory, self._stack = emulator, directory, stack
        self.guests: list[SendingGuest] = []
        self._vms = stack.enter_context(Namespace(f"ccc-vms-{os.getpid()}"))
        far = stack.enter_context(Namespace(f"ccc-far-{os.getpid()}"))
        self._vms.host.run("ip", "link", "add", "br0", "type", "bridge")
        self._vms.host.run("ip", "link", "set", "br0", "up")
        self.receiver: Receiver = Bottleneck(self._vms.host, "br0", far).receiver(directory)
        stack.callback(self.receiver.close)

    def daemon(self, name: str = "vhost", started: bool = True) -> Daemon:
        """A daemon with the VM `guest`."""
        daemon = Daemon.of_vm(self._directory, name)
        self._stack.callback(daemon.stop)
        if started:
            daemon.start()
        return daemon

    def older_daemon(self, name: str) -> OlderDaemon:
        """A daemon from before migration."""
        older = OlderDaemon(self.daemon(name))
        self._stack.callback(older.close)
        return older

    def guest(self, name: str, **options: object) -> SendingGuest:
        self._vms.host.run("ip", "tuntap", "add", name, "mode", "tap")
        self._vms.host.run("ip", "link", "set", name, "master", "br0", "up")
        image = artefacts.build("device-guest")
        self.guests.append(SendingGuest(self._emulator, image, self._directory, name, self._vms.host, **options))
        self._stack.callback(self.guests[-1].close)
        return self.guests[-1]

    def await_coupled(self, guest: SendingGuest, daemon: Daemon, timeout_s: float = 180) -> float:
        """Waits until guest and daemon both say that all flows are coupled; how long that took."""

        def coupled() -> bool:
            return daemon.coupled_flows("guest") == FLOWS and guest.sees() == (FLOWS, FLOWS, 1)

        return until(f"{guest.name}: all flows coupled", coupled, timeout_s)

    def await_alone(self, guest: SendingGuest, what: str) -> None:
        """Waits until the guest has its device and sends, each flow by itself."""
        until(f"{what}: flows, not coupled", lambda: guest.sees() == (FLOWS, 0, 1), 180)
        self.receiver.check(FLOWS, what)


@pytest.fixture
def bed(emulator, logs):
    with ExitStack() as stack:
        bed = Bed(emulator, logs, stack)
        yield bed
        for guest in bed.guests:
            assert not guest.complaints(), guest.name
