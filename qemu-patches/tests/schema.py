#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Whether what the daemon says of itself, and the file by which it is found, are what
QEMU's schema of vhost-user back ends has, read by QEMU's own parser."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def parse(text):
    """Without its comments: they are older than the parser, which refuses them."""
    from qapi.schema import QAPISchema
    with tempfile.NamedTemporaryFile("w", suffix=".json") as bare:
        bare.writelines(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
        bare.flush()
        return QAPISchema(bare.name)


def members(schema, name, values):
    """The members of a struct, or of a union with these values."""
    entity = schema.lookup_entity(name)
    found = {member.name: member for member in entity.members}
    if entity.branches:
        kind = values.get(entity.branches.tag_member.name)
        for branch in entity.branches.variants:
            if branch.name == kind:
                found |= {member.name: member for member in branch.type.members}
    return found


def check(schema, name, values):
    allowed = members(schema, name, values)
    wrong = [f"{key} is not in it" for key in values if key not in allowed]
    wrong += [f"{key} is missing" for key, member in allowed.items()
              if key not in values and not member.optional]
    kinds = [value.name for value in schema.lookup_entity("VHostUserBackendType").members]
    if values.get("type") not in kinds:
        wrong.append(f"type {values.get('type')} is not in it")
    return [f"{name}: {why}" for why in wrong]


def main(source, vhost, discovery):
    sys.path.insert(0, str(source / "scripts"))
    schema = parse((source / "docs/interop/vhost-user.json").read_text())
    said = subprocess.run([vhost, "--print-capabilities"], capture_output=True, check=True).stdout
    wrong = check(schema, "VHostUserBackendCapabilities", json.loads(said))
    wrong += check(schema, "VhostUserBackend", json.loads(discovery.read_text()))
    print(json.dumps({"test": "q2_schema", "ok": not wrong, **({"why": "; ".join(wrong)} if wrong else {})}))
    return 1 if wrong else 0


sys.exit(main(*map(Path, sys.argv[1:])))
