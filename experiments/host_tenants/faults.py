# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What becomes of connections when the daemon or the loader is killed, and of cgroups that come and go."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from . import cgroups
from .dumbbell import Dumbbell
from .service import Service, until

KILLS = int(os.environ.get("KILLS", "10"))
CGROUPS = int(os.environ.get("CGROUPS", "200"))
AT_A_TIME = 100
BACK_WITHIN_S = 1.0
FLOWS = (1, 4)


def run(out: Path) -> bool:
    result = {"kills": kills(out), "cgroups": come_and_go(out)}
    holds = not result["kills"]["ended"] and not result["kills"]["late"] and not result["cgroups"]["left"]
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return holds


def kills(out: Path) -> dict:
    """Each program killed in turn while flows run: how long until all are coupled again."""
    service = Service(out, {"g": {}})
    back: dict[str, list[float]] = {"daemon": [], "loader": []}
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-kills")
        stack.callback(bed.end)
        bed.make()
        for number, name in enumerate("ab"):
            service.add(name, "netns", bed.sender(number), "g")
        service.await_connected("a", "b")
        seconds = 20 + 14 * KILLS
        receiver = bed.receive(seconds)
        for number, flows in enumerate(FLOWS):
            bed.send(number, flows, seconds + 10, "reno")
        until("flows coupled", lambda: coupled(service) == sum(FLOWS))
        for _ in range(KILLS):
            back["daemon"].append(killed(service, service.kill_daemon, service.start_daemon))
            back["loader"].append(killed(service, service.kill_loader, service.start_loader))
        received = json.loads(receiver.communicate()[0])
    late = [seconds for times in back.values() for seconds in times if seconds > BACK_WITHIN_S]
    return {"back_s": back, "late": late, "ended": received["ended"], "bytes_by_second": received["bytes_by_second"]}


def killed(service: Service, kill: Callable[[], None], start: Callable[[], None]) -> float:
    """Seconds from a program's start until all flows are coupled."""
    kill()
    # Longer than a lease: all flows go on alone.
    time.sleep(2)
    began = time.monotonic()
    start()
    until("flows coupled again", lambda: coupled(service) == sum(FLOWS))
    back = time.monotonic() - began
    time.sleep(1)
    return back


def coupled(service: Service) -> int:
    return sum(tenant["coupled_flows"] for tenant in service.tenants().values())


def come_and_go(out: Path) -> dict:
    """Cgroups that are made, become tenants, send, and are removed again."""
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-cgroups", rate="1gbit", packets=1000, delay_ms=1)
        stack.callback(bed.end)
        bed.make()
        receiver = bed.receive(10 + CGROUPS)
        registered = 0
        for begin in range(0, CGROUPS, AT_A_TIME):
            names = [f"c{number}" for number in range(begin, min(begin + AT_A_TIME, CGROUPS))]
            for name in names:
                service.add(name, "cgroup", cgroups.make(name), "g")
            until("all connected", lambda: all(one["connected"] for one in service.tenants().values()), 60)
            senders = [bed.send(0, 1, 3, "reno", cgroups.path(name)) for name in names[:5]]
            for sender in senders:
                sender.wait()
            registered += sum(one["counters"]["registered"] for one in service.tenants().values())
            for name in names:
                service.remove(name)
            until("all removed", lambda: tables() == 0, 60)
            for name in names:
                cgroups.path(name).rmdir()
        receiver.kill()
    return {"cgroups": CGROUPS, "flows_registered": registered, "left": left()}


def tables() -> int:
    return sum(one.get("name") == "ccc_table" for one in bpf("map"))


def left() -> list[str]:
    """Programs, maps and links of ours that are still in the kernel, a moment after the end."""

    def ours() -> list[str]:
        return [one["name"] for kind in ("prog", "map") for one in bpf(kind) if one.get("name", "").startswith("ccc_")]

    with suppress(TimeoutError):
        until("nothing left", lambda: not ours(), 10)
    return ours()


def bpf(kind: str) -> list[dict]:
    shown = subprocess.run(["bpftool", "-j", kind, "show"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(shown) or []
