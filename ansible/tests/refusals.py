# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What the roles refuse, with what they say: python refusals.py tries what needs no machine.

Roles look for what is wrong whichever tags are asked for.  So with a tag that no task has,
in check mode, a role does nothing but that, on whatever machine this is.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[1]
DEBIAN = {"distribution": "Debian", "distribution_version": "12.9", "distribution_major_version": "12",
          "architecture": "x86_64", "kernel": "6.1.0-1-cloud-amd64"}  # fmt: skip
OLD = DEBIAN | {"distribution_version": "11.9", "distribution_major_version": "11"}
FREEBSD = {"distribution": "FreeBSD", "distribution_version": "15.0", "distribution_major_version": "15"}
HOST = {"host_kvm": False}
GUEST = {"guest_linux_require_device": False}
AGENT = {"guest_agent_require_vsock": False}
ALICE = {"name": "alice"}
FLOWS = [{"name": "alice", "address": "192.0.2.1"}, {"name": "bob", "address": "192.0.2.2"}]


@dataclass(frozen=True)
class Refusal:
    """A role, or the module, with something wrong, and what it says; `facts` are what a machine is said to be."""

    role: str
    variables: dict = field(default_factory=dict)
    told: str = ""
    facts: dict | None = None


def _host(told: str, **variables: object) -> Refusal:
    return Refusal("host", HOST | variables, told)


