# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Roles on a fresh virtual machine: what they refuse, and a machine that is switched off in between."""

import pytest

# What a role may have changed on a machine that it refuses: nothing but apt's lists.
FILES = "find / -xdev -newer /root/before -type f ! -path '/proc/*' ! -path '/sys/*' ! -path '/run/*'" \
    " ! -path '/tmp/*' ! -path '/var/log/*' ! -path '/var/lib/apt/*' ! -path '/var/cache/apt/*'" \
    " ! -path '/root/.ansible/*' ! -path '/var/lib/systemd/*'"
HOST = {"host_kvm": False}
GUEST = {"guest_linux_require_device": False}
REFUSED = [
    ("host", {}, "missing device: expected /dev/kvm"),
    ("host", HOST | {"host_packages": "/nowhere"}, "invalid host_packages: expected one ccc-vhost_*.deb in /nowhere"),
    ("host", HOST | {"host_repository": "deb x y", "host_packages": "/x"}, "expected it or host_repository, got both"),
    ("host", HOST | {"host_patience": 60}, "invalid host_patience: expected seconds from 0.1 to 20, got 60"),
    ("host", HOST | {"host_state": "gone"}, "value of host_state must be one of: present, absent, got: gone"),
    ("host", HOST | {"ansible_facts": {"distribution": "Debian", "distribution_version": "11.9",
                                       "distribution_major_version": "11", "architecture": "x86_64"}},
     "unsupported release: expected Debian 12 or 13"),
    ("domain", {"domain_list": [{"name": "alice", "weight": 0}]}, "expected weights from 0.01 to 1000, got 0"),
    ("domain", {"domain_list": [{"name": "alice"}, {"name": "alice"}]}, "expected each domain once"),
    ("guest_linux", {}, "missing device: expected virtio device 63"),
    ("guest_linux", GUEST | {"guest_linux_slots": 5000}, "invalid guest_linux_slots: expected a number from 1 to 4096"),
    ("guest_linux", GUEST | {"guest_linux_headers": "linux-headers-none"}, "expected package linux-headers-none"),
    ("guest_freebsd", {"guest_freebsd_modules": "/x"}, "unsupported release: expected FreeBSD"),
    ("experiment", {"experiment_vms": [{"name": "fresh", "address": "127.0.0.1"}]}, "expected two or more, got 1"),
]  # fmt: skip


def test_what_could_not_work_is_refused_and_changes_nothing(machine):
    fresh, controller = machine
    fresh.host.run("sh", "-c", "'apt-get -qq update; touch /root/before'")
    for role, variables, told in REFUSED:
        played = controller.play("role.yml", role=role, **variables)
        assert played.status != 0, f"{role} {variables}: not refused"
        assert told in " ".join(played.text.split()), played.why
        assert played.changed["fresh"] == 0, played.why
    # ssh hands its words to a shell there.
    changed = fresh.host.run(FILES).split()
    assert changed == []


@pytest.mark.slow
def test_a_host_that_is_switched_off_converges_in_the_next_play(machine, packages):
    """Also: check mode tells what would change and changes nothing; a second play changes nothing."""
    fresh, controller = machine
    wanted = HOST | {"role": "host", "host_packages": str(packages)}
    told = controller.play("role.yml", "--check", "--diff", **wanted)
    assert told.status == 0 and told.changed["fresh"] >= 3, told.why
    assert not fresh.host.attempt("test", "-e", "/usr/sbin/libvirtd").ok

    # Its power goes while dpkg works.
    fresh.host.run("systemd-run", "--quiet", "--unit=off", "sh", "-c",
                   "'while ! pgrep -x dpkg; do sleep 0.2; done; sleep 3; echo b >/proc/sysrq-trigger'")  # fmt: skip
    broken = controller.play("role.yml", **wanted)
    assert broken.status != 0, "it was not switched off"
    fresh.boot()
    converged = controller.play("role.yml", **wanted)
    assert converged.status == 0, converged.why
    assert fresh.host.run("dpkg", "--audit") == ""
    again = controller.play("role.yml", **wanted)
    assert again.status == 0 and again.changed["fresh"] == 0, again.why
    assert fresh.host.attempt("cccctl", "status").ok
