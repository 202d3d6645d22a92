# SPDX-License-Identifier: GPL-2.0
"""What the QEMU tests are made of: a network of namespaces, the daemon, virtual
machines, and a receiver of their flows.  All of it is real."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RECEIVER = "10.77.0.1"
PORT = 5000
# From where the flows of plain Reno come, which a guest sends beside the coupled ones.
PLAIN_PORTS = range(6000, 6010)
MEMORY = "256M"
# The monitor's answer, on however slow a machine; QEMU that waits for a daemon waits for ever.
ANSWERS_WITHIN = 60


class Failed(Exception):
    """Something is not as it must be."""


def require(condition, why):
    if not condition:
        raise Failed(why)


def until(what, seconds, condition):
    """Waits for a condition; what it gave, and how long that took."""
    begin = time.monotonic()
    while True:
        value = condition()
        took = time.monotonic() - begin
        if value:
            return value, took
        require(took < seconds, f"{what}: not within {seconds} s")
        time.sleep(0.02)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    require(done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def end(process, seconds=5):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Network:
    """Guests' taps on a bridge, a bottleneck of 20 Mbit/s behind it, the receiver."""

    RATE = "20mbit"

    def __init__(self):
        self.vms = f"ccc-vms-{os.getpid()}"
        self.far = f"ccc-far-{os.getpid()}"

    def __enter__(self):
        for name in (self.vms, self.far):
            run("ip", "netns", "add", name)
        run("ip", "-n", self.vms, "link", "add", "uplink", "type", "veth",
            "peer", "name", "eth0", "netns", self.far)
        run("ip", "-n", self.vms, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.vms, "link", "set", "uplink", "master", "br0")
        for namespace, link in ((self.vms, "br0"), (self.vms, "uplink"), (self.far, "eth0")):
            run("ip", "-n", namespace, "link", "set", link, "up")
        run("ip", "-n", self.far, "address", "add", f"{RECEIVER}/24", "dev", "eth0")
        run("ip", "netns", "exec", self.vms, "tc", "qdisc", "add", "dev", "uplink", "root",
            "tbf", "rate", self.RATE, "burst", "5kb", "limit", "125000")
        return self

    def __exit__(self, *_):
        for name in (self.vms, self.far):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def tap(self, name):
        run("ip", "-n", self.vms, "tuntap", "add", name, "mode", "tap")
        run("ip", "-n", self.vms, "link", "set", name, "master", "br0", "up")
        return name


class Receiver:
    """Where all flows go."""

    def __init__(self, network, directory):
        self.path = directory / "received"
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", network.far, sys.executable, HERE / "receive.py",
             RECEIVER, str(PORT)], stdout=self.path.open("w"))

    def latest(self):
        lines = self.path.read_text().splitlines()
        return json.loads(lines[-1]) if lines else {"bytes": {}, "ended": []}

    def arrived(self, plain=False):
        """Bytes of each flow that is to be coupled, or of each plain one."""
        return {port: count for port, count in self.latest()["bytes"].items()
                if (int(port) in PLAIN_PORTS) == plain}

    def moves(self, since, plain=False):
        """Whether each flow has brought something since `since`, as `arrived()` gave it."""
        now = self.arrived(plain)
        return all(now[port] > count for port, count in since.items())

    def history(self, since):
        samples = (json.loads(line) for line in self.path.read_text().splitlines())
        return [sample for sample in samples if sample["time"] >= since]

    def standstill(self, since):
        """The longest time since then in which nothing arrived, in seconds."""
        longest, last, total = 0.0, since, None
        for sample in self.history(since):
            arrived = sum(sample["bytes"].values())
            if arrived != total:
                longest = max(longest, sample["time"] - last)
                last, total = sample["time"], arrived
        return max(longest, time.time() - last)

    def check(self, flows, what):
        """All flows there, none ended, and all of them move."""
        ended = self.latest()["ended"]
        require(not ended, f"{what}: {len(ended)} flows were reset")
        before = self.arrived()
        require(len(before) == flows, f"{what}: {len(before)} flows, not {flows}")
        until(f"{what}: every flow moves", 20, lambda: self.moves(before))

    def close(self):
        end(self.process)


