# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A daemon that looks like one from before it could migrate.

A relay between front end and daemon hides the features that migration needs; everything
else passes, file descriptors as well."""

import contextlib
import selectors
import socket
import struct
from collections.abc import Mapping
from types import MappingProxyType

from .daemon import Daemon
from .vhost_user import HEADER, Request, Server, receive_message

_FEATURE = struct.Struct("<Q")
# Bits that a reply loses: VHOST_F_LOG_ALL, and VHOST_USER_PROTOCOL_F_LOG_SHMFD and
# _DEVICE_STATE.
_HIDDEN: dict[int, int] = {Request.GET_FEATURES: 1 << 26, Request.GET_PROTOCOL_FEATURES: 1 << 1 | 1 << 19}


class OlderDaemon:
    """The relay before a running daemon, until it is closed; front ends connect to `backend`."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.backend = daemon.directory / f"{daemon.name}-older.sock"
        self._server = Server(self.backend, self._relay)

    def close(self) -> None:
        self._server.close()

    def _relay(self, front_end: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as daemon, contextlib.suppress(OSError):
            daemon.connect(str(self.daemon.backend))
            selector = selectors.DefaultSelector()
            selector.register(front_end, selectors.EVENT_READ, lambda: _pass(front_end, daemon))
            selector.register(daemon, selectors.EVENT_READ, lambda: _pass(daemon, front_end, _HIDDEN))
            while all(key.data() for key, _ in selector.select()):
                pass


def _pass(source: socket.socket, target: socket.socket, hidden: Mapping[int, int] = MappingProxyType({})) -> bool:
    """Passes one message on; false when the source has gone."""
    message = receive_message(source)
    if message is None:
        return False
    request, flags, payload, fds = message
    if bits := hidden.get(request):
        payload = _FEATURE.pack(_FEATURE.unpack(payload)[0] & ~bits)
    data = HEADER.pack(request, flags, len(payload)) + payload
    sent = socket.send_fds(target, [data], fds)
    target.sendall(data[sent:])
    for fd in fds:
        socket.close(fd)
    return True
