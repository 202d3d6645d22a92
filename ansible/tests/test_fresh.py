# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Roles on a fresh virtual machine: what they refuse, and a machine that is switched off in between."""

import json

import pytest
from refusals import HOST, MACHINE, VARIABLES, playbook

# What a role may have changed on a machine that it refuses: nothing but apt's lists.
FILES = (
    "find / -xdev -newer /root/before -type f ! -path '/proc/*' ! -path '/sys/*' ! -path '/run/*'"
    " ! -path '/tmp/*' ! -path '/var/log/*' ! -path '/var/lib/apt/*' ! -path '/var/cache/apt/*'"
    " ! -path '/root/.ansible/*' ! -path '/var/lib/systemd/*'"
)


def test_what_could_not_work_is_refused_and_changes_nothing(machine, logs):
    """Without check mode, and with all tags: what is not refused would be done."""
    fresh, controller = machine
    prepare = "find /lib/modules -name 'tcp_yeah*' -delete && depmod && apt-get -qq update && touch /root/before"
    fresh.host.run("sh", "-c", prepare)
    refusals = (*MACHINE, *(one for one in VARIABLES if one.facts is None and one.role != "guest_freebsd"))
    path = logs / "refusals.json"
    path.write_text(json.dumps(playbook("fresh", refusals, None)))
    played = controller.play(str(path))
    # What is not refused, or with other words, fails the play.
    assert played.status == 0, played.why
    assert played.changed["fresh"] == 2, "more than two sources were added, which are taken away again"
    changed = fresh.host.run("sh", "-c", FILES).split()
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
                   "while ! pgrep -x dpkg; do sleep 0.2; done; sleep 3; echo b >/proc/sysrq-trigger")  # fmt: skip
    broken = controller.play("role.yml", **wanted)
    assert broken.status != 0, "it was not switched off"
    fresh.boot()
    converged = controller.play("role.yml", **wanted)
    assert converged.status == 0, converged.why
    assert fresh.host.run("dpkg", "--audit") == ""
    again = controller.play("role.yml", **wanted)
    assert again.status == 0 and again.changed["fresh"] == 0, again.why
    assert fresh.host.attempt("cccctl", "status").ok
