# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: traffic.py send ADDRESS PORT FLOWS SECONDS ALGORITHM [AFTER]
              traffic.py idle ADDRESS PORT FLOWS SECONDS ALGORITHM
              traffic.py change ADDRESS PORT FLOWS SECONDS ALGORITHM
              traffic.py receive PORT SECONDS
              traffic.py deaf PORT SECONDS
              traffic.py watch SECONDS INTERFACE...
              traffic.py begin CGROUP HOME ADDRESS PORT TIMES AFTER

Bulk flows, those that send one byte each, and another one when a line is read, and bulk flows that
change to the algorithm that a line names.  The receiver prints a JSON object when its time is over,
or at SIGTERM: for each peer the bytes in each second, what ended a flow too early, if anything
did, and the seconds in which it stood still itself, as on a busy machine.  Who is deaf takes
connections, and nothing that they send.  The watcher prints times and how many bytes each interface
has received by then.  What begins prints the algorithms of connections from a cgroup so long after
that was made, each time anew unless it was there before.
"""

import json
import resource
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

_CHUNK = bytes(65536)
# How often the receiver looks at least, and how much later it stood still.
_LOOK_S = 0.1
_STOOD_STILL_S = 0.5


def send(address: str, port: int, flows: int, seconds: float, algorithm: str, after_s: float = 0) -> None:
    time.sleep(after_s)
    selector = selectors.DefaultSelector()
    end = time.monotonic() + seconds
    for _ in range(flows):
        flow = _connect(address, port, algorithm, end)
        flow.setblocking(False)
        selector.register(flow, selectors.EVENT_WRITE)
    while (rest := end - time.monotonic()) > 0:
        for key, _ in selector.select(rest):
            try:
                key.fileobj.send(_CHUNK)
            except BlockingIOError:
                continue
            except ConnectionError:
                return  # the receiver has what it wanted


def change(address: str, port: int, flows: int, seconds: float, algorithm: str) -> None:
    end = time.monotonic() + seconds
    selector = selectors.DefaultSelector()
    changing = [_connect(address, port, algorithm, end) for _ in range(flows)]
    for flow in changing:
        flow.setblocking(False)
        selector.register(flow, selectors.EVENT_WRITE)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while (rest := end - time.monotonic()) > 0:
        for key, _ in selector.select(rest):
            if key.fileobj is sys.stdin:
                other = sys.stdin.readline().strip()
                for flow in changing:
                    flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other.encode())
                continue
            with suppress(BlockingIOError):
                key.fileobj.send(_CHUNK)


def idle(address: str, port: int, flows: int, seconds: float, algorithm: str) -> None:
    end = time.monotonic() + seconds
    connected = [_connect(address, port, algorithm, end) for _ in range(flows)]
    while True:
        for flow in connected:
            flow.send(b"x")
        if not sys.stdin.readline():
            return


def _connect(address: str, port: int, algorithm: str, end: float) -> socket.socket:
    """Once the receiver listens."""
    while True:
        flow = socket.socket()
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
        try:
            flow.connect((address, port))
            return flow
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def receive(port: int, seconds: float) -> dict:
    listener = socket.create_server(("", port), backlog=1024)
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    begin = looked = time.monotonic()
    peers: dict[str, list[int]] = {}
    ended = []
    stood_still: list[int] = []
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    while not told and (now := time.monotonic()) < begin + seconds:
        if now - looked > _STOOD_STILL_S:
            stood_still.extend(range(int(looked - begin), int(now - begin) + 1))
        looked = now
        for key, _ in selector.select(min(_LOOK_S, begin + seconds - now)):
            if key.fileobj is listener:
                flow, (peer, _) = listener.accept()
                flow.setblocking(False)
                peers.setdefault(peer, [0] * (int(seconds) + 2))
                selector.register(flow, selectors.EVENT_READ, peer)
                continue
            try:
                got = len(key.fileobj.recv(1 << 20))
                reason = "closed"
            except OSError as error:
                got, reason = 0, str(error)
            if got:
                peers[key.data][int(time.monotonic() - begin)] += got
            else:
                ended.append({"peer": key.data, "after_s": time.monotonic() - begin, "reason": reason})
                selector.unregister(key.fileobj)
    return {"bytes_by_second": peers, "ended": ended, "stood_still": stood_still}


def watch(seconds: float, interfaces: list[str]) -> list[list[float]]:
    counters = [Path(f"/sys/class/net/{name}/statistics/rx_bytes") for name in interfaces]
    samples: list[list[float]] = []
    begin = time.monotonic()
    while (after := time.monotonic() - begin) < seconds:
        samples.append([after, *(int(counter.read_text()) for counter in counters)])
        time.sleep(0.02)
    return samples


def begin(cgroup: Path, home: Path, address: str, port: int, times: int, after_s: float) -> list[str]:
    stays = cgroup.exists()
    names = []
    for _ in range(times):
        if not stays:
            cgroup.mkdir()
        time.sleep(after_s)
        (cgroup / "cgroup.procs").write_text("0")
        with socket.create_connection((address, port)) as flow:
            name = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        names.append(name.partition(b"\0")[0].decode())
        (home / "cgroup.procs").write_text("0")
        if not stays:
            cgroup.rmdir()
    return names


def deaf(port: int, seconds: float) -> None:
    """The kernel makes the connections, up to this many."""
    with socket.create_server(("", port), backlog=4096):
        time.sleep(seconds)


def main(verb: str, *words: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if verb == "send":
        address, port, flows, seconds, algorithm, *after = words
        send(address, int(port), int(flows), float(seconds), algorithm, *map(float, after))
    elif verb in ("idle", "change"):
        address, port, flows, seconds, algorithm = words
        (idle if verb == "idle" else change)(address, int(port), int(flows), float(seconds), algorithm)
    elif verb == "deaf":
        deaf(int(words[0]), float(words[1]))
    elif verb == "watch":
        seconds, *interfaces = words
        print(json.dumps(watch(float(seconds), interfaces)))
    elif verb == "begin":
        cgroup, home, address, port, times, after = words
        print(json.dumps(begin(Path(cgroup), Path(home), address, int(port), int(times), float(after))))
    else:
        print(json.dumps(receive(int(words[0]), float(words[1]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
