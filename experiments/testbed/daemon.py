# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The daemon `ccc-vhost`, and a client of its control socket."""

import http.client
import json
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from .artefacts import program
from .errors import TestbedError, require
from .host import HERE, Host, stop
from .wait import until


class ControlError(TestbedError):
    """The daemon refused a request; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ControlClient:
    """Requests on a control socket: HTTP with JSON bodies.

    Raises OSError while there is no daemon that answers."""

    path: Path
    timeout_s: float = 60.0

    def get(self, path: str) -> dict[str, Any]:
        return self._request("GET", path)

    def put(self, path: str, body: object) -> dict[str, Any]:
        return self._request("PUT", path, body)

    def _request(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(self.timeout_s)
            stream.connect(str(self.path))
            connection = http.client.HTTPConnection("ccc")
            connection.sock = stream
            content = None if body is None else json.dumps(body)
            try:
                connection.request(method, path, content, {"content-type": "application/json"})
                answer = connection.getresponse()
                text = answer.read().decode()
            except http.client.HTTPException as error:
                raise ConnectionError(f"{self.path}: half an answer") from error
        if answer.status != 200:
            raise ControlError(answer.status, f"{method} {path}: {answer.status} {text}")
        answered: dict[str, Any] = json.loads(text)
        return answered


@dataclass
class Daemon:
    """`ccc-vhost` with the given sections of its configuration.

    Its log is `NAME.log` in the directory; a second start goes on in it."""

    directory: Path
    sections: str
    control: Path
    state: Path | None = None
    metrics: str | None = None
    name: str = "ccc-vhost"
    host: Host = HERE
    log_level: str = "info"
    executable: Path | None = None
    _process: "Popen[str] | None" = field(default=None, repr=False)

    @classmethod
    def of_vm(cls, directory: Path, name: str = "vhost") -> "Daemon":
        """One with the VM `guest`, all of whose files are in the directory."""
        # Its configuration has absolute paths only.
        directory = directory.resolve()
        sections = f'[group.uplink]\n[vm.guest]\nsocket = "{directory}/{name}.sock"\ngroup = "uplink"'
        return cls(directory, sections, directory / f"{name}.control", name=name, log_level="debug")

    @property
    def backend(self) -> Path:
        """The socket for the device of the VM `guest`."""
        return self.directory / f"{self.name}.sock"

    def __enter__(self) -> "Daemon":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.directory / f"{self.name}.log"

    def start(self, sections: str | None = None) -> None:
        """Starts it, with other sections if they are given, and waits until it answers."""
        lines = ["[daemon]", f'control = "{self.control}"']
        lines += [f'state = "{self.state}"'] if self.state else []
        lines += [f'metrics = "{self.metrics}"'] if self.metrics else []
        config = self.directory / f"{self.name}.toml"
        config.write_text("\n".join([*lines, sections or self.sections, ""]))
        with self._log.open("a") as log:
            command = (self.executable or program("ccc-vhost"), "--config", config)
            environment = {"RUST_LOG": self.log_level}
            self._process = self.host.start(*command, stdout=log, stderr=log, environment=environment)
        until(f"{self.name} answers", self._answers)

    def _answers(self) -> bool:
        require(self._process and self._process.poll() is None, f"{self.name} does not start: {self.log}")
        with suppress(OSError, ControlError):
            self.get("/v1/vms", timeout_s=1)
            return True
        return False

    def stop(self) -> None:
        if self._process:
            stop(self._process)

    def kill(self) -> None:
        """Ends it as a crash does, without a chance to clean up."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def hang(self) -> None:
        """It does nothing any more; the kernel still accepts connections for it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process
        self._process.send_signal(number)

    def get(self, path: str, timeout_s: float = 60) -> dict[str, Any]:
        """An answer of its control socket."""
        return ControlClient(self.control, timeout_s).get(path)

    def vm(self, name: str) -> dict[str, Any] | None:
        """What it says of a VM, if it has the VM."""
        try:
            return self.get(f"/v1/vms/{name}")
        except ControlError as error:
            if error.status == 404:
                return None
            raise

    def group(self, name: str) -> dict[str, Any]:
        return self.get(f"/v1/groups/{name}")

    def coupled_flows(self, vm: str, timeout_s: float = 2) -> int:
        """How many flows of a VM are coupled; none while the daemon does not answer."""
        with suppress(OSError, ControlError):
            return int(self.get(f"/v1/vms/{vm}", timeout_s)["coupled_flows"])
        return 0
