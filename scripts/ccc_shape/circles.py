# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Import circles: files none of which can be read, or taken, without the others."""

import ast
import re
from pathlib import Path

from . import guest
from .functions import without_comments
from .tree import Tree, is_test

Graph = dict[str, set[str]]
_USE = re.compile(r"\buse ((?:crate|super|self)::.*?);", re.DOTALL)
_INLINE = re.compile(r"\b((?:crate|super)(?:::\w+)+)")


def circles(tree: Tree) -> dict[str, list[list[str]]]:
    """The circles of each program, by its place."""
    graphs = {guest.PLACE: guest.circles_graph(tree)}
    manifests = [path for path in tree.files if path.name == "Cargo.toml" and path.parts[0] in ("host", "experiments")]
    graphs |= {path.parent.as_posix(): rust_graph(tree, path.parent / "src") for path in manifests}
    graphs["Python"] = python_graph(tree)
    return {place: found for place, graph in graphs.items() if (found := strong_components(graph))}


def rust_graph(tree: Tree, source: Path) -> Graph:
    """Which modules of a crate use which; a module and those inside it are one matter."""
    files = tree.under(source.as_posix(), suffixes=(".rs",))
    modules = {_rust_module(file.relative_to(source)): file for file in files}
    graph: Graph = {}
    for module, file in modules.items():
        text = without_comments(tree.text(file).split("#[cfg(test)]\nmod ", 1)[0])
        named = {path for use in _USE.findall(text) for path in _expanded(" ".join(use.split()))}
        named |= set(_INLINE.findall(text))
        used = {_nearest(_absolute(path, module), modules) for path in named}
        graph[module] = {other for other in used if other and not _related(module, other)}
    return graph


def _rust_module(file: Path) -> str:
    parts = file.with_suffix("").parts
    parts = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
    return "::".join(parts)


def _expanded(use: str) -> list[str]:
    """The paths of a use tree: `a::{b, c::{d, e}}`."""
    begin = use.find("{")
    if begin < 0:
        return [use.split(" as ")[0].strip()]
    prefix, inner = use[:begin], use[begin + 1 : use.rindex("}")]
    parts, depth, last = [], 0, 0
    for at, sign in enumerate(f"{inner},"):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and not depth:
            parts.append(inner[last:at].strip())
            last = at + 1
    return [prefix + path for part in parts if part for path in _expanded(part)]


def _absolute(path: str, module: str) -> list[str]:
    parts = path.split("::")
    base = [] if parts[0] == "crate" else module.split("::") if module else []
    if parts[0] == "super":
        base = base[:-1]
    rest = parts[1:]
    while rest[:1] == ["super"]:
        base, rest = base[:-1], rest[1:]
    return base + rest


def _nearest(path: list[str], modules: dict[str, Path]) -> str | None:
    """The module of an item's path."""
    for end in range(len(path), 0, -1):
        if "::".join(path[:end]) in modules:
            return "::".join(path[:end])
    return None


def _related(one: str, other: str) -> bool:
    return one == other or f"{one}::".startswith(f"{other}::") or f"{other}::".startswith(f"{one}::") or not one


def python_graph(tree: Tree) -> Graph:
    """Which Python modules import which; a package's own file is not counted."""
    files = [path for path in tree.files if path.suffix == ".py" and not is_test(path)]
    modules = {path.with_suffix("").as_posix().replace("/", "."): path for path in files}
    graph: Graph = {}
    for module, path in modules.items():
        named = _python_imports(ast.parse(tree.text(path)), module)
        used = {other for name in named for other in modules if other == name or other.endswith(f".{name}")}
        graph[module] = {other for other in used if other != module and not other.endswith("__init__")}
    return graph


def _python_imports(parsed: ast.Module, module: str) -> set[str]:
    named = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            package = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            named |= {package} | {f"{package}.{alias.name}" for alias in node.names}
    return named


def strong_components(graph: Graph) -> list[list[str]]:
    """Sets of nodes that all reach each other (Tarjan), those of one node excepted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found
