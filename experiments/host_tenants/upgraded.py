# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""An upgrade to a program whose tables are laid out otherwise: open connections go on alone, and
the operator is told for as long as there are any.  One that is cut short, after which they go on
coupled."""

import subprocess
import time
from pathlib import Path

from ccc_experiments.scores import Score

from .one_tenant import one_tenant
from .service import Service, until

FLOWS = 3
# Of a connection that ends the kernel keeps the program a little longer.
GONE_WITHIN_S = 20


def run(out: Path) -> list[Score]:
    return [*other_layout(out), *cut_short(out)]


def cut_short(out: Path) -> list[Score]:
    with one_tenant(out, "ccc-cut", 60) as (service, bed):
        bed.send(0, FLOWS, 50, "reno")
        until("its flows are coupled", lambda: service.show("a")["coupled_flows"] == FLOWS)
        service.kill_loader()
        until_its_maps_are_pinned(service)
        service.start_loader()
        service.await_connected("a")
        time.sleep(2)
        coupled, alone = service.show("a")["coupled_flows"], told(service)
    return [
        Score("open connections coupled after an upgrade that was cut short", coupled, "1", ">=", FLOWS),
        Score("doctor tells then that they are alone, wrongly", alone, "1", "<=", 0),
    ]


def until_its_maps_are_pinned(service: Service) -> None:
    """What is there is as of a loader that was killed while it removed the pins of the one before."""
    [pinned] = service.pins.iterdir()
    before = service.pins / "0123456789abcdef"
    before.mkdir()
    subprocess.run(["bpftool", "map", "pin", "pinned", pinned / "tables", before / "tables"], check=True)
    (pinned / "complete").rmdir()
    for link in ("reno", "cubic", "choose"):
        (pinned / link).unlink(missing_ok=True)


def other_layout(out: Path) -> list[Score]:
    with one_tenant(out, "ccc-layout", 120) as (service, bed):
        sender = bed.send(0, FLOWS, 100, "reno")
        until("its flows are coupled", lambda: service.show("a")["coupled_flows"] == FLOWS)
        well = told(service)
        with_another_layout(service)
        service.start_loader()
        service.await_connected("a")
        time.sleep(2)
        coupled, alone = service.show("a")["coupled_flows"], told(service)
        new = bed.send(0, 1, 60, "reno")
        until("a new one is coupled", lambda: service.show("a")["coupled_flows"] == 1)
        sender.kill()
        sender.wait()
        began = time.monotonic()
        until("the others have ended", lambda: not told(service), GONE_WITHIN_S)
        gone = time.monotonic() - began
        new.kill()
        new.wait()
    return [
        Score("another layout: doctor tells of that before, wrongly", well, "1", "<=", 0),
        Score("open connections that are coupled after it", coupled, "1", "<=", 0),
        Score("doctor tells that they are alone", alone, "1", ">=", 1),
        Score("until it tells no more, once they have ended", gone, "s", "<=", GONE_WITHIN_S),
    ]


def told(service: Service) -> int:
    return sum("go on alone" in finding["what"] and finding["of"] == "ccc-bpf" for finding in service.doctor())


def with_another_layout(service: Service) -> None:
    """The loader is killed, and what is pinned is of a program that has other tables."""
    service.kill_loader()
    [pinned] = service.pins.iterdir()
    [mark] = pinned.glob("layout-*")
    mark.rmdir()
    pinned.rename(service.pins / "0123456789abcdef")
