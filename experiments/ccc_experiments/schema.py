# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Makes the types of scenarios from the laboratory's schema.

    ccc-lab schema > experiments/lab/scenario.schema.json
    python -m ccc_experiments.schema > experiments/ccc_experiments/scenario.py
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

SCHEMA = Path(__file__).parents[1] / "lab" / "scenario.schema.json"
TYPES = Path(__file__).with_name("scenario.py")

_HEAD = '''\
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Generated from experiments/lab/scenario.schema.json by `python -m ccc_experiments.schema`.
"""Scenarios of the laboratory, as it reads them: what each field means and what it is if left out."""

from dataclasses import KW_ONLY, dataclass, field
from types import EllipsisType
from typing import Any, Literal
'''
_WORDS = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}


def types() -> str:
    """The text of `scenario.py`."""
    schema = json.loads(SCHEMA.read_text())
    known = schema["$defs"] | {schema["title"]: schema}
    written: dict[str, str] = {}

    def write(name: str) -> None:
        for other in _references({key: value for key, value in known[name].items() if key != "$defs"}):
            if other not in written:
                write(other)
        written[name] = _class(name, known[name]) if "properties" in known[name] else _alias(name, known[name])

    write(schema["title"])
    return "\n\n".join([_HEAD, *written.values()])


def _references(node) -> Iterator[str]:
    """The types that a part of the schema refers to."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rsplit("/", 1)[1]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _alias(name: str, schema: dict) -> str:
    values = ", ".join(f'"{one["const"]}"' for one in schema["oneOf"])
    return "\n".join([*_comment(schema), f"{name} = Literal[{values}]", ""])


def _class(name: str, schema: dict) -> str:
    required, fields = schema.get("required", []), schema["properties"]
    said = schema["description"].replace("\n", "\n    ")
    lines = ["@dataclass(frozen=True)", f"class {name}:", f'    """{said}"""', ""]
    for field in required:
        lines += [*_comment(fields[field], "    "), f"    {field}: {_type(fields[field])}"]
    optional = [field for field in fields if field not in required]
    lines += ["    _: KW_ONLY"] if optional else []
    for field in optional:
        line = f"    {field}: {_type(fields[field])} = {_default(fields[field])}"
        lines += [*_comment(fields[field], "    "), line]
    return "\n".join([*lines, ""])


def _comment(schema: dict, indent: str = "") -> list[str]:
    return [f"{indent}# {line}" for line in schema.get("description", "").splitlines()]


def _type(schema: dict) -> str:
    if "$ref" in schema:
        return next(_references(schema))
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        one = _type(schema["items"])
        return f"tuple[{', '.join([one] * schema['minItems'])}]" if "minItems" in schema else f"tuple[{one}, ...]"
    if "type" not in schema:
        return "Any"
    if schema["type"] == "object":
        return "dict[str, Any]"
    words = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " | ".join([_WORDS[word] for word in words] + (["EllipsisType"] if "x-null" in schema else []))


def _default(schema: dict) -> str:
    """The value of a field that is left out; where null means something, `...` leaves it out."""
    if "x-null" in schema:
        return "..."
    default = schema.get("default")
    if "$ref" in schema and isinstance(default, dict):
        return f"{_type(schema)}()"
    if default == {}:
        return "field(default_factory=dict)"
    if isinstance(default, list):
        return repr(tuple(default))
    return json.dumps(default) if isinstance(default, str) else repr(default)


if __name__ == "__main__":
    sys.stdout.write(types())
