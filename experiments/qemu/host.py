# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The daemon and the operator's program on a host that has a libvirtd of its own
(`private-libvirt`)."""

import json
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .errors import HostError
from .shell import host

CONTROL = Path("/run/ccc/control/control.sock")
STATE = Path("/run/ccc/state/state.json")
SOCKETS = Path("/run/ccc/vm")
_CONFIG = """[daemon]
control = "{control}"
state = "{state}"
[group.{group}]
"""


@dataclass
class Daemon:
    """`ccc-vhost` without any VM, and `cccctl watch` beside it, on this host or on
    one that `inside` runs commands on."""

    programs: Path
    directory: Path
    inside: tuple[str, ...] = ()
    _running: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.directory / "ccc-vhost.log").read_text()

    def __enter__(self) -> "Daemon":
        # On the other host too.
        host(*self.inside, "mkdir", "-p", *map(str, (CONTROL.parent, STATE.parent, SOCKETS)))
        self.serve()
        self.watch()
        return self

    def serve(self, group: str = "uplink") -> None:
        """Starts the daemon, with one group."""
        config = _CONFIG.format(control=CONTROL, state=STATE, group=group)
        (self.directory / "ccc.toml").write_text(config)
        self._start("ccc-vhost", "--config", str(self.directory / "ccc.toml"))
        deadline = time.monotonic() + 10
        while "serving" not in self.log:
            if time.monotonic() > deadline or self._running["ccc-vhost"].poll() is not None:
                raise HostError(f"ccc-vhost does not serve: {self.log}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends the daemon without a chance to clean up."""
        self._running["ccc-vhost"].kill()
        self._running["ccc-vhost"].wait()

    def signal(self, number: int) -> None:
        """Sends the daemon a signal."""
        self._running["ccc-vhost"].send_signal(number)

    def watch(self) -> None:
        """Starts `cccctl watch`, which ends with its libvirtd."""
        self.end_watch()
        self._start("cccctl", "watch")

    def end_watch(self) -> None:
        """Ends it, if there is one."""
        if watch := self._running.pop("cccctl", None):
            watch.kill()
            watch.wait()

    def _start(self, program: str, *arguments: str) -> None:
        with (self.directory / f"{program}.log").open("w") as log:
            command = [*self.inside, str(self.programs / program), *arguments]
            self._running[program] = subprocess.Popen(command, stdout=log, stderr=log)

    def __exit__(self, *_) -> None:
        for process in self._running.values():
            # One that was stopped hears of its end only then.
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._running.values():
            process.wait(10)

    def control(self, *arguments: str) -> str:
        """What `cccctl` prints."""
        return host(*self.inside, str(self.programs / "cccctl"), *arguments)

    def vm(self, name: str) -> dict:
        return json.loads(self.control("--json", "show", name))

    def group(self, name: str) -> dict:
        return json.loads(self.control("--json", "group", name))
