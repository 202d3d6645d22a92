#!/usr/bin/python3 -B
# SPDX-License-Identifier: GPL-2.0
"""Init of a guest whose device misbehaves: runs a test's steps, notes what it sees.

Steps are a list of lists in the file `steps` of the work directory; each
snapshot is a line of JSON in `snapshots`.
"""

import ctypes
import json
import os
import queue
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

WORK = Path(os.environ["work"])
os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
flows: list[socket.socket] = []
CONGESTION, CC_INFO = 13, 26
CLONE_NEWNET = 0x40000000
# Places in struct tcp_info (linux/tcp.h), and of the gain in BBR's record of union tcp_cc_info.
TCPI_SND_CWND, TCPI_TOTAL_RETRANS, TCPI_BYTES_ACKED = 80, 100, 120
BBR_CWND_GAIN = 16
NEAR = {"own": "10.9.0.1", "peer": "10.9.0.2", "own6": "fd09::1", "peer6": "fd09::2"}
DEVICE = "/sys/bus/virtio/drivers/ccc"


def command(text: str) -> None:
    done = subprocess.run(text, shell=True, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{text}: {done.stderr.strip()}")


def drain(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 100_000)
        while connection.recv(1 << 20):
            pass
    except OSError:
        pass


def fill(connection: socket.socket) -> None:
    data = bytes(1 << 16)
    try:
        while True:
            connection.sendall(data)
    except OSError:
        pass


class Peer(threading.Thread):
    """The network beyond the bottleneck: a namespace, and a thread in it that makes sockets."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.wanted: queue.Queue = queue.Queue()
        self.made: queue.Queue = queue.Queue()

    def run(self) -> None:
        with open("/run/netns/peer") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        while make := self.wanted.get():
            self.made.put(make())

    def make(self, what):
        self.wanted.put(what)
        return self.made.get(timeout=60)


def here(what):
    return what()


# Where flows go: the address, and who makes the listener and the flow.
WAYS = {
    "4": (NEAR["peer"], lambda: peer.make, lambda: here),
    "6": (NEAR["peer6"], lambda: peer.make, lambda: here),
    "loopback": ("127.0.0.1", lambda: here, lambda: here),
    "own": (NEAR["own"], lambda: here, lambda: here),
    "container": (NEAR["own"], lambda: here, lambda: peer.make),
}


def start(count: int, way: str = "4", priority: int = 0, size: int | None = None) -> None:
    """Flows that send all they can, or @size bytes and then nothing."""
    address, listening, flowing = WAYS[way]
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = listening()(lambda: socket.create_server((address, 0), family=kind, backlog=1024))
    for _ in range(count):
        flow = flowing()(lambda: socket.socket(kind))
        flow.setsockopt(socket.IPPROTO_TCP, CONGESTION, b"ccc")
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
        flow.connect(listener.getsockname())
        accepted, _ = listener.accept()
        threading.Thread(target=drain, args=(accepted,), daemon=True).start()
        if size is None:
            threading.Thread(target=fill, args=(flow,), daemon=True).start()
        else:
            flow.sendall(bytes(size))
        flows.append(flow)


def unprivileged(number: int, level: int, option: int, value: int) -> None:
    """An option of a flow, set by a user without any capability."""
    os.seteuid(65534)
    try:
        flows[number].setsockopt(level, option, value)
    finally:
        os.seteuid(0)


def sysctl(name: str, value: str) -> None:
    """Here and at the peer."""
    write = f"echo {value} >/proc/sys/net/ipv4/{name}"
    command(f"{write}; ip netns exec peer sh -c '{write}'")


def network(netem: str) -> None:
    """10 Mbit/s, 2 x 20 ms."""
    command("ip netns add peer; ip link set lo mtu 1500 gso_max_segs 1 up")
    command("ip link add up0 gso_max_segs 1 type veth peer name peer0 netns peer")
    command("ip -n peer link set peer0 gso_max_segs 1")
    for ip, device, address in (
        ("ip", "up0", NEAR["own"]),
        ("ip -n peer", "peer0", NEAR["peer"]),
    ):
        command(f"{ip} link set {device} up; {ip} addr add {address}/24 dev {device}")
        command(f"{ip} link set lo up")
    command(f"ip addr add {NEAR['own6']}/64 dev up0 nodad")
    command(f"ip -n peer addr add {NEAR['peer6']}/64 dev peer0 nodad")
    command(f"tc qdisc add dev up0 root netem rate 10mbit delay 20ms limit 200 {netem}")
    # Without a rate, time would stand still while a flow sends to its own machine.
    command("tc qdisc add dev lo root netem rate 10mbit delay 20ms limit 200")
    command("tc -n peer qdisc add dev peer0 root netem delay 20ms limit 1000")
    sysctl("tcp_ecn", "1")
    peer.start()


def stop(count: int) -> None:
    for _ in range(count):
        flow = flows.pop(0)
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        flow.shutdown(socket.SHUT_RDWR)
        flow.close()


def info(flow: socket.socket) -> dict:
    raw = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    cwnd = struct.unpack_from("<I", raw, TCPI_SND_CWND)[0]
    acked = struct.unpack_from("<Q", raw, TCPI_BYTES_ACKED)[0]
    retransmitted = struct.unpack_from("<I", raw, TCPI_TOTAL_RETRANS)[0]
    # What the module says in the place of BBR's record.
    gain = struct.unpack_from("<I", flow.getsockopt(socket.IPPROTO_TCP, CC_INFO, 20), BBR_CWND_GAIN)[0]
    return {"cwnd": cwnd, "acked": acked, "retrans": retransmitted, "coupled": gain == 256}


def snapshot(name: str) -> None:
    seen = {"name": name, "tcp": [info(flow) for flow in flows]}
    with (WORK / "snapshots").open("a") as file:
        file.write(json.dumps(seen) + "\n")


def bind(on: bool) -> None:
    name = next(Path("/sys/bus/virtio/devices").iterdir()).name
    (Path(DEVICE) / ("bind" if on else "unbind")).write_text(name)


def step(verb: str, *values) -> None:
    match verb:
        case "device":
            (WORK / "behaviour").write_text(values[0])
        case "sleep":
            time.sleep(values[0])
        case "start":
            start(*values)
        case "stop":
            stop(values[0])
        case "priority":
            flows[values[0]].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, values[1])
        case "unprivileged":
            unprivileged(*values)
        case "sysctl":
            sysctl(*values)
        case "connect":
            connect(*values)
        case "option":
            flow, *option = values
            flows[flow].setsockopt(*option)
        case "send":
            for flow in flows:
                threading.Thread(target=fill, args=(flow,), daemon=True).start()
        case "snapshot":
            snapshot(values[0])
        case "bind":
            bind(values[0])
        case "run":
            command(values[0])
        case _:
            raise ValueError(verb)


def connect(count: int) -> None:
    """Flows that are connected and have sent nothing yet."""
    address, listening, _ = WAYS["4"]
    listener = listening()(lambda: socket.create_server((address, 0), backlog=1024))
    for _ in range(count):
        flow = socket.socket()
        flow.setsockopt(socket.IPPROTO_TCP, CONGESTION, b"ccc")
        flow.connect(listener.getsockname())
        accepted, _ = listener.accept()
        threading.Thread(target=drain, args=(accepted,), daemon=True).start()
        flows.append(flow)


peer = Peer()


def main() -> None:
    command("mount -t proc proc /proc; mount -t sysfs sys /sys")
    command("mount -t tmpfs run /run")
    steps = json.loads((WORK / "steps").read_text())
    network(steps["netem"])
    command(f"insmod {os.environ['module']} {steps['parameters']}")
    for one in steps["steps"]:
        step(*one)


try:
    main()
except BaseException as error:  # there is nobody else to say it
    (WORK / "failure").write_text(repr(error))
log = subprocess.run(["/bin/dmesg"], capture_output=True, text=True)
(WORK / "dmesg").write_text(log.stdout)
# 0x4321fedc: power off
ctypes.CDLL(None).reboot(0x4321FEDC)
