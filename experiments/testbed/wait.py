# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Waiting, without guessing how long things take on a busy machine."""

import time
from collections.abc import Callable

from .errors import TimedOut

TIMEOUT_S = 60.0


def until(what: str, condition: Callable[[], object], timeout_s: float = TIMEOUT_S, poll_s: float = 0.02) -> float:
    """Waits until a condition holds; seconds that it took.

    Raises TimedOut with `what` was waited for."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimedOut(f"{what}: not within {timeout_s:g} s")
        time.sleep(poll_s)
    return time.monotonic() - began
