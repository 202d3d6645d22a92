# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A dumbbell of network namespaces on this machine's own kernel.

NAME-a ─┐                  10 Mbit/s, FIFO of 83 packets
        ├─ NAME-router ──────────────────────────────────► NAME-rcv
NAME-b ─┘       ▲                                             │
                └──────────── NAME-wire, 100 ms ◄─────────────┘
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .service import until

HERE = Path(__file__).resolve().parent
RECEIVER = "10.2.0.2"
PORT = 5001
DEAF_PORT = 5002


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def do(namespace: str, line: str) -> None:
    subprocess.run(["ip", "netns", "exec", namespace, *line.split()], check=True, stdout=subprocess.DEVNULL)


@dataclass
class Dumbbell:
    name: str
    senders: int = 2
    rate: str = "10mbit"
    packets: int = 83
    delay_ms: int = 100
    # Whose network namespaces are to be those of parts.
    hosts: dict[str, int] = field(default_factory=dict)
    _processes: list[subprocess.Popen] = field(default_factory=list)
    _made: list[str] = field(default_factory=list)

    def namespace(self, part: str) -> str:
        return f"{self.name}-{part}"

    def sender(self, number: int) -> str:
        return self.namespace("abcdefgh"[number])

    def address(self, number: int) -> str:
        return f"10.1.{number + 1}.2"

    def make(self) -> None:
        router, receiver, wire = (self.namespace(part) for part in ("router", "rcv", "wire"))
        senders = [self.sender(number) for number in range(self.senders)]
        for namespace in (*senders, router, receiver, wire):
            self._add(namespace)
        do(router, "sysctl -qw net.ipv4.ip_forward=1")
        for number in range(self.senders):
            self._attach(number)
        self._link(router, "out", "10.2.0.1", receiver, "in", RECEIVER)
        self._link(receiver, "back", "10.3.0.2", wire, "wire0", None)
        self._link(router, "back", "10.3.0.1", wire, "wire1", None)
        do(receiver, "ip route add 10.1.0.0/16 via 10.3.0.1 dev back")
        # The burst makes up for what a busy machine's timer is late.
        do(router, f"tc qdisc add dev out root handle 1: tbf rate {self.rate} burst 15000 limit 1000000")
        do(router, f"tc qdisc add dev out parent 1: handle 2: pfifo limit {self.packets}")
        self._start(wire, sys.executable, str(HERE / "delay.py"), str(self.delay_ms), "wire0", "wire1")

    def another_name(self, number: int) -> str:
        """Of a sender's namespace, until all of this ends."""
        name = f"{self.sender(number)}-too"
        command = ["ip", "netns", "exec", self.sender(number), "sh", "-c", "echo; exec cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
            # It is in there once it speaks.
            inside.stdout.readline()
            ip("netns", "attach", name, str(inside.pid))
            inside.communicate()
        self._made.append(name)
        return name

    def make_again(self, number: int) -> bool:
        """A sender's namespace is another one under its name; whether its file has the same inode."""
        file = Path("/run/netns", self.sender(number))
        before = file.stat().st_ino
        ip("netns", "delete", self.sender(number))
        # It is gone when the kernel comes to it, and its inode is free then.
        time.sleep(0.2)
        self._add(self.sender(number))
        # The kernel takes the interfaces of the one before away when it comes to it.
        router, interface = self.namespace("router"), f"in{number}"
        until(f"{interface} of the namespace before has gone", lambda: not self._has(router, interface))
        self._attach(number)
        return file.stat().st_ino == before

    def _add(self, namespace: str) -> None:
        host = self.hosts.get(namespace.removeprefix(f"{self.name}-"))
        ip("netns", *(("attach", namespace, str(host)) if host else ("add", namespace)))
        if namespace not in self._made:
            self._made.append(namespace)
        do(namespace, "ip link set lo up")
        do(namespace, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0")
        do(namespace, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")

    def _attach(self, number: int) -> None:
        sender, router = self.sender(number), self.namespace("router")
        self._link(sender, "eth0", self.address(number), router, f"in{number}", f"10.1.{number + 1}.1")
        do(sender, f"ip route add default via 10.1.{number + 1}.1")
        # Each run finds its own path, and what it has not sent at its end is given up soon: the
        # sockets keep the program of their congestion control.
        do(sender, "sysctl -qw net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_orphan_retries=1")

    @staticmethod
    def _has(namespace: str, interface: str) -> bool:
        command = ["ip", "netns", "exec", namespace, "ip", "link", "show", interface]
        return subprocess.run(command, capture_output=True).returncode == 0

    def plug(self, tap: str, number: int) -> None:
        """Makes a VM's interface on this machine that of a sender."""
        router = self.namespace("router")
        ip("link", "set", tap, "netns", router, "name", f"in{number}")
        do(router, f"ip address add 10.1.{number + 1}.1/24 dev in{number}")
        do(router, f"ip link set in{number} mtu 1500 up")

    def _link(self, one: str, at: str, address: str, other: str, there: str, its: str | None) -> None:
        ip("link", "add", at, "netns", one, "type", "veth", "peer", "name", there, "netns", other)
        for namespace, interface, own in ((one, at, address), (other, there, its)):
            if own:
                do(namespace, f"ip address add {own}/24 dev {interface}")
            do(namespace, f"ethtool -K {interface} tso off gso off gro off tx off rx off")
            do(namespace, f"ip link set {interface} mtu 1500 up")

    def _start(self, namespace: str, *command: str, before: Sequence[str] = (), **options) -> subprocess.Popen:
        process = subprocess.Popen([*before, "ip", "netns", "exec", namespace, *command], **options)
        self._processes.append(process)
        return process

    def receive(self, seconds: float) -> subprocess.Popen:
        command = (sys.executable, str(HERE / "traffic.py"), "receive", str(PORT), str(seconds))
        return self._start(self.namespace("rcv"), *command, stdout=subprocess.PIPE, text=True)

    def be_deaf(self, seconds: float) -> subprocess.Popen:
        """Beside the receiver, at DEAF_PORT."""
        words = (str(HERE / "traffic.py"), "deaf", str(DEAF_PORT), str(seconds))
        return self._start(self.namespace("rcv"), sys.executable, *words)

    def send(
        self,
        number: int,
        flows: int,
        seconds: float,
        algorithm: str,
        cgroup: Path | None = None,
        after_s: float = 0,
        port: int = PORT,
    ) -> subprocess.Popen:
        numbers = (str(flows), str(seconds), algorithm, str(after_s))
        words = (str(HERE / "traffic.py"), "send", RECEIVER, str(port), *numbers)
        # Joined before the namespace: `ip netns exec` hides the cgroups.
        join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{cgroup}/cgroup.procs"]
        before = join if cgroup else []
        return self._start(self.sender(number), sys.executable, *words, before=before)

    def begin(self, number: int, cgroup: Path, home: Path, times: int, after_s: float) -> list[str]:
        """Algorithms of connections from a cgroup so long after it was made."""
        words = (str(HERE / "traffic.py"), "begin", cgroup, home, RECEIVER, str(PORT), str(times), str(after_s))
        # `ip netns exec` hides the cgroups.
        enter = ("nsenter", f"--net=/run/netns/{self.sender(number)}", sys.executable)
        return json.loads(subprocess.run([*enter, *words], check=True, stdout=subprocess.PIPE).stdout)

    def be_reached(self, port: int, yes: bool) -> None:
        """Whether what is sent to a port of the receiver's arrives, or nothing tells what becomes of it."""
        do(self.namespace("router"), f"ip rule {'del' if yes else 'add'} ipproto tcp dport {port} blackhole")

    def idle(self, number: int, flows: int, seconds: float, algorithm: str, port: int = PORT) -> subprocess.Popen:
        return self._told("idle", number, flows, seconds, algorithm, port)

    def change(self, number: int, flows: int, seconds: float, algorithm: str) -> subprocess.Popen:
        return self._told("change", number, flows, seconds, algorithm)

    def _told(
        self, what: str, number: int, flows: int, seconds: float, algorithm: str, port: int = PORT
    ) -> subprocess.Popen:
        """What does something when a line comes."""
        words = (str(HERE / "traffic.py"), what, RECEIVER, str(port), str(flows), str(seconds), algorithm)
        return self._start(self.sender(number), sys.executable, *words, stdin=subprocess.PIPE)

    def watch(self, seconds: float) -> subprocess.Popen:
        interfaces = [f"in{number}" for number in range(self.senders)]
        command = (sys.executable, str(HERE / "traffic.py"), "watch", str(seconds), *interfaces)
        return self._start(self.namespace("router"), *command, stdout=subprocess.PIPE, text=True)

    def drops(self) -> int:
        router = self.namespace("router")
        command = ["ip", "netns", "exec", router, "tc", "-s", "-j", "qdisc", "show", "dev", "out"]
        queues = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return sum(queue.get("drops", 0) for queue in queues if queue["kind"] == "pfifo")

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for namespace in self._made:
            ip("netns", "delete", namespace)
        self._made.clear()