# Of these each machine is capable, so that they are tried everywhere.
VARIABLES = (
    Refusal("host", HOST, "unsupported release: expected Debian 12 or 13 on x86_64, got Debian 11.9", OLD),
    Refusal("host", HOST, "got Debian 12.9 on aarch64", DEBIAN | {"architecture": "aarch64"}),
    _host("expected one ccc-vhost_*.deb in /nowhere on the controller, got none", host_packages="/nowhere"),
    _host("host_packages: expected it or host_repository, got both", host_packages="/x", host_repository="deb x y"),
    _host("invalid host_version: expected none with host_packages", host_packages="/x", host_version="latest"),
    _host("invalid host_patience: expected seconds from 0.1 to 20, got 60", host_patience=60),
    _host("invalid host_metrics: expected an address and a port", host_metrics="9170"),
    _host("invalid host_metrics_from: expected none without host_metrics", host_metrics_from=["192.0.2.0/24"]),
    _host("invalid host_metrics_from: expected addresses or prefixes", host_metrics="127.0.0.1:9170",
          host_metrics_from=["192.0.2.0/24", "10.0.0.0/33"]),
    _host("expected addresses or prefixes, as 192.0.2.0/24, got prometheus.example.net",
          host_metrics="127.0.0.1:9170", host_metrics_from=["prometheus.example.net"]),
    _host("invalid host_operators: expected a group's name", host_operators="the operators"),
    _host("invalid host_repository: expected a line of apt's sources", host_repository="https://example.net s main"),
    _host("invalid host_operators_members: expected none without host_operators", host_operators_members=["eve"]),
    _host("invalid host_groups: expected names of 1 to 64 letters", host_groups={"up link": {}}),
    _host("expected a group of host_groups, default or none, got wan", host_rules=[{"group": "wan"}]),
    _host("value of host_state must be one of: present, absent, got: gone", host_state="gone"),
    _host("host_wait", host_wait="long"),
    Refusal("domain", {"domain_list": [ALICE | {"weight": 0}]}, "expected weights from 0.01 to 1000, got 0"),
    Refusal("domain", {"domain_list": [ALICE | {"cap_mbit": "10gbit"}]}, "expected caps from 0.1 to 1000000 Mbit/s"),
    # The module, whoever calls it.
    Refusal("ccc_vm", ALICE | {"cap_mbit": "10gbit"}, "invalid cap_mbit: expected a number from 0.1 to 1000000,"),
    Refusal("ccc_vm", ALICE | {"floor_mbit": 1234567.8}, "from 0 to 1000000, got 1234567.8"),
    Refusal("domain", {"domain_list": [ALICE, ALICE]}, "expected each domain once, got alice, alice"),
    Refusal("domain", {"domain_list": [{"name": "al ice"}]}, "expected names of 1 to 64 letters"),
    Refusal("domain", {"domain_list": [ALICE | {"state": "gone"}]}, "must be one of: present, absent, got: gone"),
    Refusal("domain", {"domain_list": [ALICE | {"burst_mbit": 5}]}, "burst_mbit"),
    Refusal("guest_linux", GUEST, "unsupported release: expected Debian 12 or 13 on x86_64, got Debian 11.9", OLD),
    Refusal("guest_linux", GUEST, "got Debian 12.9 on aarch64", DEBIAN | {"architecture": "aarch64"}),
    # As an inventory of INI has it.
    Refusal("guest_linux", {"guest_linux_require_device": "true"}, "missing device: expected virtio device 63"),
    Refusal("guest_linux", GUEST | {"guest_linux_slots": 5000}, "expected a number from 1 to 4096, got 5000"),
    Refusal("guest_linux", GUEST | {"guest_linux_inner": "ccc"}, "must be one of: reno, cubic"),
    Refusal("guest_linux", GUEST | {"guest_linux_devices": ["eth0,eth1"]}, "expected names of network devices"),
    Refusal("guest_linux", GUEST | {"guest_linux_packages": "/x"}, "expected one ccc-guest-dkms_*.deb in /x"),
    Refusal("guest_linux", GUEST | {"guest_linux_packages": "/x", "guest_linux_repository": "deb x y"}, "got both"),
    Refusal("guest_linux", GUEST | {"guest_linux_packages": "/x", "guest_linux_version": "1"}, "expected none with"),
    Refusal("guest_linux", GUEST | {"guest_linux_repository": "deb"}, "expected a line of apt's sources, as deb "),
    Refusal("guest_linux", GUEST | {"guest_linux_state": "gone"}, "must be one of: present, absent, got: gone"),
    Refusal("guest_agent", AGENT, "unsupported release: expected Debian 12 or 13 on x86_64, got Debian 11.9", OLD),
    Refusal("guest_agent", AGENT, "unsupported kernel: expected Linux 6.1 or newer with BTF",
            DEBIAN | {"kernel": "5.10.0-1-amd64"}),
    Refusal("guest_agent", AGENT | {"guest_agent_packages": "/x"}, "expected one ccc-bpf_*.deb in /x"),
    Refusal("guest_agent", AGENT | {"guest_agent_packages": "/x", "guest_agent_version": "1"}, "expected none with"),
    Refusal("guest_agent", AGENT | {"guest_agent_cgroup": "nginx"}, "expected a cgroup from the root of all"),
    Refusal("guest_agent", AGENT | {"guest_agent_state": "gone"}, "must be one of: present, absent, got: gone"),
    Refusal("guest_freebsd", {}, "unsupported release: expected FreeBSD 14 or 15, got Debian 12.9"),
    Refusal("guest_freebsd", {"guest_freebsd_modules": "/x"}, "expected virtio_ccc.ko in that directory", FREEBSD),
    Refusal("guest_freebsd", {"guest_freebsd_state": "gone"}, "must be one of: present, absent, got: gone", FREEBSD),
    Refusal("experiment", {"experiment_vms": FLOWS[:1]}, "expected two or more, got 1"),
    Refusal("experiment", {"experiment_vms": FLOWS}, "expected names of the inventory, got alice, bob"),
    Refusal("experiment", {"experiment_vms": [FLOWS[0], FLOWS[0]]}, "expected each once, got alice, alice"),
    Refusal("experiment", {"experiment_vms": [FLOWS[0] | {"flows": 200}]}, "expected 1 to 128 flows of each"),
    Refusal("experiment", {"experiment_vms": FLOWS, "experiment_duration_s": 5}, "expected a number from 10 to 3600"),
    Refusal("experiment", {"experiment_vms": FLOWS, "experiment_queue_host": "here"}, "expected an interface"),
    Refusal("experiment", {"experiment_vms": [FLOWS[0] | {"weight": 0}]}, "expected weights above 0, got 0"),
    Refusal("experiment", {"experiment_vms": FLOWS, "experiment_port": 70000}, "expected a number from 1 to 65535"),
    Refusal("experiment", {"experiment_vms": FLOWS, "experiment_queue_host": "eve"}, "name of the inventory, got eve"),
    Refusal("experiment", {"experiment_vms": FLOWS, "experiment_uncoupled": "ccc"}, "got ccc, which couples"),
    Refusal("experiment", {"experiment_vms": [FLOWS[0] | {"address": ""}]}, "expected an address of each"),
    Refusal("experiment", {}, "expected two or more, got 0"),
)  # fmt: skip
# Of a machine that has nothing, and where apt can be asked.
MACHINE = (
    Refusal("host", {}, "missing device: expected /dev/kvm"),
    Refusal("domain", {"domain_list": [ALICE]}, "virsh and cccctl is not installed on this host; run the role"),
    Refusal("guest_linux", {}, "missing device: expected virtio device 63"),
    # Whose module test_fresh.py takes away.
    Refusal("guest_linux", GUEST | {"guest_linux_inner": "yeah"}, "got yeah, which it neither has nor has a module"),
    Refusal("guest_linux", GUEST | {"guest_linux_headers": "linux-headers-none"}, "package linux-headers-none"),
    Refusal("guest_linux", GUEST, "missing package: expected ccc-guest-dkms in apt's sources"),
    Refusal("guest_linux", GUEST | {"guest_linux_version": "7"}, "missing package: expected ccc-guest-dkms=7 in"),
    # The source that was added is taken away again, and does not hinder the next.
    _host("/none", host_repository="deb [trusted=yes] file:/none ./"),
    Refusal("guest_linux", GUEST | {"guest_linux_repository": "deb [trusted=yes] file:/none ./"}, "/none"),
)


