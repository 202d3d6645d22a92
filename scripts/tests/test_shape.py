# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""scripts/shape, on a tree that is small enough to be counted by hand."""

from pathlib import Path

import pytest
from ccc_shape import circles, command, guest, journey
from ccc_shape.functions import functions
from ccc_shape.tree import Tree

FLOW_H = """
struct ccc_grant {
	u32 level;
	u32 cap[2];
};

struct ccc_flow {
	struct ccc_grant grant;
	u32 acked;
	u8 state;
};

static inline struct ccc_flow *ccc_flow(struct sock *sk)
{
	return inet_csk_ca(sk);
}
"""
FLOW_C = """
static void ccc_flow_reset(struct ccc_flow *flow)
{
	flow->acked = 0;	/* flow->state = 1; */
	if (flow->state == 2)
		ccc_grant_read(flow);
}

void ccc_flow_ack(struct sock *sk)
{
	struct ccc_flow *flow = ccc_flow(sk);

	ccc_flow_reset(flow);
	ccc_send(flow);
	WRITE_ONCE(flow->state, 3);
}
"""
GRANT_C = """
void ccc_grant_read(struct ccc_flow *flow)
{
	flow->grant.level++;
	flow->grant.cap[0] = 1;
	flow->state |= 2;
}

int ccc_send(struct ccc_flow *flow)
{
	return flow->acked;
}
"""
A_RS = """
use crate::b::{self, take};

pub(crate) fn read(
    slot: u32,
) -> u32 {
    take(slot)
}

trait Clock {
    fn now(&self) -> u64;
}

#[cfg(test)]
mod tests {
    fn not_counted() {
        super::read(1);
    }
}
"""
B_RS = "pub fn take(slot: u32) -> u32 {\n    super::a::LEAST.min(slot)\n}\n\npub fn one() -> u32 { 1 }\n"
JOURNEY = """
ccc_flow_ack
  flow.h:ccc_flow
  ccc_flow_reset
    ccc_grant_read       # the grant
  ccc_send
~ read
  take
"""
FILES = {
    "guest/linux-ccc/flow.h": FLOW_H,
    "guest/linux-ccc/flow.c": FLOW_C,
    "guest/linux-ccc/grant.c": GRANT_C,
    "guest/linux-ccc/tests/flow_test.c": "int growth_source;\n",
    "host/ccc-vhost/Cargo.toml": "",
    "host/ccc-vhost/src/lib.rs": "mod a;\nmod b;\n",
    "host/ccc-vhost/src/a.rs": A_RS,
    "host/ccc-vhost/src/b.rs": B_RS,
    "host/ccc-core/src/lib.rs": "pub fn growth_source() {\n    step();\n}\n",
    "experiments/one.py": "import two\n",
    "experiments/two.py": "from one import first\n",
    "docs/images/plot.svg": "x\n" * 1000,
}


@pytest.fixture
def tree(tmp_path) -> Tree:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(tmp_path)


def test_a_journey_is_checked_and_counted(tree):
    whole = journey.walk(tree, JOURNEY)
    inside = [file.name for file in whole.part("guest").files]
    assert inside == ["flow.c", "flow.h", "flow.c", "grant.c", "grant.c"]
    assert (whole.part("guest").distinct, whole.part("guest").returns) == (3, 1)
    assert (whole.part("host").distinct, whole.part("host").returns) == (2, 0)


@pytest.mark.parametrize(
    ("declaration", "why"),
    [
        ("ccc_flow_ack\n  ccc_grant_read", "ccc_flow_ack of .*flow.c does not name ccc_grant_read"),
        ("ccc_no_more", "expected ccc_no_more in one file, got no file"),
        ("ccc_flow_ack\n  ~ not_counted", "expected not_counted in one file"),
    ],
)
def test_a_journey_that_is_not_so_is_refused(tree, declaration, why):
    with pytest.raises(journey.NotSo, match=why):
        journey.walk(tree, declaration)


def test_prefixes_are_of_functions_that_others_use(tree):
    assert {f.name: guest.carries_prefix(f) for f in guest.exported(tree)} == {
        "ccc_grant_read": True,
        "ccc_send": False,
    }


def test_writers_are_found_through_embedded_structs(tree):
    found = {struct.name: struct for struct in guest.structs(tree)}
    assert found["ccc_flow"].writers == {"acked": {"flow"}, "state": {"flow", "grant"}}
    assert found["ccc_flow"].shared_fields == 1
    assert found["ccc_grant"].writers == {"level": {"grant"}, "cap": {"grant"}}


def test_circles_of_every_language(tree):
    assert guest.circles_graph(tree) == {"flow": {"grant"}, "grant": set()}
    assert circles.circles(tree) == {
        "host/ccc-vhost": [["a", "b"]],
        "Python": [["experiments.one", "experiments.two"]],
    }


def test_lines_of_functions(tree):
    lines = {f.name: f.lines for f in functions(tree, tree.under("guest", "host", suffixes=(".c", ".h", ".rs")))}
    assert lines == {
        "ccc_flow": 3, "ccc_flow_reset": 5, "ccc_flow_ack": 7, "ccc_grant_read": 5, "ccc_send": 3,
        "read": 5, "take": 3, "one": 1, "growth_source": 3,
    }  # fmt: skip


def test_the_table(tree, capsys):
    assert command.main(["--tree", str(tree.root), "--names"]) == 0
    table = capsys.readouterr().out
    assert "| exported guest functions with their file's prefix | 50 % of 2 |" in table
    assert "| largest guest struct: fields, of these written by several files | 3, 1 |" in table
    assert "| guest structs written by several files | 1 of 2 |" in table
    assert "| | struct ccc_flow: flow, grant |" in table
    assert "| top-level modules of ccc-vhost | 2 |" in table
    assert "| files that name a group's setting, of these code | 2, 1 |" in table
    by_hand = sum(text.count("\n") for name, text in FILES.items() if not name.endswith(".svg"))
    assert f"| lines by hand, of these tests | {by_hand}, 1 |" in table


def test_what_is_no_tree_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["--tree", str(tmp_path / "nope")])
    assert "invalid --tree: expected a tree of ccc, got " in capsys.readouterr().err


def test_the_way_through_this_tree_is_declared():
    journey.declared(Tree(Path(__file__).resolve().parents[2]))
