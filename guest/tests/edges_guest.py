#!/usr/bin/python3 -B
# SPDX-License-Identifier: GPL-2.0
"""Init of a guest whose device misbehaves: runs a test's steps, notes what it sees.

Steps are a list of lists in the file `steps` of the work directory; each
snapshot is a line of JSON in `snapshots`.
"""

import ctypes
import json
import os
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


def start(count: int, family: str = "4", priority: int = 0, size: int | None = None) -> None:
    """Flows that send all they can, or @size bytes and then nothing."""
    kind, address = (socket.AF_INET6, "::1") if family == "6" else (socket.AF_INET, "127.0.0.1")
    listener = socket.create_server((address, 0), family=kind, backlog=1024)
    for _ in range(count):
        flow = socket.socket(kind)
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


def stop(count: int) -> None:
    for _ in range(count):
        flow = flows.pop(0)
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        flow.shutdown(socket.SHUT_RDWR)
        flow.close()


def info(flow: socket.socket) -> dict:
    raw = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    cwnd = struct.unpack_from("<I", raw, 80)[0]
    acked = struct.unpack_from("<Q", raw, 120)[0]
    retransmitted = struct.unpack_from("<I", raw, 100)[0]
    # What the module says in the place of BBR's record.
    gain = struct.unpack_from("<I", flow.getsockopt(socket.IPPROTO_TCP, CC_INFO, 20), 16)[0]
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
        case "phase":
            (WORK / "phase").write_text(values[0])
        case "sleep":
            time.sleep(values[0])
        case "start":
            start(*values)
        case "stop":
            stop(values[0])
        case "priority":
            flows[values[0]].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, values[1])
        case "snapshot":
            snapshot(values[0])
        case "bind":
            bind(values[0])
        case "run":
            command(values[0])
        case _:
            raise ValueError(verb)


def main() -> None:
    command("mount -t proc proc /proc; mount -t sysfs sys /sys")
    command("mount -t tmpfs run /run")
    steps = json.loads((WORK / "steps").read_text())
    # 10 Mbit/s, 2 x 20 ms; one queue for both ways.
    command("ip link set lo mtu 1500 gso_max_segs 1 up")
    command(f"tc qdisc add dev lo root netem rate 10mbit delay 20ms limit 200 {steps['netem']}")
    command("echo 1 >/proc/sys/net/ipv4/tcp_ecn")
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
