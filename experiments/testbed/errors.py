# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Why a part of the test bed fails; each text names the part and what it said."""


class TestbedError(Exception):
    """Something is not as a test or an experiment needs it."""

    __test__ = False


class CommandError(TestbedError):
    """A command of a host failed."""


class GuestError(TestbedError):
    """A script in a guest failed, or QEMU refused a command."""


class TimedOut(TestbedError):
    """Something that was waited for has not happened."""


def require(condition: object, why: str) -> None:
    """Fails with the reason unless the condition holds."""
    if not condition:
        raise TestbedError(why)
