# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Logging in to guests, with a key pair of this run."""

from dataclasses import dataclass
from pathlib import Path

from .host import HERE


@dataclass(frozen=True)
class Key:
    """A key pair: the private one in a file, the public one for guests' kernel
    command lines."""

    path: Path

    @classmethod
    def make(cls, directory: Path) -> "Key":
        path = directory / "ssh-key"
        path.unlink(missing_ok=True)
        HERE.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path)
        return cls(path)

    @property
    def public(self) -> str:
        """The key itself, without the word for its kind."""
        return self.path.with_suffix(".pub").read_text().split()[1]

    def command(self, address: str) -> tuple[str, ...]:
        """Logs in to the guest with this address.  Guests make their host keys when
        they start, and nobody but them is in this network."""
        unknown = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        options = (word for option in unknown for word in ("-o", option))
        return ("ssh", "-i", str(self.path), *options, f"root@{address}")
