# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Where structures have their fields, by the type information of a kernel or of a BPF program."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

KERNEL = Path("/sys/kernel/btf/vmlinux")


class Types:
    def __init__(self, *source: str) -> None:
        """Of `file PATH`, or `prog id NUMBER`, as bpftool takes them."""
        command = ["bpftool", "-j", "btf", "dump", *source]
        dumped = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        self._types: dict[int, dict[str, Any]] = {kind["id"]: kind for kind in json.loads(dumped)["types"]}
        self._structs = {kind["name"]: kind for kind in self._types.values() if kind["kind"] == "STRUCT"}

    def size(self, struct: str) -> int:
        return self._structs[struct]["size"]

    def offset(self, struct: str, path: str) -> tuple[int, int]:
        """Bits before the field and bits that it has."""
        kind, bits, width = self._structs[struct], 0, 0
        for name in path.split("."):
            member, before = self._member(kind, name)
            bits += before
            width = member.get("bitfield_size", 0)
            kind = self._plain(member["type_id"])
        return bits, width or 8 * self._bytes(kind)

    def _member(self, kind: dict[str, Any], name: str) -> tuple[dict[str, Any], int]:
        for member in kind["members"]:
            if member["name"] == name:
                return member, member["bits_offset"]
            inner = self._plain(member["type_id"])
            if member["name"] == "(anon)" and inner["kind"] in ("STRUCT", "UNION"):
                try:
                    found, before = self._member(inner, name)
                except KeyError:
                    continue
                return found, before + member["bits_offset"]
        raise KeyError(f"{kind['name']}: no {name}")

    def _plain(self, number: int) -> dict[str, Any]:
        kind = self._types[number]
        while kind["kind"] in ("TYPEDEF", "CONST", "VOLATILE"):
            kind = self._types[kind["type_id"]]
        return kind

    def _bytes(self, kind: dict[str, Any]) -> int:
        if kind["kind"] == "PTR":
            return 8
        if kind["kind"] == "ARRAY":
            return kind["nr_elems"] * self._bytes(self._plain(kind["type_id"]))
        return kind["size"]


@cache
def types(*source: str) -> Types:
    return Types(*source)
