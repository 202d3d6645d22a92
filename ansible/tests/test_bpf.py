# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Tenants by BPF: the host's loader and relay, and the agent of guests, by their roles."""

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest
from test_host import have
from testbed.wait import until

HOST = {"host_kvm": False, "host_qemu": False, "host_bpf": True, "host_groups": {"uplink": {}}}
AS_GUEST = {"guest_agent_require_vsock": False}
LOADER, AGENT = ("ccc-bpf", "ccc-relay"), ("ccc-agent",)


@pytest.fixture(autouse=True)
def the_kernels_names() -> Iterator[None]:
    """An algorithm's name is one in a kernel, and the machines here have one kernel: one of them at a time."""
    with (Path(gettempdir()) / "ccc-ansible-bpf.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def states(host, units: tuple[str, ...]) -> list[str]:
    return [host.host.attempt("systemctl", "is-active", unit).stdout.strip() for unit in units]


def is_pinned(host) -> bool:
    """Whether the program is in the kernel."""
    return (host.pins / "ccc").exists()


def test_a_host_has_tenants_by_bpf_and_gives_the_program_back(bare, packages):
    host, controller = bare
    wanted = HOST | {"host_packages": str(packages)}
    assert (played := have(controller, "host", **wanted)).status == 0, played.why
    assert states(host, LOADER) == ["active", "active"]
    host.host.run("systemd-run", "--unit=nginx", "sleep", "infinity")
    host.host.run("cccctl", "tenant", "add", "web", "--cgroup", "system.slice/nginx.service", "--group", "uplink")
    until("it is coupled", lambda: json.loads(host.host.run("cccctl", "--json", "show", "web"))["connected"])
    again = have(controller, "host", **wanted)
    assert again.status == 0 and again.changed["host"] == 0, again.why
    assert is_pinned(host)
    both = have(controller, "guest_agent", **AS_GUEST | {"guest_agent_packages": str(packages)})
    assert both.status != 0 and "expected one without ccc-bpf.service" in both.text, both.why
    assert both.changed["host"] == 0
    gone = have(controller, "guest_agent", guest_agent_state="absent")
    assert gone.status == 0 and gone.changed["host"] == 0, "it has no agent, and keeps what is the host's"
    assert states(host, LOADER) == ["active", "active"]

    without = have(controller, "host", **wanted | {"host_bpf": False})
    assert without.status == 0, without.why
    assert "Wait for the VMs that were connected (" not in without.text, "its tenant does not come back"
    assert states(host, LOADER) == ["inactive", "inactive"]
    assert not is_pinned(host)
    again = have(controller, "host", **wanted | {"host_bpf": False})
    assert again.status == 0 and again.changed["host"] == 0, again.why


def test_a_guest_has_the_agent_and_gives_the_program_back(bare, packages):
    """One without a host to speak to, whose connections go on alone."""
    host, controller = bare
    wanted = AS_GUEST | {"guest_agent_packages": str(packages)}
    assert (played := have(controller, "guest_agent", **wanted)).status == 0, played.why
    assert states(host, AGENT) == ["active"]
    until("it has its program", lambda: is_pinned(host))
    again = have(controller, "guest_agent", **wanted)
    assert again.status == 0 and again.changed["host"] == 0, again.why
    other = have(controller, "guest_agent", **wanted | {"guest_agent_cgroup": "/system.slice"})
    assert other.status == 0 and other.changed["host"] == 2, other.why
    assert "--cgroup /system.slice" in host.host.run("ps", "-C", "ccc-bpf", "-o", "args=")
    both = have(controller, "host", **HOST | {"host_packages": str(packages)})
    assert both.status != 0 and "expected false on a machine with ccc-agent" in both.text, both.why
    assert both.changed["host"] == 0
    # It is no host, and keeps what is the guest's.
    assert (no_host := have(controller, "host", host_state="absent")).status == 0, no_host.why
    assert states(host, AGENT) == ["active"]

    assert (gone := have(controller, "guest_agent", guest_agent_state="absent")).status == 0, gone.why
    assert not host.host.attempt("test", "-e", "/usr/bin/ccc-bpf").ok
    assert not is_pinned(host)
