#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes the daemon look like one from before it could migrate: `older.py LISTEN DAEMON`.

Stands between front end and daemon on a vhost-user socket and hides the features that
migration needs; everything else passes, descriptors as well."""
import selectors
import socket
import struct
import sys

HEADER = struct.Struct("<III")
FEATURE = struct.Struct("<Q")
# Reply to which request, and which bits it loses: VHOST_F_LOG_ALL, and
# VHOST_USER_PROTOCOL_F_LOG_SHMFD and _DEVICE_STATE.
HIDDEN = {1: 1 << 26, 15: 1 << 1 | 1 << 19}
DESCRIPTORS = 32


def exactly(source, count):
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def to_daemon(front, daemon):
    # A message's descriptors come with its first byte, and have to go so too.
    header, descriptors, _, _ = socket.recv_fds(front, HEADER.size, DESCRIPTORS)
    if not header:
        raise ConnectionError
    header += exactly(front, HEADER.size - len(header))
    message = header + exactly(front, HEADER.unpack(header)[2])
    sent = socket.send_fds(daemon, [message], descriptors)
    daemon.sendall(message[sent:])
    for descriptor in descriptors:
        socket.close(descriptor)


def to_front_end(daemon, front):
    header = exactly(daemon, HEADER.size)
    request, _, size = HEADER.unpack(header)
    payload = exactly(daemon, size)
    if hidden := HIDDEN.get(request):
        payload = FEATURE.pack(FEATURE.unpack(payload)[0] & ~hidden)
    front.sendall(header + payload)


def relay(front, daemon):
    selector = selectors.DefaultSelector()
    selector.register(front, selectors.EVENT_READ, lambda: to_daemon(front, daemon))
    selector.register(daemon, selectors.EVENT_READ, lambda: to_front_end(daemon, front))
    try:
        while True:
            for key, _ in selector.select():
                key.data()
    except OSError:
        pass  # one of them has gone, and so the other is told


def main(path, behind):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            front, _ = listener.accept()
            with front, socket.socket(socket.AF_UNIX) as daemon:
                daemon.connect(behind)
                relay(front, daemon)


main(*sys.argv[1:])
