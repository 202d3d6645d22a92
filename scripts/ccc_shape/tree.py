# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The files of a tree that were written by hand."""

import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# Made by programs, or others' words.
_GENERATED = re.compile(
    r"^(LICENSES|docs/images|experiments/tests/unit/data|out)/|(^|/)target/|\.(lock|svg|proptest-regressions)$"
)
_TESTS = re.compile(r"(^|/)(tests|benches|fuzz)/|(^|[_/])tests?\.(c|rs)$|_test(_\w+)?\.c$")
_DOCUMENTS = re.compile(r"\.(md|yaml|patch)$")


@dataclass(frozen=True)
class Tree:
    """A checkout, or what a tarball of it holds."""

    root: Path

    @cached_property
    def files(self) -> list[Path]:
        """All that was written by hand, relative to the root."""
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if listed.returncode == 0:
            paths = [Path(line) for line in listed.stdout.splitlines()]
        else:
            paths = [path.relative_to(self.root) for path in self.root.rglob("*")]
        kept = (path for path in paths if not _GENERATED.search(path.as_posix()))
        return sorted(path for path in kept if (self.root / path).is_file())

    def text(self, path: Path) -> str:
        return (self.root / path).read_text(errors="replace")

    def under(self, *places: str, suffixes: tuple[str, ...]) -> list[Path]:
        """Files without tests that are in one of these directories."""
        inside = (path for path in self.files if any(path.is_relative_to(place) for place in places))
        return [path for path in inside if path.suffix in suffixes and not is_test(path)]


def is_test(path: Path) -> bool:
    return bool(_TESTS.search(path.as_posix()))


def is_document(path: Path) -> bool:
    return bool(_DOCUMENTS.search(path.name))
