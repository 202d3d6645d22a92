# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Goals of speed that are known not to be reached; the reasons stand in docs/performance.md."""

from .scores import Known

EVERY_RULE = "a report goes through every rule of the law and of its bounds, and no few of them take most of it"
BOUNDS = "and where one VM has a floor or a cap, three levels are found anew for each"
MEMORY = "100,000 flows in random order are not in the processor's caches"
MEDIANS = "each report of another VM finds the medians of the others anew"
WAKE = "one update at a time costs the daemon a wake-up and two system calls each"
MESSAGE = "the slot is copied and checked for each message, and the engine goes through all its rules"
LINES = "one update is published to each VM by a write of its own"
CCP = "on a busy machine both wait for a processor: two wake-ups compared there say nothing of either"
POLLED = "a report takes the daemon most of a microsecond by the engine's rules and the device's, polled or not"

_ENGINE = ("flows-10-vms-2", "flows-1000-vms-2", "flows-100000-vms-2", "flows-1000-vms-100", "flows-1000-vms-1000")
_BOUNDED = (
    "one-bounded-flows-1000-vms-2",
    "one-bounded-flows-1000-vms-100",
    "one-bounded-flows-1000-vms-1000",
    "all-bounded-flows-1000-vms-1000",
)
_LIMITED = ("limited-flows-1000-vms-100", "limited-flows-1000-vms-1000")

# Floors of times are wide: they are of the machine, and how busy it is.
KNOWN: dict[str, Known] = {
    **{f"engine, {case}: instructions": Known(EVERY_RULE, 2900) for case in (*_ENGINE, *_LIMITED)},
    **{f"engine, {case}: instructions": Known(BOUNDS, 3700) for case in _BOUNDED},
    **{f"engine, {case}: time": Known(EVERY_RULE, 1000) for case in (*_ENGINE, *_LIMITED, *_BOUNDED)},
    "engine, flows-100000-vms-2: time": Known(MEMORY, 3000),
    "engine: instructions, the most over the least": Known(MEDIANS, 1.15),
    "1 VM, batches of 256: updates of a core": Known(MESSAGE, 0.5),
    "1 VM, streamed: updates of a core": Known(MESSAGE, 0.5),
    "1,000 VMs, batches of 256: updates of a core": Known(MESSAGE, 0.5),
    "1 VM, one at a time: updates of a core": Known(WAKE, 0.05),
    "1,000 VMs, one at a time: updates of a core": Known(WAKE, 0.02),
    "published to 1,000 VMs: processor time": Known(LINES, 2000),
    "level of another VM: CCP's time over ours, median": Known(CCP, 0.2),
    "level of another VM, polled: time over a cache line's round trip, median": Known(POLLED, 20),
    "level of another VM, polled: CCP's time over ours, median": Known(POLLED, 3),
}
