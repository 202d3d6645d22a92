# SPDX-License-Identifier: BSD-3-Clause
"""What the tests on a kernel of FreeBSD share: a bottleneck, its receiver, daemons and guests."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from freebsd import FreeBsd
from testbed import artefacts
from testbed.bottleneck import Bottleneck, Receiver
from testbed.daemon import Daemon
from testbed.host import Namespace

sys.path.append(str(artefacts.PROJECT / "qemu-patches" / "tests"))

from guests import SendingGuest  # noqa: E402

pytest_plugins = ["testbed.fixtures"]
# Slow, for a machine that emulates; its queue, of 100 ms, is all the delay there is.
BOTTLENECK = ("tbf", "rate", "10mbit", "burst", "5kb", "limit", "125000")


@pytest.fixture
def suite() -> str:
    return "test-freebsd"


@pytest.fixture(scope="session")
def kernel() -> Path:
    named = os.environ.get("FREEBSD_KERNEL")
    if not named:
        pytest.skip("no kernel: set FREEBSD_KERNEL to a kernel file of FreeBSD 15 (package FreeBSD-kernel-generic)")
    return Path(named)


class Bed:
    """One test's bridge, bottleneck, receiver, daemon and guests, and their end."""

    def __init__(self, emulator: Path, kernel: Path, directory: Path, stack: ExitStack) -> None:
        self._emulator, self._kernel, self._directory, self._stack = emulator, kernel, directory, stack
        self._scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.guests: list[FreeBsd] = []
        self._vms = stack.enter_context(Namespace(f"ccc-vms-{os.getpid()}"))
        self.far = stack.enter_context(Namespace(f"ccc-far-{os.getpid()}"))
        self._vms.host.run("ip", "link", "add", "br0", "type", "bridge")
        self._vms.host.run("ip", "link", "set", "br0", "up")
        self.receiver: Receiver = Bottleneck(self._vms.host, "br0", self.far).receiver(directory)
        self._vms.host.run("tc", "qdisc", "replace", "dev", "uplink", "root", *BOTTLENECK)
        stack.callback(self.receiver.close)

    def another_receiver(self, address: str) -> Receiver:
        """One at another address of the far side."""
        receiver = Receiver(self.far.host, self._directory / "received-another", address)
        self._stack.callback(receiver.close)
        return receiver

    def daemon(self, **weights: int) -> Daemon:
        """A daemon with these VMs behind one bottleneck, each with its weight."""
        sections = "[group.uplink]\n" + "\n".join(
            f'[vm.{name}]\nsocket = "{self.socket(name)}"\ngroup = "uplink"\nweight = {weight}'
            for name, weight in weights.items()
        )
        daemon = Daemon(self._directory, sections, self._directory / "control", name="vhost", log_level="debug")
        self._stack.callback(daemon.stop)
        daemon.start()
        return daemon

    def socket(self, name: str) -> Path:
        return self._directory / f"{name}.sock"

    def _tap(self, name: str) -> None:
        self._vms.host.run("ip", "tuntap", "add", name, "mode", "tap")
        self._vms.host.run("ip", "link", "set", name, "master", "br0", "up")

    def guest(self, name: str, number: int = 2, coupled: bool = True, **options: object) -> FreeBsd:
        """A FreeBSD guest with its modules and the address 10.77.0.NUMBER."""
        self._tap(name)
        guest = FreeBsd(
            self._emulator, self._kernel, self._directory, name, self._vms.host, self._scratch,
            backend=self.socket(name), number=number, **options,
        )  # fmt: skip
        self.guests.append(guest)
        self._stack.callback(guest.close)
        guest.set_up(f"10.77.0.{number}", coupled)
        return guest

    def linux(self, name: str, flows: int) -> SendingGuest:
        """A Linux guest that sends so many coupled flows for ever."""
        self._tap(name)
        guest = SendingGuest(
            self._emulator, artefacts.build("device-guest"), self._directory, name, self._vms.host,
            backend=self.socket(name), flows=flows,
        )  # fmt: skip
        self._stack.callback(guest.close)
        return guest


@pytest.fixture
def bed(emulator: Path, kernel: Path, logs: Path) -> Iterator[Bed]:
    with ExitStack() as stack:
        bed = Bed(emulator, kernel, logs, stack)
        yield bed
        for guest in bed.guests:
            assert not guest.complaints(), guest.name
