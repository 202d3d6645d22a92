# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Flows that a domain's guest sends, and whether they are coupled."""

from testbed.bottleneck import ADDRESS, GUEST_ADDRESS, PORT
from testbed.libvirt import Guest, HostDaemon

COUNT = 4


def send(guest: Guest) -> None:
    """Starts flows that send all they can, until the guest ends."""
    guest.run(
        f"ip address add {GUEST_ADDRESS} dev eth0; ip link set eth0 up;"
        f" sysctl -qw net.ipv4.tcp_congestion_control=ccc; busybox ping -c 1 -w 10 {ADDRESS};"
        # A connection is never opened again: one that breaks is missed.
        f" for n in $(seq {COUNT}); do busybox nc {ADDRESS} {PORT} </dev/zero >/dev/null 2>&1 & done"
    )


def daemon_has_all(daemon: HostDaemon, name: str) -> bool:
    """All flows are coupled, says the daemon."""
    return daemon.coupled_flows(name) == COUNT


def all_coupled(guest: Guest, daemon: HostDaemon) -> bool:
    """All flows are coupled, say daemon and guest."""
    count = "grep -c ' coupled$' /sys/kernel/debug/ccc/flows || true"
    return daemon_has_all(daemon, guest.name) and int(guest.run(count)) == COUNT
