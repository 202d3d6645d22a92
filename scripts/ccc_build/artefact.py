# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What is built once and found again: a directory in the cache, named by its inputs."""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ccc_build.process import Failed, say

PROJECT = Path(__file__).resolve().parents[2]


def cache() -> Path:
    """Where artefacts are kept, as `scripts/cache` says."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(os.environ.get("CCC_CACHE") or Path(home) / "ccc")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(
            f"invalid cache: expected a directory that is there or can be made, got {directory}"
            f" ({error.strerror}): set CCC_CACHE to another"
        ) from None
    return directory


def digest(*inputs: str | Path, digits: int = 12) -> str:
    """The key of an artefact with these inputs: texts, and files by their content."""
    key = hashlib.sha256()
    for given in inputs:
        key.update(given.encode() if isinstance(given, str) else given.read_bytes())
    return key.hexdigest()[:digits]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of `path`, whose directory need not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{path}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{path.name}: waiting for another build of it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Artefact:
    """A directory whose name says what it was made from, and how to fill it.

    It is complete once it has the file `done`; others do not see it before. It is
    built where it stays, since kernels, modules and Python environments remember
    their path.
    """

    path: Path
    build: Callable[[Path], None]
    # What callers are given, below `path`.
    product: str = "."
    # Whether `build` goes on with what an interrupted or failed one has left.
    resumes: bool = False

    def get(self) -> Path:
        """The path of the product, which is built first if it is not there."""
        if not self._complete():
            with locked(self.path):
                if not self._complete():
                    self._make()
        return self.path / self.product

    def _complete(self) -> bool:
        return (self.path / "done").exists()

    def _make(self) -> None:
        self._forget()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self.build(self.path)
        except BaseException:
            self._forget()
            raise
        (self.path / "done").touch()

    def _forget(self) -> None:
        if not self.resumes and self.path.exists():
            shutil.rmtree(self.path)