def playbook(hosts: str, refusals: tuple[Refusal, ...], facts: dict | None) -> list[dict]:
    """Each has to end the role with its words; without `facts` the machine's own are asked for."""
    return [{"hosts": hosts, "gather_facts": False, "tags": ["always"],
             "tasks": [task for one in refusals for task in _tasks(one, one.facts or facts)]}]  # fmt: skip


def _tasks(refusal: Refusal, facts: dict | None) -> list[dict]:
    about = f"{refusal.role} {json.dumps(refusal.variables)} {'' if refusal.facts is None else refusal.facts}"
    tasks: list[dict] = []
    if facts:
        tasks.append({"name": "Forget what it was", "meta": "clear_facts"})
        tasks.append({"name": "Be it", "ansible.builtin.set_fact": {**facts, "cacheable": True}})
    tried = {"name": "Have the role", "vars": refusal.variables,
             "ansible.builtin.include_role": {"name": f"ccc.coupling.{refusal.role}"}}
    if refusal.role == "ccc_vm":
        tried = {"name": "Have the module", "ccc.coupling.ccc_vm": refusal.variables}
    return [*tasks, {
        "name": about,
        "block": [
            tried,
            {"name": "See that it ended", "ansible.builtin.fail": {"msg": "not refused"}},
        ],
        "rescue": [
            {"name": "See what it said", "vars": {"told": refusal.told}, "ansible.builtin.assert": {
                "that": "told in (ansible_failed_result | to_json | regex_replace('\\s+', ' '))",
                "fail_msg": f"{about}: expected '{refusal.told}', got {{{{ ansible_failed_result.msg }}}}",
                "quiet": True}},
        ],
    }]  # fmt: skip


def main() -> int:
    """Tries VARIABLES here, with the ansible-playbook of PATH and the collection of ANSIBLE_COLLECTIONS_PATH."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "refusals.yml"
        path.write_text(json.dumps(playbook("here", VARIABLES, DEBIAN)))
        command = ["ansible-playbook", "-i", "here,", "-c", "local", "--check", "--tags", "nothing", path]
        options = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
        done = subprocess.run(command, env=os.environ | options, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout[-6000:] + done.stderr)
    elif f"rescued={len(VARIABLES)} " not in done.stdout or "changed=0 " not in done.stdout:
        print(f"expected {len(VARIABLES)} refusals and no change, got {done.stdout.splitlines()[-2]}")
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
