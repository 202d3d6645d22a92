# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What documents refer to is there: files, headings, images and how those are made."""

import re
import runpy
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
# The changelog names what was.
DOCUMENTS = sorted(
    str(path.relative_to(PROJECT))
    for path in PROJECT.rglob("*.md")
    if not {"out", "target"} & set(path.parts) and path.name != "CHANGELOG.md"
)
PLOTS = runpy.run_path(str(PROJECT / "scripts" / "docs-images"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path of the tree in code marks: with a directory, no option or pattern.
NAMED = re.compile(r"`((?:host|guest|experiments|docs|scripts|libvirt|qemu-patches)/[\w./-]+)`")


def text_of(document: Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Its headings as links name them."""
    headings = re.findall(r"^#+ (.+)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dangling(document: Path) -> list[str]:
    """What it refers to that is not there."""
    text = text_of(document)
    # The patches' README names files of QEMU's tree.
    named = [] if "qemu-patches" in document.parts else NAMED.findall(text)
    missing = [name for name in named if not (PROJECT / name).exists()]
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    return missing


@pytest.mark.parametrize("name", DOCUMENTS)
def test_references_resolve(name):
    assert not dangling(PROJECT / name)


def test_a_dangling_reference_is_found(tmp_path):
    document = tmp_path / "one.md"
    document.write_text("# Its title\n[a](one.md#its-title) [b](#no) [c](two.md) `scripts/none`\n```\n[d](e)\n```\n")
    assert dangling(document) == ["scripts/none", "#no", "two.md"]


@pytest.mark.parametrize("image", sorted((PROJECT / "docs" / "images").iterdir()), ids=lambda path: path.name)
def test_an_image_says_how_it_is_made(image):
    command, _ = PLOTS["PLOTS"][image.stem]
    assert image.read_text().splitlines()[1] == PLOTS["mark"](command)
    assert image.stat().st_size < 100_000


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("docs/")])
def test_functions_that_documents_name_are_there(name):
    named = re.findall(r"`([\w/]+\.(?:rs|c|h)): (\w+)`", (PROJECT / name).read_text())
    sources = {file: [path.read_text() for path in PROJECT.glob(f"[gh]*/**/{file}")] for file, _ in named}
    missing = [(file, it) for file, it in named if not any(re.search(rf"\b{it}[<(]", text) for text in sources[file])]
    assert not missing


def test_every_fault_has_its_test():
    named = re.findall(r"`(b\d\d_\w+)`", (PROJECT / "docs" / "faults.md").read_text())
    tests = re.findall(r"fn (b\d\d_\w+)", (PROJECT / "host" / "ccc-core" / "tests" / "faults.rs").read_text())
    assert named == tests and len(tests) == 24


def test_every_setting_of_a_group_is_in_the_operators_table():
    types = (PROJECT / "host" / "ccc-settings" / "src" / "types.rs").read_text()
    struct = re.search(r"pub struct GroupSettings \{(.*?)^\}", types, re.MULTILINE | re.DOTALL).group(1)
    table = (PROJECT / "docs" / "operator.md").read_text().split("**A group's settings**")[1].split("\n\n")[1]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == re.findall(r"pub (\w+):", struct)
