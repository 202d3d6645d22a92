# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The guest of the tests and experiments."""

from testbed.errors import CommandError
from testbed.host import HERE
from testbed.wait import until

# It takes 4 s; a machine that does other things as well has taken 25.
BOOT_S = 60.0


def test_a_guest_boots_and_is_logged_in_to(daemon, domain, bridge, key, measured):
    daemon.cccctl("attach", "web")
    boot_s = domain.boot()
    HERE.run("ip", "address", "add", "10.7.0.1/24", "dev", bridge)
    domain.run("ip address add 10.7.0.2/24 dev eth0; ip link set eth0 up")
    try:
        listens = until("sshd listens", lambda: "up" in logged_in(key, "echo up"))
        assert "no device" not in logged_in(key, "cat /sys/kernel/debug/ccc/device")
        # DKMS's own place for it.
        assert "updates/dkms/ccc.ko" in logged_in(key, "modinfo --field filename ccc")
    finally:
        HERE.run("ip", "address", "del", "10.7.0.1/24", "dev", bridge)
    measured(boot_s=boot_s, sshd_listens_after_s=listens)
    assert boot_s <= BOOT_S


def logged_in(key, command: str) -> str:
    """What a command prints in the guest; nothing while there is no sshd."""
    try:
        return HERE.run(*key.command("10.7.0.2"), "-o", "ConnectTimeout=5", command)
    except CommandError:
        return ""
