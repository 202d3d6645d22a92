# SPDX-License-Identifier: GPL-2.0
"""Whether what the daemon says of itself, and the file by which it is found, are what
QEMU's schema of vhost-user back ends has, read by QEMU's own parser."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import artefacts

pytestmark = pytest.mark.slow


@pytest.fixture
def schema(tmp_path):
    """Without its comments: they are older than the parser, which refuses them."""
    source = artefacts.build("qemu-tests").parent
    sys.path.insert(0, str(source / "scripts"))
    from qapi.schema import QAPISchema

    lines = (source / "docs" / "interop" / "vhost-user.json").read_text().splitlines(keepends=True)
    bare = tmp_path / "vhost-user.json"
    bare.write_text("".join(line for line in lines if not line.startswith("#")))
    return QAPISchema(str(bare))


def members(schema, name: str, values: dict) -> dict:
    """The members of a struct, or of a union with these values."""
    entity = schema.lookup_entity(name)
    found = {member.name: member for member in entity.members}
    if entity.branches:
        kind = values.get(entity.branches.tag_member.name)
        for branch in entity.branches.variants:
            if branch.name == kind:
                found |= {member.name: member for member in branch.type.members}
    return found


def capabilities() -> str:
    program = artefacts.program("ccc-vhost")
    return subprocess.run([program, "--print-capabilities"], capture_output=True, text=True, check=True).stdout


def discovery() -> str:
    return Path("host/ccc-vhost/50-ccc-vhost.json").read_text()


@pytest.mark.parametrize(
    ("name", "said"), [("VHostUserBackendCapabilities", capabilities), ("VhostUserBackend", discovery)]
)
def test_q2_schema(name, said, schema):
    values = json.loads(said())
    allowed = members(schema, name, values)
    assert set(values) <= set(allowed)
    assert {key for key, member in allowed.items() if not member.optional} <= set(values)
    assert values["type"] in [value.name for value in schema.lookup_entity("VHostUserBackendType").members]
