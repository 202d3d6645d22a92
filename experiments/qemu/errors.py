# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Why an experiment on real virtual machines fails."""


class HostError(Exception):
    """A program of the host refused; the text has the command and what it said."""


class GuestError(Exception):
    """A program in a guest failed; the text has its command and what it said."""
