# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The daemon and the operator's program on a host that has a libvirtd of its own
(`private-libvirt`)."""

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .errors import HostError
from .shell import host

CONTROL = Path("/run/ccc/control.sock")
_CONFIG = """[daemon]
control = "{control}"
state = "{state}"
[group.uplink]
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
        config = _CONFIG.format(control=CONTROL, state="/run/ccc/state.json")
        (self.directory / "ccc.toml").write_text(config)
        self.serve()
        self._start("cccctl", "watch")
        return self

    def serve(self) -> None:
        """Starts the daemon."""
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

    def _start(self, program: str, *arguments: str) -> None:
        with (self.directory / f"{program}.log").open("w") as log:
            command = [*self.inside, str(self.programs / program), *arguments]
            self._running[program] = subprocess.Popen(command, stdout=log, stderr=log)

    def __exit__(self, *_) -> None:
        for process in self._running.values():
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
