# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the tests share: the machine, its bridge, the daemon, and a domain."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from flows import Uplink
from hosts import OtherHost
from qemu.domains import Machine
from qemu.host import Daemon
from qemu.shell import host
from qemu.ssh import Key


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; not in the quick form")


@pytest.fixture(scope="session")
def key(tmp_path_factory) -> Key:
    return Key.make(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="session")
def machine(key) -> Machine:
    return Machine(Path(os.environ["CCC_EMULATOR"]), "tcg", Path(os.environ["CCC_IMAGE"]), key)


@pytest.fixture(scope="session")
def programs() -> Path:
    return Path(os.environ["CCC_PROGRAMS"])


@pytest.fixture(scope="session")
def bridge() -> str:
    host("ip", "link", "add", "testbr", "type", "bridge")
    host("ip", "link", "set", "testbr", "up")
    return "testbr"


@pytest.fixture(scope="session")
def uplink(bridge) -> Uplink:
    return Uplink(bridge)


@pytest.fixture
def daemon(programs, tmp_path):
    with Daemon(programs, tmp_path) as daemon:
        yield daemon


@pytest.fixture
def domain(machine, bridge, daemon, tmp_path):
    domain = machine.define("web", bridge, 1, tmp_path / "console")
    yield domain
    subprocess.run(["virsh", "-q", "destroy", "web"], capture_output=True)
    # Nor is it here, where it migrated and did not come back.
    subprocess.run(["virsh", "-q", "undefine", "web"], capture_output=True)


@pytest.fixture
def sharing(daemon, domain):
    """The domain without the device, but with memory to share."""
    daemon.control("attach", "web")
    daemon.control("detach", "web")
    return domain


@pytest.fixture
def other(bridge, tmp_path):
    with OtherHost(bridge, tmp_path) as other:
        yield other


_MEASURED: list[str] = []


@pytest.fixture
def measured(request) -> Callable[..., None]:
    """Takes what a test measured; it is printed at the end of all."""

    def take(**values: object) -> None:
        said = {what: round(value, 3) if isinstance(value, float) else value for what, value in values.items()}
        _MEASURED.append(f"{request.node.name}: {json.dumps(said)}")

    return take


def pytest_terminal_summary(terminalreporter) -> None:
    for line in _MEASURED:
        terminalreporter.write_line(line)
