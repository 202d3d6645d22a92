# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What AppArmor does to the daemon of a host."""

from testbed.host import Host

PROFILE = "ccc-vhost"
ENFORCED = f"{PROFILE} (enforce)"


def profile_of_the_daemon(host: Host) -> str:
    """What confines it, and how."""
    pid = host.run("systemctl", "show", "--value", "--property=MainPID", "ccc-vhost").strip()
    return host.run("cat", f"/proc/{pid}/attr/current").strip()


def refused(host: Host) -> list[str]:
    """The kernel's lines of what it was refused."""
    lines = host.run("journalctl", "--dmesg", "--no-pager", "--output=cat").splitlines()
    return [line for line in lines if 'apparmor="DENIED"' in line and f'profile="{PROFILE}"' in line]
