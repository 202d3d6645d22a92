# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the tests share: the machine, its bridge, the daemon, and a domain.

All of it is on a host of its own (experiments/testbed/private-libvirt)."""

import pytest
from testbed import artefacts
from testbed.bottleneck import Bottleneck
from testbed.host import HERE, Namespace, OtherHost
from testbed.libvirt import HostDaemon, Machine
from testbed.ssh import Key

pytest_plugins = ["testbed.fixtures"]


@pytest.fixture(scope="session")
def key(tmp_path_factory) -> Key:
    return Key.make(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="session")
def machine(emulator, key) -> Machine:
    return Machine(emulator, "tcg", artefacts.build("image"), key)


@pytest.fixture(scope="session")
def bridge() -> str:
    HERE.run("ip", "link", "add", "testbr", "type", "bridge")
    HERE.run("ip", "link", "set", "testbr", "up")
    return "testbr"


@pytest.fixture(scope="session")
def bottleneck(bridge):
    with Namespace("far") as far:
        yield Bottleneck(HERE, bridge, far)


@pytest.fixture
def receiver(bottleneck, tmp_path):
    receiver = bottleneck.receiver(tmp_path)
    yield receiver
    receiver.close()


@pytest.fixture
def daemon(tmp_path):
    with HostDaemon(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def domain(machine, bridge, daemon, tmp_path):
    domain = machine.define("web", bridge, 1, tmp_path / "console")
    yield domain
    # It is not here if it migrated and did not come back.
    domain.remove()


@pytest.fixture
def sharing(daemon, domain):
    """The domain without the device, but with memory to share."""
    daemon.cccctl("attach", "web")
    daemon.cccctl("detach", "web")
    return domain


@pytest.fixture
def other(bridge, tmp_path):
    with OtherHost(bridge, tmp_path) as other:
        yield other
