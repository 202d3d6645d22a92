# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: measures a tree and prints a table in Markdown."""

import argparse
import re
from pathlib import Path

from . import guest, journey
from .circles import circles
from .functions import functions
from .tree import Tree, is_document, is_test

PROJECT = Path(__file__).resolve().parents[2]
# A group's setting, by its name of today and the one before.
SETTING = re.compile(r"\b(growth_source|coco)\b")
CODE = (".c", ".h", ".rs")
ROOMS = {"daemon": "host/ccc-vhost/src", "engine": "host/ccc-core/src", "guest": guest.PLACE}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="shape", description=__doc__)
    parser.add_argument("--tree", type=Path, default=PROJECT, help="the tree to measure (this one)")
    parser.add_argument("--names", action="store_true", help="also what is behind the numbers")
    chosen = parser.parse_args(arguments)
    tree = Tree(chosen.tree.resolve())
    if missing := [place for place in ROOMS.values() if not tree.under(place, suffixes=CODE)]:
        parser.error(f"invalid --tree: expected a tree of ccc, got {chosen.tree}, without {', '.join(missing)}")
    print("| what | measured |\n|---|---|")
    for what, (number, names) in measured(tree).items():
        print(f"| {what} | {number} |")
        for name in names if chosen.names else ():
            print(f"| | {name} |")
    return 0


def measured(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    """Each measure as text, and the names behind it."""
    return {**_journey(tree), **_guest(tree), **_host(tree), **_circles(tree), **_sizes(tree)}


def _journey(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    what, back = "files a report passes, guest + host", "returns to a file already left, guest"
    try:
        whole = journey.declared(tree)
    except journey.NotSo as error:
        return {what: ("not declared", [str(error)]), back: ("not declared", [])}
    inside, outside = whole.part("guest"), whole.part("host")
    paired = inside.paired()
    files = [path.as_posix() for path in dict.fromkeys(whole.files)]
    return {
        what: (f"{paired.distinct} + {outside.distinct} ({inside.distinct} with headers apart)", files),
        back: (f"{paired.returns} ({inside.returns} with headers apart)", []),
    }


def _guest(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    exported = guest.exported(tree)
    strangers = [f"{f.name} of {f.file.name}" for f in exported if not guest.carries_prefix(f)]
    percent = 100 * (len(exported) - len(strangers)) / max(1, len(exported))
    structs = guest.structs(tree)
    largest = max(structs, key=lambda struct: len(struct.fields))
    shared = [struct for struct in structs if len(struct.files) > 1]
    writers = [f"struct {s.name}: {', '.join(sorted(s.files))}" for s in shared]
    return {
        "exported guest functions with their file's prefix": (f"{percent:.0f} % of {len(exported)}", strangers),
        "largest guest struct: fields, of these written by several files": (
            f"{len(largest.fields)}, {largest.shared_fields}", [f"struct {largest.name}"],
        ),
        "guest structs written by several files": (f"{len(shared)} of {len(structs)}", writers),
    }  # fmt: skip


def _host(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    inside = tree.under(ROOMS["daemon"], suffixes=(".rs",))
    relative = (path.relative_to(ROOMS["daemon"]) for path in inside)
    modules = sorted({path.parts[0].removesuffix(".rs") for path in relative} - {"lib", "main"})
    # This program names it to count it.
    standing = [path for path in tree.files if "ccc_shape" not in path.parts and SETTING.search(tree.text(path))]
    code = [path.as_posix() for path in standing if not is_test(path) and not is_document(path)]
    return {
        "top-level modules of ccc-vhost": (str(len(modules)), modules),
        "files that name a group's setting, of these code": (f"{len(standing)}, {len(code)}", code),
    }


def _circles(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    found = circles(tree)
    names = [f"{place}: {' ↔ '.join(circle)}" for place, some in found.items() for circle in some]
    return {"import circles": (str(len(names)), names)}


def _sizes(tree: Tree) -> dict[str, tuple[str, list[str]]]:
    lines = {path: tree.text(path).count("\n") for path in tree.files if not is_document(path)}
    tests = sum(count for path, count in lines.items() if is_test(path))
    longest = {}
    for room, place in ROOMS.items():
        found = functions(tree, tree.under(place, suffixes=CODE))
        longest[room] = max(found, key=lambda function: function.lines)
    return {
        "lines by hand, of these tests": (f"{sum(lines.values())}, {tests}", []),
        f"longest function: {', '.join(ROOMS)}": (
            ", ".join(str(function.lines) for function in longest.values()),
            [f"{function.name} of {function.file}" for function in longest.values()],
        ),
    }
