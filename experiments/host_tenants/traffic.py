# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: traffic.py send ADDRESS PORT FLOWS SECONDS [ALGORITHM]
              traffic.py receive PORT SECONDS

Bulk flows.  The receiver prints a JSON object when its time is over: for each peer the bytes in
each second, and what ended a flow too early, if anything did.
"""

import json
import selectors
import socket
import sys
import time

_CHUNK = bytes(65536)


def send(address: str, port: int, flows: int, seconds: float, algorithm: str = "reno") -> None:
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
    begin = time.monotonic()
    peers: dict[str, list[int]] = {}
    ended = []
    while (now := time.monotonic()) < begin + seconds:
        for key, _ in selector.select(begin + seconds - now):
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
    return {"bytes_by_second": peers, "ended": ended}


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), *sys.argv[6:])
    else:
        print(json.dumps(receive(int(sys.argv[2]), float(sys.argv[3]))))
