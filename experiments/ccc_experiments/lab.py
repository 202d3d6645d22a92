# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs scenarios in the laboratory, one on each processor."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from types import EllipsisType

PROJECT = Path(__file__).resolve().parents[2]


class LabError(Exception):
    """A run failed; the text says which, why, and where its logs are."""


def _printed(*command: str) -> Path:
    """The path a build script prints."""
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise LabError(f"{command[0]} failed with status {done.returncode}")
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class Parts:
    """What a laboratory is put together from."""

    kernel: Path
    module: Path
    daemon: Path
    lab: Path

    @classmethod
    def built(cls) -> "Parts":
        """The parts as `make build` left them."""
        target = Path(os.environ.get("CARGO_TARGET_DIR") or _printed("scripts/cache") / "target")
        parts = cls(
            kernel=_printed("scripts/build", "kernel") / "linux",
            module=_printed("scripts/build", "module") / "ccc.ko",
            daemon=target / "release" / "ccc-vhost",
            lab=target / "release" / "ccc-lab",
        )
        for path in (parts.kernel, parts.module, parts.daemon, parts.lab):
            if not path.exists():
                raise LabError(f"{path} is not there: run 'make build' first")
        return parts


def _given(value) -> dict:
    """The fields of a dataclass that say something: neither None nor False."""
    return {name: field for name, field in asdict(value).items() if field not in (None, False)}


@dataclass(frozen=True)
class Phase:
    """A change of live flows; what is left out stays as it is.

    A rate of None is all the application can write.
    """

    at_s: float
    rate_kbit: float | None | EllipsisType = ...
    priority: int | None = None
    congestion_control: str | None = None

    def document(self) -> dict:
        rate = {} if self.rate_kbit is ... else {"rate_kbit": self.rate_kbit}
        rest = {"priority": self.priority, "congestion_control": self.congestion_control}
        return {"at_s": self.at_s} | rate | {k: v for k, v in rest.items() if v is not None}


@dataclass(frozen=True)
class Churn:
    """Connections that are opened, used a little, held and reset."""

    connections: int
    hold_s: float
    open_ms: int = 1000
    bytes: int = 4096
    again_ms: int | None = None


@dataclass(frozen=True)
class Flows:
    """Like connections of a VM."""

    count: int
    start_s: float = 0.0
    stop_s: float | None = None
    bytes: int | None = None
    priority: int = 0
    mss: int | None = None
    rate_kbit: float | None = None
    phases: tuple[Phase, ...] = ()
    churn: Churn | None = None

    def document(self) -> dict:
        phases = [phase.document() for phase in self.phases]
        return asdict(self) | {"phases": phases}


@dataclass(frozen=True)
class DelayChange:
    """A change of the delay of a VM's way back."""

    at_s: float
    delay_ms: float


@dataclass(frozen=True)
class GuestAction:
    """Something done inside a VM's kernel: one of its kinds."""

    at_s: float
    unload_module: bool = False
    reload_module: bool = False
    unbind_device: bool = False
    bind_device: bool = False
    congestion_control: str | None = None

    def document(self) -> dict:
        return {"at_s": self.at_s} | _given(self)


@dataclass(frozen=True)
class Request:
    """A request on the daemon's control socket."""

    method: str
    path: str
    body: dict | None = None


@dataclass(frozen=True)
class Action:
    """Something done to the daemon while nobody runs: one of its kinds."""

    at_s: float
    control: Request | None = None
    expect: int | None = None
    kill_daemon: bool = False
    start_daemon: bool = False

    def document(self) -> dict:
        control = {"control": _given(self.control)} if self.control else {}
        return {"at_s": self.at_s} | _given(self) | control


@dataclass(frozen=True)
class Group:
    """Settings of the bottleneck group; None is the daemon's default."""

    share: str | None = None
    equivalent_tcps: float | None = None
    policy: str | None = None
    growth_source: str | None = None


@dataclass(frozen=True)
class Vm:
    """A tenant."""

    flows: tuple[Flows, ...]
    weight: float = 1
    congestion_control: str = "ccc"
    device: bool = True
    delay_ms: float | None = None
    guest_actions: tuple[GuestAction, ...] = ()
    delay_changes: tuple[DelayChange, ...] = ()
    module_options: str = ""
    ecn: bool = False
    reboot_s: float | None = None

    @property
    def count(self) -> int:
        return sum(flows.count for flows in self.flows)


@dataclass(frozen=True)
class Bottleneck:
    """The papers' bottleneck."""

    rate_mbit: float = 10
    limit_packets: int = 83
    delay_ms: float = 100
    # fifo, fq_codel, cake or htb
    queue: str = "fifo"
    mark_ms: float | None = None


