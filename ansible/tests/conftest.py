# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Fixtures of the collection's tests: `make ansible-test`."""

import fcntl
import os
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "packaging" / "tests")]

from bed import GUESTS, HOST, RECEIVER, Controller, FreshHost  # noqa: E402
from owner import have_domain  # noqa: E402
from testbed import artefacts  # noqa: E402
from testbed.host import HERE  # noqa: E402
from testbed.machine import VirtualMachine, key_of  # noqa: E402

pytest_plugins = ["testbed.fixtures"]
# Debian 13 by RELEASE=trixie, another ansible-core by ANSIBLE=ansible-2.14 or a directory of programs.
RELEASE = os.environ.get("RELEASE") or "bookworm"
ANSIBLE = os.environ.get("ANSIBLE") or "ansible"
RATE_MBIT = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: the others are done beside it."""
    items.sort(key=lambda item: "site" not in item.fixturenames)


@pytest.fixture(scope="session")
def suite() -> str:
    return "ansible-test"


@pytest.fixture(scope="session")
def programs() -> Path:
    """Where ansible-playbook is."""
    return Path(ANSIBLE) if "/" in ANSIBLE else artefacts.build(ANSIBLE)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree's packages, of which all workers have one copy; PACKAGES=DIR takes those there."""
    if made := os.environ.get("PACKAGES"):
        return Path(made)
    root = tmp_path_factory.getbasetemp()
    directory = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "packages"
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            HERE.run("env", f"OUT={directory}", PROJECT / "scripts/packages")
    return directory


@pytest.fixture
def machine(logs, programs, packages):
    """A fresh virtual machine, and the controller that knows it as `fresh`."""
    machine = VirtualMachine(RELEASE, logs, "fresh")
    try:
        machine.boot()
        controller = Controller(logs, programs)
        controller.variables |= {"ansible_ssh_private_key_file": str(machine.key)}
        controller.add("fresh", "fresh", ansible_host="127.0.0.1", ansible_port=machine.port)
        yield machine, controller
    finally:
        machine.close()


def _controller(host: FreshHost, logs: Path, programs: Path, packages: Path) -> Controller:
    controller = Controller(logs, programs, host.enter_network)
    key = key_of(host.files, logs)
    controller.variables |= {"ansible_ssh_private_key_file": str(key), "packages": str(packages)}
    controller.add("host", "hosts", ansible_host=HOST)
    return controller


@pytest.fixture
def bare(logs, tmp_path, programs, packages):
    """A fresh host with nothing on it, and the controller that knows it."""
    with FreshHost(RELEASE, tmp_path, RATE_MBIT, guests=()) as host:
        yield host, _controller(host, logs, programs, packages)


@pytest.fixture
def owned(logs, tmp_path, programs, packages):
    """A host with libvirt and a domain, as its owner has it, and the controller that knows it."""
    with FreshHost(RELEASE, tmp_path, RATE_MBIT, guests=()) as host:
        have_domain(host, packages, "alice")
        yield host, _controller(host, logs, programs, packages)


@pytest.fixture
def site(logs, tmp_path, programs, packages):
    """A fresh host with a bottleneck, and the controller that knows it, its guests to be, and the receiver."""
    with FreshHost(RELEASE, tmp_path, RATE_MBIT) as host:
        controller = _controller(host, logs, programs, packages)
        controller.add("receiver", "receivers", ansible_host=RECEIVER)
        for name, address in GUESTS.items():
            controller.add(name, "guests", ansible_host=address)
        yield host, controller
