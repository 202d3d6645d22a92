# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: delay.py MILLISECONDS FROM TO

A wire between two interfaces on which frames from the first to the second take so long; those
the other way take no time.  For kernels that have no netem.
"""

import collections
import errno
import gc
import os
import select
import socket
import sys
import time

_ALL = 3  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING


def _open(interface: str) -> socket.socket:
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
    wire.bind((interface, _ALL))
    wire.setblocking(False)
    return wire


def _frames(wire: socket.socket):
    while True:
        try:
            frame, address = wire.recvfrom(65536)
        except BlockingIOError:
            return
        if address[2] != _OUTGOING:
            yield frame


def _send(wire: socket.socket, frame: bytes) -> None:
    """It is lost where an interface has no room for it, as of any wire."""
    try:
        wire.send(frame)
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise


def main() -> None:
    delay, to_delay, other = float(sys.argv[1]) / 1000, _open(sys.argv[2]), _open(sys.argv[3])
    waiting: collections.deque[tuple[float, bytes]] = collections.deque()
    gc.disable()
    # As a wire would be, it is there whatever else runs.
    os.nice(-15)
    while True:
        rest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([to_delay, other], [], [], rest)
        now = time.monotonic()
        if to_delay in ready:
            waiting.extend((now + delay, frame) for frame in _frames(to_delay))
        if other in ready:
            for frame in _frames(other):
                _send(to_delay, frame)
        while waiting and waiting[0][0] <= now:
            _send(other, waiting.popleft()[1])


if __name__ == "__main__":
    main()
