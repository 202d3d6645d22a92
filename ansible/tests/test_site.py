# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""From a fresh host and two fresh virtual machines to coupled flows."""

import json
from pathlib import Path

from testbed import artefacts

PROJECT = Path(__file__).resolve().parents[2]
NEVER_ENDED = "for name in guest1 guest2; do cat /run/libvirt/qemu/$name.pid; done"


def variables(out: Path) -> dict[str, object]:
    return {"out": str(out), "tree": str(PROJECT), "python": str(artefacts.build("venv"))}


def test_one_run_leads_to_coupled_flows(site, logs, measured):
    host, controller = site
    told = controller.play("site.yml", "--check", "--diff", "--limit", "hosts", **variables(logs))
    assert told.status == 0, told.why
    assert told.changed["host"] > 0 and "libvirt-daemon-system" in told.text
    assert not host.host.attempt("which", "cccctl").ok, "check mode has installed something"

    first = controller.play("site.yml", **variables(logs))
    assert first.status == 0, first.why
    result = json.loads((logs / "result.json").read_text())
    assert not any(score["fails"] for score in result["scores"]), result["scores"]
    assert (logs / "fairness.svg").exists()
    uncoupled, coupled = (run["jain"] for run in result["runs"])
    measured(jain_uncoupled=uncoupled, jain_coupled=coupled, check_minutes=told.minutes, first_minutes=first.minutes)

    ran = host.host.run("sh", "-c", NEVER_ENDED)
    again = controller.play("site.yml", "--skip-tags", "experiment", **variables(logs))
    assert again.status == 0, again.why
    assert set(again.changed.values()) == {0}, again.why
    measured(second_minutes=again.minutes)
    a_daemon_is_upgraded(host, controller, logs)
    weights_come_from_the_inventory(host, controller, logs)
    assert host.host.run("sh", "-c", NEVER_ENDED) == ran, "a domain was restarted"
    all_is_given_back(host, controller)


def a_daemon_is_upgraded(host, controller, logs) -> None:
    """A configuration that an earlier play has written comes to the daemon, though that play was
    ended before it could tell; both virtual machines connect again."""
    host.host.run("touch", "/etc/ccc/ccc.toml")
    played = controller.play("site.yml", "--tags", "configuration,services", "--limit", "hosts", **variables(logs))
    assert played.status == 0, played.why
    assert "has not read what was written" in played.text
    vms = json.loads(host.host.run("cccctl", "--json", "list"))["vms"]
    assert sorted(vm["name"] for vm in vms if vm["connected"]) == ["guest1", "guest2"]


def weights_come_from_the_inventory(host, controller, logs) -> None:
    changed = {"weights": [3, 1], **variables(logs)}
    told = controller.play("site.yml", "--tags", "domains", "--limit", "hosts", "--check", "--diff", **changed)
    assert told.status == 0 and told.changed["host"] == 1, told.why
    assert weight_of(host, "guest1") == 1, "check mode has changed it"
    done = controller.play("site.yml", "--tags", "domains", "--limit", "hosts", **changed)
    assert done.status == 0 and done.changed["host"] == 1, done.why
    assert weight_of(host, "guest1") == 3
    again = controller.play("site.yml", "--tags", "domains", "--limit", "hosts", **changed)
    assert again.changed["host"] == 0, again.why


def weight_of(host, name: str) -> float:
    vms = json.loads(host.host.run("cccctl", "--json", "list"))["vms"]
    return next(vm["weight"] for vm in vms if vm["name"] == name)


def all_is_given_back(host, controller) -> None:
    """Removal is refused while domains need what would be removed, and leaves nothing after."""
    refused = controller.play("remove.yml", "--tags", "host")
    assert refused.status != 0 and "detach guest1, guest2 first" in refused.text
    assert host.host.attempt("cccctl", "status").ok
    detached = controller.play("remove.yml", "--tags", "guests,domains")
    assert detached.status == 0, detached.why
    assert host.host.run("cccctl", "--json", "list").count('"name"') == 0, "the daemon knows them still"
    for name in ("guest1", "guest2"):
        # Their owner's affair: no other QEMU is there for them.
        host.host.run("virsh", "-q", "destroy", name)
        host.host.run("virsh", "-q", "undefine", name)
    # The guests are gone.
    removed = controller.play("remove.yml", "--tags", "host", "--limit", "hosts")
    assert removed.status == 0, removed.why
    for path in ("/etc/ccc", "/var/lib/ccc", "/run/ccc", "/usr/bin/cccctl", "/etc/libvirt/hooks/qemu.d/ccc"):
        assert not host.host.attempt("test", "-e", path).ok, path
    again = controller.play("remove.yml", "--tags", "host", "--limit", "hosts")
    assert again.status == 0 and again.changed["host"] == 0, again.why
