# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Functions of C and Rust sources, as far as formatters write them alike.

C is in the kernel's style, a brace in the first column around each body; Rust is
formatted by rustfmt, so that a function ends at a brace of its own indentation.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from .tree import Tree

_C = re.compile(
    r"^(?P<head>[A-Za-z_][\w \t*\n]*?[ \t*\n])(?P<name>\w+)\((?P<parameters>[^;{}]*?)\)\s*\n\{\n(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)
_RUST = re.compile(r"^(?P<indent> *)(?:pub(?:\([\w ]+\))? )?(?:const |unsafe |extern \"C\" )*fn (?P<name>\w+)")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class Function:
    """A function's definition; `head` has its return type and `static`."""

    file: Path
    name: str
    head: str
    parameters: str
    body: str
    # From brace to brace in C, all of it in Rust.
    lines: int

    @property
    def is_static(self) -> bool:
        return "static" in self.head.split()

    def names(self, other: str) -> bool:
        """Whether its body names another function."""
        return re.search(rf"\b{other}\b", self.body) is not None


def functions(tree: Tree, files: list[Path]) -> list[Function]:
    """All functions of these files, those of Rust's test modules excepted."""
    found: list[Function] = []
    for file in files:
        found += (_rust if file.suffix == ".rs" else _c)(file, tree.text(file))
    return found


def without_comments(text: str) -> str:
    return _COMMENT.sub("", text)


def _c(file: Path, text: str) -> list[Function]:
    text = without_comments(text)
    return [
        Function(file, m["name"], m["head"], m["parameters"], m["body"], m["body"].count("\n") + 2)
        for m in _C.finditer(text)
    ]


def _rust(file: Path, text: str) -> list[Function]:
    lines = text.split("#[cfg(test)]\nmod ", 1)[0].splitlines()
    found = []
    for number, line in enumerate(lines):
        begun = _RUST.match(line)
        if begun:
            whole = _rust_lines(lines[number:], begun["indent"])
            body = without_comments("\n".join(whole))
            found += [Function(file, begun["name"], "", "", body, len(whole))] if whole else []
    return found


def _rust_lines(lines: list[str], indent: str) -> list[str]:
    """All lines of a function that begins them; none of one that is only declared."""
    for count, line in enumerate(lines, 1):
        if line.endswith(";") and not any("{" in before for before in lines[:count]):
            return []
        if line == f"{indent}}}" or (count == 1 and line.endswith("}")):
            return lines[:count]
    return []