@dataclass(frozen=True)
class Cross:
    """Traffic that does not respond: on-off streams as in the papers.

    `load` is their mean part of the bottleneck's rate; packets each second
    while on, bytes and seconds off are bounds, mean and deviation, and bounds.
    """

    load: float
    streams: int = 11
    hurst: float = 0.8
    packets_s: tuple[float, float] = (50, 150)
    bytes: tuple[float, float] = (1000, 200)
    off_s: tuple[float, float] = (1, 2)


@dataclass(frozen=True)
class Fault:
    """Segments of a flow that are lost: the next `packets`, or all `for_s`."""

    vm: str
    flow: int
    at_s: float
    packets: int | None = None
    for_s: float | None = None


@dataclass(frozen=True)
class Scenario:
    """One run."""

    name: str
    vms: tuple[Vm, ...]
    coupled: bool
    seed: int
    duration_s: float
    topology: str = "vms"
    bottleneck: Bottleneck = Bottleneck()
    sample_ms: int = 100
    queue_sample_ms: int = 10
    group: Group = Group()
    relay: bool = False
    actions: tuple[Action, ...] = ()
    ipv6: bool = False
    cross: Cross | None = None
    # How long doorbells take to the daemon.
    doorbell_delay_ms: float | None = None
    faults: tuple[Fault, ...] = ()
    receiver_congestion_control: str = "reno"

    def content(self) -> dict:
        """What is simulated, as the laboratory reads it."""
        return {
            "name": self.name,
            "seed": self.seed,
            "duration_s": self.duration_s,
            "topology": self.topology,
            "coupled": self.coupled,
            "bottleneck": vars(self.bottleneck),
            "sample_ms": self.sample_ms,
            "queue_sample_ms": self.queue_sample_ms,
            "group": vars(self.group),
            "relay": self.relay,
            "receiver_congestion_control": self.receiver_congestion_control,
            "actions": [action.document() for action in self.actions],
            "ipv6": self.ipv6,
            "cross": self.cross and asdict(self.cross),
            "doorbell_delay_ms": self.doorbell_delay_ms,
            "faults": [asdict(fault) for fault in self.faults],
            "vms": [
                {
                    "name": f"vm{i}",
                    "weight": vm.weight,
                    "device": vm.device,
                    "congestion_control": vm.congestion_control,
                    "delay_ms": vm.delay_ms,
                    "delay_changes": [vars(change) for change in vm.delay_changes],
                    "module_options": vm.module_options,
                    "ecn": vm.ecn,
                    "reboot_s": vm.reboot_s,
                    "guest_actions": [action.document() for action in vm.guest_actions],
                    "flows": [flows.document() for flows in vm.flows],
                }
                for i, vm in enumerate(self.vms, 1)
            ],
        }

    def document(self, parts: Parts) -> dict:
        """The whole file: what is simulated, and with what."""
        used = {name: str(vars(parts)[name]) for name in ("kernel", "module", "daemon")}
        return self.content() | used


def run(scenario: Scenario, parts: Parts, out: Path, cpu: int | None = None) -> Path:
    """Runs one scenario; its raw data is in `out` afterwards."""
    out.mkdir(parents=True, exist_ok=True)
    document = out / "request.json"
    document.write_text(json.dumps(scenario.document(parts), indent=1) + "\n")
    command = [str(parts.lab), "run", str(document), "--out", str(out)]
    if cpu is not None:
        command += ["--cpu", str(cpu)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise LabError(f"{scenario.name}: {done.stdout.strip() or 'no message'} (logs: {out})")
    return out


def run_all(scenarios: list[Scenario], parts: Parts, out: Path) -> list[Path]:
    """Runs scenarios; the raw data of each lands in a directory of its name."""
    return run_each([(scenario, out / scenario.name) for scenario in scenarios], parts)


def run_each(
    wanted: Sequence[tuple[Scenario, Path]],
    parts: Parts,
    finished: Callable[[Scenario, Path], None] = lambda scenario, raw: None,
) -> list[Path]:
    """Runs scenarios side by side, one on each processor, showing progress.

    Each one's raw data lands in the directory beside it; `finished` may take it
    from there while others still run.  Every run has a processor to itself: a
    laboratory's processes take turns, and take them fastest on one.
    """
    cpus: SimpleQueue[int] = SimpleQueue()
    available = sorted(os.sched_getaffinity(0))
    for cpu in available:
        cpus.put(cpu)
    progress = _Progress(len(wanted))

    def one(scenario: Scenario, out: Path) -> Path:
        cpu = cpus.get()
        try:
            raw = run(scenario, parts, out, cpu)
        finally:
            cpus.put(cpu)
        finished(scenario, raw)
        progress.done(scenario.name)
        return raw

    with ThreadPoolExecutor(len(available)) as pool:
        futures = [pool.submit(one, *each) for each in wanted]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Progress:
    def __init__(self, total: int) -> None:
        self._total = total
        self._finished = 0
        self._lock = threading.Lock()

    def done(self, name: str) -> None:
        with self._lock:
            self._finished += 1
            print(f"[{self._finished:3}/{self._total}] {name}", file=sys.stderr, flush=True)
