# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Takes connections and says what arrives: ten times a second a line of JSON with
the bytes of each connection by its source port, and every connection that ended."""

import json
import selectors
import socket
import sys
import time

PERIOD_S = 0.1


def main(address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    received: dict[int, int] = {}
    ended: list[int] = []

    def accept() -> None:
        connection, peer = listener.accept()
        received[peer[1]] = 0
        selector.register(connection, selectors.EVENT_READ, (connection, peer[1]))

    def receive(connection: socket.socket, source: int) -> None:
        try:
            count = len(connection.recv(1 << 18))
        except ConnectionError:
            count = 0
        received[source] += count
        if not count:
            selector.unregister(connection)
            connection.close()
            ended.append(source)

    due = time.monotonic()
    while True:
        for key, _ in selector.select(max(0.0, due - time.monotonic())):
            if key.data:
                receive(*key.data)
            else:
                accept()
        if time.monotonic() >= due:
            due = time.monotonic() + PERIOD_S
            print(json.dumps({"time": time.time(), "bytes": received, "ended": ended}), flush=True)


main(sys.argv[1], int(sys.argv[2]))
