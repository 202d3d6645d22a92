#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Takes connections and says what arrives: ten times a second a line of JSON with
the bytes of each connection, and every connection that ended."""
import json
import selectors
import socket
import sys
import time

PERIOD = 0.1


def main(address, port):
    listener = socket.create_server((address, port))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    received, ended = {}, []
    due = time.monotonic()
    while True:
        for key, _ in selector.select(max(0.0, due - time.monotonic())):
            if key.fileobj is listener:
                connection, peer = listener.accept()
                received[peer[1]] = 0
                selector.register(connection, selectors.EVENT_READ, peer[1])
                continue
            try:
                count = len(key.fileobj.recv(1 << 18))
            except ConnectionError:
                count = 0
            received[key.data] += count
            if not count:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                ended.append(key.data)
        if time.monotonic() >= due:
            due = time.monotonic() + PERIOD
            print(json.dumps({"time": time.time(), "bytes": received, "ended": ended}), flush=True)


main(sys.argv[1], int(sys.argv[2]))
