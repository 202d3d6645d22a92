# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The files that a report passes, from the ACK that causes it to the grant.

The way is declared, a function a line, deeper ones called by the line above that is
less deep:

    ccc_cong_avoid
      ccc_report
        ~ take_kick           reached by a queue, by memory or by a pointer
      window.c:apply          one of several functions of that name

What is declared is checked: each function is in one file, and its caller names it.
"""

from dataclasses import dataclass
from pathlib import Path

from . import guest
from .functions import Function, functions
from .tree import Tree

JOURNEYS = Path(__file__).with_name("journeys")


class NotSo(Exception):
    """A journey's declaration is not what the tree has."""


@dataclass(frozen=True)
class Journey:
    """The files that are passed, in order; again for each function."""

    files: tuple[Path, ...]

    def part(self, place: str) -> "Journey":
        return Journey(tuple(file for file in self.files if file.parts[0] == place))

    def paired(self) -> "Journey":
        """The same, a C source and the headers of its name being one file: they are read together."""
        return Journey(tuple(Path(guest.noun(file)) if file.suffix in (".c", ".h") else file for file in self.files))

    @property
    def distinct(self) -> int:
        return len(set(self.files))

    @property
    def returns(self) -> int:
        """How often it comes back to a file that it had left."""
        left: set[Path] = set()
        count = 0
        for before, file in zip(self.files, self.files[1:]):
            if file != before:
                left.add(before)
                count += file in left
        return count


# The way is one through the Linux module; these have functions of the same names.
OTHER_GUESTS = ("guest/bpf-ccc", "guest/freebsd-ccc")


def walk(tree: Tree, declaration: str) -> Journey:
    """Checks a declared way against the tree."""
    found: dict[str, list[Function]] = {}
    for function in functions(tree, tree.under("guest", "host", suffixes=(".c", ".h", ".rs"))):
        if any(function.file.is_relative_to(guest) for guest in OTHER_GUESTS):
            continue
        found.setdefault(function.name, []).append(function)
    callers: list[tuple[int, Function]] = []
    passed = []
    for line in declaration.splitlines():
        step = line.split("#", 1)[0].rstrip()
        if not step:
            continue
        name = step.lstrip(" ~")
        depth = len(step) - len(step.lstrip())
        function = _one(found, name)
        callers = [(d, caller) for d, caller in callers if d < depth]
        if callers and "~" not in step and not callers[-1][1].names(function.name):
            raise NotSo(f"{callers[-1][1].name} of {callers[-1][1].file} does not name {function.name}")
        callers.append((depth, function))
        passed.append(function.file)
    return Journey(tuple(passed))


def declared(tree: Tree) -> Journey:
    """The journey that holds in this tree, of those that are declared."""
    refused = []
    for path in sorted(JOURNEYS.glob("*.txt"), reverse=True):
        try:
            return walk(tree, path.read_text())
        except NotSo as error:
            refused.append(f"{path.name}: {error}")
    raise NotSo("; ".join(refused))


def _one(found: dict[str, list[Function]], name: str) -> Function:
    file, _, plain = name.rpartition(":")
    same = [f for f in found.get(plain, []) if f.file.as_posix().endswith(file)]
    if len({f.file for f in same}) != 1:
        places = ", ".join(f.file.as_posix() for f in same) or "no file"
        raise NotSo(f"expected {name} in one file, got {places}; write FILE:{plain}")
    return same[0]
