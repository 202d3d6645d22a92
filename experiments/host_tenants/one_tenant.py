# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A host with one tenant, a network namespace, alone on a fast path."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .dumbbell import Dumbbell
from .service import Service


@contextmanager
def one_tenant(out: Path, name: str, seconds: float) -> Iterator[tuple[Service, Dumbbell]]:
    """Tenant `a`, with a receiver for so long."""
    service = Service(out, {"g": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell(name, senders=1, rate="1gbit", packets=2000, delay_ms=1)
        stack.callback(bed.end)
        bed.make()
        service.add("a", "netns", bed.sender(0), "g")
        service.await_connected("a")
        bed.receive(seconds)
        yield service, bed
