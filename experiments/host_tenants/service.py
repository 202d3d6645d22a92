# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The daemon, the loader of the BPF program and the relay of guests' agents, as a host has them."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from ccc_experiments.lab import release

TARGET = release()


def until(what: str, holds: Callable[[], bool], seconds: float = 20) -> float:
    """Waits until something holds; how long that took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.01)
    return time.monotonic() - began


def bpf(kind: str, what: str = "show", number: int | None = None) -> list[dict]:
    """What the kernel has of it: programs, maps or links."""
    which = [] if number is None else ["id", str(number)]
    shown = subprocess.run(["bpftool", "-j", kind, what, *which], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(shown) or []


class Service:
    """What is started runs as long as this does, with these groups; flows to `elsewhere` are left alone."""

    def __init__(
        self,
        out: Path,
        groups: dict[str, dict],
        elsewhere: str = "",
        vms: dict[str, str] | None = None,
        metrics: str = "",
    ) -> None:
        """`vms` are the groups of virtual machines that have the device; `metrics` is an address for them."""
        self.out = out
        self.run = Path("/run/ccc-host")
        (self.run / "vm").mkdir(parents=True, exist_ok=True)
        self.control = self.run / "control.sock"
        self.pins = Path("/sys/fs/bpf/ccc")
        self.config = self.run / "config.toml"
        self.config.write_text(_config(self.run, groups, elsewhere, vms or {}, metrics))
        # The tenants of an earlier one.
        (self.run / "state.json").unlink(missing_ok=True)
        self._daemon: subprocess.Popen | None = None
        self._loader: subprocess.Popen | None = None
        self._relay: subprocess.Popen | None = None
        self._agent: subprocess.Popen | None = None
        # Of an agent on this machine: the relay's socket, and the cgroup that it couples.
        self.agent = ("", "")

    def start(self) -> None:
        self.start_daemon()
        self.start_loader()

    def start_daemon(self) -> None:
        command = [TARGET / "ccc-vhost", "--config", self.config]
        self._daemon = self._spawn("daemon", command)
        until("the daemon answers", lambda: self._ask("list", check=False) is not None)

    def start_loader(self, log: str = "loader", level: str = "info", **environment: str) -> None:
        command = [TARGET / "ccc-bpf", "run", "--pins", self.pins, "--control", self.control]
        self._loader = self._spawn(log, command, level, environment)

    def loader_has_ended(self) -> bool:
        return self._loader is None or self._loader.poll() is not None

    @contextmanager
    def loader_paused(self) -> Iterator[None]:
        """It does not see what happens meanwhile, as between two of its looks."""
        with ExitStack() as stack:
            until("the loader is between two looks", lambda: self._pauses_apart(stack))
            yield

    def _pauses_apart(self, stack: ExitStack) -> bool:
        """Pauses the loader, unless it holds a namespace just then, which would stay while it is paused."""
        assert self._loader
        with ExitStack() as paused:
            paused.enter_context(_paused(self._loader))
            names = [os.readlink(file) for file in Path(f"/proc/{self._loader.pid}/fd").iterdir()]
            if any(name.startswith(("net:", "/run/netns")) for name in names):
                return False
            stack.push(paused.pop_all())
        return True

    def daemon_paused(self) -> AbstractContextManager[None]:
        return _paused(self._daemon)

    def start_relay(self) -> None:
        self._relay = self._spawn("relay", [TARGET / "ccc-bpf", "relay", "--control", self.control])

    def kill_relay(self) -> None:
        self._end(self._relay, signal.SIGKILL)

    def start_agent(self, *by: str) -> subprocess.Popen:
        relay, cgroup = self.agent
        command = [*by, TARGET / "ccc-bpf", "agent", "--pins", self.pins, "--unix", relay, "--cgroup", cgroup]
        self._agent = self._spawn("agent", command)
        return self._agent

    def kill_agent(self) -> None:
        self._end(self._agent, signal.SIGKILL)

    def _spawn(
        self, name: str, command: list, level: str = "info", environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen:
        with (self.out / f"{name}.log").open("a") as log:
            environment = {**os.environ, "RUST_LOG": level, **environment}
            return subprocess.Popen(command, stderr=log, stdout=log, env=environment)

    def kill_daemon(self) -> None:
        self._end(self._daemon, signal.SIGKILL)

    def kill_loader(self) -> None:
        self._end(self._loader, signal.SIGKILL)

    @staticmethod
    def _end(process: subprocess.Popen | None, how: int) -> None:
        if process and process.poll() is None:
            process.send_signal(how)
            process.wait()

    def stop(self) -> None:
        self._end(self._agent, signal.SIGTERM)
        self._end(self._relay, signal.SIGTERM)
        self._end(self._loader, signal.SIGTERM)
        self._end(self._daemon, signal.SIGTERM)
        self.unload()

    def unload(self) -> None:
        subprocess.run([TARGET / "ccc-bpf", "unload", "--pins", self.pins], check=True)

    def _ask(self, *words: str, check: bool = True):
        command = [TARGET / "cccctl", "--json", "--socket", self.control, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode and check:
            raise RuntimeError(f"cccctl {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def add(self, name: str, place: str, where: str, group: str, weight: float = 1) -> None:
        socket = self.run / "vm" / f"{name}.sock"
        words = [f"--{place}", where, "--group", group, "--weight", str(weight), "--vhost-socket", str(socket)]
        self._ask("tenant", "add", name, *words)

    def change(self, name: str, group: str, weight: float) -> None:
        self._ask("set", name, "--group", group, "--weight", str(weight))

    def tell(self, *words: str) -> None:
        """Any command of an operator's."""
        self._ask(*words)

    def remove(self, name: str) -> None:
        self._ask("tenant", "remove", name)

    def tenants(self) -> dict[str, dict]:
        return {vm["name"]: vm for vm in self._ask("tenant", "list")["vms"]}

    def doctor(self) -> list[dict]:
        """What is not as it should be; then it fails, too."""
        command = [TARGET / "cccctl", "--json", "--socket", self.control, "doctor"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)["findings"]

    def show(self, name: str) -> dict:
        return self._ask("show", name)

    def await_connected(self, *names: str) -> float:
        return until("tenants connected", lambda: all(self.tenants()[name]["connected"] for name in names))


@contextmanager
def _paused(process: subprocess.Popen | None) -> Iterator[None]:
    assert process
    process.send_signal(signal.SIGSTOP)
    try:
        until("it is stopped", lambda: _state(process.pid) == "T")
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _config(run: Path, groups: dict[str, dict], elsewhere: str, vms: dict[str, str], metrics: str) -> str:
    lines = ["[daemon]", f'control = "{run}/control.sock"', f'state = "{run}/state.json"']
    if metrics:
        lines.append(f'metrics = "{metrics}"')
    for name, settings in groups.items():
        lines.append(f"[group.{name}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    for name, group in vms.items():
        lines += [f"[vm.{name}]", f'socket = "{run}/vm/{name}.sock"', f'group = "{group}"']
    if elsewhere:
        lines += ["[[rule]]", f'destination = "{elsewhere}"', 'group = "none"']
    return "\n".join(lines) + "\n"
