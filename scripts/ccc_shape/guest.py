# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Who owns what in the Linux guest module: prefixes of functions, writers of structs."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from .functions import Function, functions, without_comments
from .tree import Tree

PLACE = "guest/linux-ccc"
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"(?:\bstruct (\w+)\s+\**)?(\w+)(?:\[[^\]]*\])*$")
_VARIABLE = re.compile(r"\bstruct (\w+) \**(\w+)")
_CHAIN = r"(\w+(?:\([^()]*\))?(?:(?:->|\.)\w+(?:\[[^\]]*\])*)+)"
_WRITES = (
    re.compile(rf"(?<![\w.>&]){_CHAIN}\s*(?:[-+|&^*/]|<<|>>)?=(?!=)"),
    re.compile(rf"(?<![\w.>&]){_CHAIN}\s*(?:\+\+|--)"),
    re.compile(rf"(?:\+\+|--){_CHAIN}"),
    re.compile(rf"\b(?:WRITE_ONCE|swap|list_add_tail|list_del_init|memset)\(&?{_CHAIN}"),
)


@dataclass
class Struct:
    """A struct of the module: its fields, and for each the files that write it."""

    name: str
    file: str
    fields: dict[str, str | None]
    writers: dict[str, set[str]] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        return set().union(*self.writers.values()) if self.writers else set()

    @property
    def shared_fields(self) -> int:
        return sum(len(files) > 1 for files in self.writers.values())


def sources(tree: Tree) -> list[Path]:
    return tree.under(PLACE, suffixes=(".c", ".h"))


def noun(file: Path) -> str:
    """What a file is about: header and source are one."""
    return file.stem.removeprefix("ccc_")


def exported(tree: Tree) -> list[Function]:
    """Functions of the sources that other files use."""
    found = functions(tree, [file for file in sources(tree) if file.suffix == ".c"])
    texts = {file: without_comments(tree.text(file)) for file in sources(tree)}

    def used_elsewhere(function: Function) -> bool:
        others = (text for file, text in texts.items() if file.suffix == ".c" and file != function.file)
        return any(re.search(rf"\b{function.name}\b", text) for text in others)

    return [function for function in found if not function.is_static and used_elsewhere(function)]


def carries_prefix(function: Function) -> bool:
    """Whether it has its file's name: `ccc_grant_read` of grant.c."""
    return re.match(rf"ccc_{noun(function.file)}(_|$)", function.name) is not None


def circles_graph(tree: Tree) -> dict[str, set[str]]:
    """Which files use functions of which others."""
    found = functions(tree, sources(tree))
    owners = {f.name: noun(f.file) for f in found if f.file.suffix == ".h" or not f.is_static}
    graph: dict[str, set[str]] = {noun(file): set() for file in sources(tree)}
    for file in sources(tree):
        # A header's declarations are no use of what they declare.
        named = re.findall(r"(?<!struct )\bccc_\w+", without_comments(tree.text(file))) if file.suffix == ".c" else []
        graph[noun(file)] |= {owners[name] for name in named if name in owners} - {noun(file)}
    return graph


def structs(tree: Tree) -> list[Struct]:
    """The module's structs, with those who write their fields."""
    found = {}
    for file in sources(tree):
        for name, body in _STRUCT.findall(without_comments(tree.text(file))):
            fields = (match for one in body.split(";") if (match := _FIELD.search(one)))
            found[name] = Struct(name, noun(file), {match[2]: match[1] for match in fields})
    every = functions(tree, sources(tree))
    returns = {f.name: m[1] for f in every if (m := re.search(r"struct (\w+)", f.head))}
    for function in every:
        variables = {name: kind for kind, name in _VARIABLE.findall(f"{function.parameters};{function.body}")}
        for pattern in _WRITES:
            for chain in pattern.findall(function.body):
                _note(found, returns | variables, chain, noun(function.file))
    return list(found.values())


def _note(found: dict[str, Struct], kinds: dict[str, str], chain: str, writer: str) -> None:
    """Notes a write at the end of a chain of fields: `slot->twin.cwnd`."""
    first, *fields = re.split(r"->|\.", re.sub(r"\[[^\]]*\]|\([^()]*\)", "", chain))
    kind: str | None = kinds.get(first)
    for name in fields[:-1]:
        kind = found[kind].fields.get(name) if kind in found else None
    if kind in found and fields[-1] in found[kind].fields:
        found[kind].writers.setdefault(fields[-1], set()).add(writer)
