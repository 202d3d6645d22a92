# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What a service manager hears of the loader: that its loop turns, also while the daemon hangs, and
nothing of one that hangs itself."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from ccc_experiments.scores import Score

from . import cgroups
from .service import Service, until

# It tells twice as often.
_WANTED_US = 1_000_000
_LOOK_S = 10.0
# Of each of these it waits a second for the daemon that hangs: in turn that would be longer than the
# most that it may be silent, which is a second as long as nothing else holds it up.
_TENANTS = 6
_MOST_S = 4.0


def run(out: Path) -> list[Score]:
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        manager = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        manager.bind(str(service.run / "notify"))
        stack.callback((service.run / "notify").unlink)
        service.start_daemon()
        names = [f"w{number}" for number in range(_TENANTS)]
        for name in names:
            service.add(name, "cgroup", f"{cgroups.OURS}/{name}", "g")
        manager_of = {"NOTIFY_SOCKET": str(service.run / "notify"), "WATCHDOG_USEC": str(_WANTED_US)}
        service.start_loader("watched", **manager_of)
        manager.settimeout(20)
        ready = manager.recv(256).strip() == b"READY=1"
        # It asks which tenants there are twice a second.
        time.sleep(2)
        with service.daemon_paused():
            for name in names:
                cgroups.make(name)
            daemon_hangs = silence_s(manager)
        until("it has its tenants", lambda: all(one["connected"] for one in service.tenants().values()))
        with service.loader_paused():
            itself_hangs = silence_s(manager)
    return [
        Score("the loader tells the service manager that it is ready", ready, "1", ">=", 1),
        Score("longest silence of the loader while the daemon hangs", daemon_hangs, "s", "<=", _MOST_S),
        Score("the same of a loader that hangs, which has to be noticed", itself_hangs, "s", ">=", _LOOK_S * 0.9),
    ]


def silence_s(manager: socket.socket) -> float:
    """The longest time between what it hears."""
    # What was on its way.
    manager.setblocking(False)
    try:
        while True:
            manager.recv(256)
    except BlockingIOError:
        pass
    began = last = time.monotonic()
    longest = 0.0
    while (rest := began + _LOOK_S - time.monotonic()) > 0:
        manager.settimeout(rest)
        try:
            manager.recv(256)
        except TimeoutError:
            break
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return max(longest, time.monotonic() - last)