class Daemon:
    """ccc-vhost with one VM."""

    def __init__(self, program, directory, name, started=True):
        # The daemon wants to be told the whole path.
        directory = directory.resolve()
        self.program, self.directory, self.name = program, directory, name
        self.socket = directory / f"{name}.sock"
        self.control = directory / f"{name}.control"
        self.config = directory / f"{name}.toml"
        self.config.write_text(
            f'[group.uplink]\n\n[vm.guest]\nsocket = "{self.socket}"\ngroup = "uplink"\n')
        self.process = None
        if started:
            self.start()

    def start(self):
        log = (self.directory / f"{self.name}.log").open("a")
        self.process = subprocess.Popen(
            [self.program, "--config", self.config, "--control", self.control],
            stderr=log, env={**os.environ, "RUST_LOG": "debug"})
        until("the daemon listens", 10, self.socket.exists)

    def kill(self):
        """As a crash does: nothing is tidied up."""
        self.process.kill()
        self.process.wait()
        self.socket.unlink()

    def hang(self):
        """It answers nothing, and the kernel still takes connections for it."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def vm(self):
        """What the daemon says of the VM; nothing while it does not answer."""
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(2)
                control.connect(str(self.control))
                control.sendall(b"GET /v1/vms/guest HTTP/1.0\r\nHost: ccc\r\n\r\n")
                answer = b""
                while chunk := control.recv(1 << 16):
                    answer += chunk
            return json.loads(answer.partition(b"\r\n\r\n")[2])
        except (OSError, ValueError):
            return {"coupled_flows": 0, "connected": False}

    def coupled(self):
        return self.vm()["coupled_flows"]

    def connected(self):
        return self.vm()["connected"]

    def close(self):
        if self.process:
            self.go_on()
            end(self.process)


class OlderDaemon(Daemon):
    """One from before migration: the daemon of today behind a relay that hides it."""

    def __init__(self, program, directory, name):
        super().__init__(program, directory, name)
        behind, self.socket = self.socket, directory / f"{name}.relay"
        self.relay = subprocess.Popen([sys.executable, HERE / "older.py", self.socket, behind])
        until("the relay listens", 10, self.socket.exists)

    def close(self):
        end(self.relay)
        super().close()


class Guest:
    """A virtual machine in QEMU's emulation; `backend` is the socket of its device.
    It falls asleep once it has been up for `sleep_at` seconds, and sends `plain` flows of
    uncoupled Reno beside the others."""

    def __init__(self, lab, name, *, backend=None, incoming=False, processors=1, sleep_at=None,
                 plain=0, network_card="virtio-net-pci"):
        self.name = name
        self.processors, self.sleep_at = processors, sleep_at
        self.plain, self.network_card = plain, network_card
        self.console = lab.directory / f"{name}.console"
        self.log = lab.directory / f"{name}.log"
        self.events = []
        monitor = lab.directory / f"{name}.qmp"
        words = [*self.command(lab, lab.network.tap(name)),
                 "-qmp", f"unix:{monitor},server=on,wait=off"]
        if backend:
            words += ["-chardev", f"socket,id=ccc,path={backend},reconnect-ms=100",
                      "-device", "vhost-user-ccc-pci,id=ccc,chardev=ccc,bus=root1"]
        if incoming:
            words += ["-incoming", "defer"]
        self.process = subprocess.Popen([str(word) for word in words],
                                        stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        self.stream = socket.socket(socket.AF_UNIX)
        try:
            self.greet(monitor)
        except Exception:
            self.close()
            raise

    def command(self, lab, tap):
        return [
            "ip", "netns", "exec", lab.network.vms,
            lab.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-accel", "tcg", "-cpu", "max", "-smp", str(self.processors), "-m", MEMORY,
            "-machine", "q35,memory-backend=mem",
            "-object", f"memory-backend-memfd,id=mem,size={MEMORY},share=on",
            "-kernel", lab.image / "vmlinuz", "-initrd", lab.image / "initrd",
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=unstable clocksource=acpi_pm "
            f"lab.flows={lab.flows} lab.to={RECEIVER} lab.address=10.77.0.2/24"
            f" lab.plain={self.plain}" + (f" lab.sleep={self.sleep_at}" if self.sleep_at else ""),
            "-serial", f"file:{self.console}",
            "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
            "-device", f"{self.network_card},netdev=net,mac=52:54:00:63:63:63,addr=2,romfile=",
            "-device", "pcie-root-port,id=root1,addr=3,chassis=1",
        ]

    def greet(self, monitor):
        until(f"{self.name}: monitor", 60, lambda: self.connect(monitor))
        self.stream.settimeout(ANSWERS_WITHIN)
        self.lines = self.stream.makefile("r")
        self.message()
        self.ask("qmp_capabilities")

    def connect(self, monitor):
        require(not self.gone(), f"{self.name}: QEMU has gone: {self.said()}")
        return self.stream.connect_ex(str(monitor)) == 0

    def gone(self):
        return self.process.poll() is not None

    def said(self):
        """What QEMU itself said."""
        return self.log.read_text().strip()

    def ask(self, command, **arguments):
        message = {"execute": command, "arguments": arguments}
        self.stream.sendall(json.dumps(message).encode())
        while True:
            answer = self.message()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise Failed(f"{self.name}: {command}: {answer['error']['desc']}")

    def message(self):
        try:
            line = self.lines.readline()
        except TimeoutError:
            raise Failed(f"{self.name}: QEMU has not answered for {ANSWERS_WITHIN} s") from None
        require(line, f"{self.name}: QEMU has gone: {self.said()}")
        message = json.loads(line)
        if "event" in message:
            self.events.append(message)
        return message

    def event(self, name, **data):
        """Waits for an event with this data, or takes one that has come; when it
        happened."""
        while True:
            for event in self.events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    self.events.remove(event)
                    stamp = event["timestamp"]
                    return stamp["seconds"] + stamp["microseconds"] / 1e6
            self.message()

    def running(self):
        return self.ask("query-status")["status"] == "running"

    def sees(self):
        """What the guest said last: connections, flows coupled, whether there is a device."""
        said = self.console.read_text(errors="replace") if self.console.exists() else ""
        found = re.findall(r"^@ \S+ established (\d+) coupled (\d+) device (\d)\r?$", said, re.M)
        return tuple(map(int, found[-1])) if found else (0, 0, 0)

    def complaints(self):
        said = self.console.read_text(errors="replace")
        return re.findall(r"^! .*(?:BUG|WARNING|Oops|no module|no algorithm).*$", said, re.M)

    def plug(self, backend):
        self.ask("chardev-add", id="ccc", backend={"type": "socket", "data": {
            "addr": {"type": "unix", "data": {"path": str(backend)}},
            "server": False, "reconnect-ms": 100}})
        self.ask("device_add", driver="vhost-user-ccc-pci", id="ccc", chardev="ccc", bus="root1")

    def unplug(self):
        self.ask("device_del", id="ccc")
        self.event("DEVICE_DELETED", device="ccc")
        self.ask("chardev-remove", id="ccc")

    def close(self):
        end(self.process)


class Lab:
    """One test's network, receiver, daemons and guests, and their end."""

    def __init__(self, paths, directory, flows=4):
        self.qemu, self.image = paths.qemu, paths.image
        self.vhost = paths.vhost
        self.directory, self.flows = directory, flows
        directory.mkdir(parents=True, exist_ok=True)
        for file in directory.iterdir():
            file.unlink()

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        self.network = self.stack.enter_context(Network())
        self.receiver = self.closing(Receiver(self.network, self.directory))
        return self

    def __exit__(self, *_):
        self.stack.close()

    def closing(self, part):
        self.stack.callback(part.close)
        return part

    def daemon(self, name="vhost", started=True):
        return self.closing(Daemon(self.vhost, self.directory, name, started))

    def older_daemon(self, name):
        return self.closing(OlderDaemon(self.vhost, self.directory, name))

    def guest(self, name, **options):
        return self.closing(Guest(self, name, **options))

    def await_coupled(self, guest, daemon, seconds=180):
        """Until guest and daemon both say that all flows are coupled; how long that took."""
        all_of_them = (self.flows, self.flows, 1)
        _, took = until(f"{guest.name}: all flows coupled", seconds, lambda:
                        daemon.coupled() == self.flows and guest.sees() == all_of_them)
        return took
