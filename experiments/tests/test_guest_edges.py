# SPDX-License-Identifier: GPL-2.0
"""The Linux driver and a device that misbehaves, in virtual time.

Each test gives the guest steps and the device behaviours (testbed/scripted_device.py),
and looks at what the guest saw.
"""

import ipaddress
import json
import re
import subprocess
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from testbed import uml
from testbed import virtio_ccc as wire
from testbed.artefacts import PROJECT
from testbed.scripted_device import ScriptedDevice

INIT = PROJECT / "guest" / "tests" / "edges_guest.py"


@dataclass
class Seen:
    """What the guest saw at a moment."""

    tcp: list[dict]

    @property
    def coupled(self) -> int:
        return sum(flow["coupled"] for flow in self.tcp)

    @property
    def windows(self) -> list[int]:
        return [flow["cwnd"] for flow in self.tcp]

    @property
    def acked(self) -> int:
        return sum(flow["acked"] for flow in self.tcp)


@pytest.fixture
def guest(parts, cpu):
    """Runs steps in a guest with a device; returns the device and the snapshots."""

    def run(steps, netem="", parameters="", refuse_after=None, **options):
        # A socket's path is short: not in pytest's own directory.
        with tempfile.TemporaryDirectory(prefix="ccc-edges-") as name:
            work = Path(name)
            document = {"steps": steps, "netem": netem, "parameters": parameters}
            (work / "steps").write_text(json.dumps(document))
            with closing(ScriptedDevice(work, **options)) as device:
                device.refuse_after = refuse_after
                return device, boot(work, device)

    def boot(work, device):
        variables = {"work": str(work), "module": str(parts.module)}
        console = uml.boot(parts.kernel, INIT, work, device.path, cpu, variables)
        assert device.error is None, device.error
        assert not (work / "failure").exists(), (work / "failure").read_text()
        assert (work / "dmesg").exists(), console[-3000:]
        log = (work / "dmesg").read_text()
        assert not re.search(r"BUG|WARNING|Oops|Call Trace", log), log[-3000:]
        snapshots = map(json.loads, (work / "snapshots").read_text().splitlines())
        return {one["name"]: Seen(one["tcp"]) for one in snapshots}

    return run


def at(behaviour: str, seconds: float = 1.0) -> list:
    """Steps that bring a behaviour about and look at the end of it."""
    return [["device", behaviour], ["sleep", seconds], ["snapshot", behaviour]]


def test_a_flow_takes_the_window_it_is_granted(guest):
    _, seen = guest([["start", 2], *at("window=43440", 2), *at("window=14480")])
    assert seen["window=43440"].windows == [30, 30]
    assert seen["window=14480"].windows == [10, 10]
    assert seen["window=14480"].coupled == 2


@pytest.mark.parametrize("told_us, kept_us", [(100_000, 100_000), (2**32 - 1, 250_000)])
def test_messages_are_as_far_apart_as_the_device_says(told_us, kept_us, guest):
    slow = f"interval={told_us}"
    device, seen = guest([["start", 2], *at("window=14480", 4), *at(slow, 4)])
    assert seen[slow].coupled == 2
    assert seen[slow].acked > seen["window=14480"].acked * 1.9
    most = 2 * 4_000_000 / kept_us
    assert most / 2 <= device.updates[slow] <= most + 2
    assert device.updates["window=14480"] > 2 * most, "without an interval"


def test_an_event_does_not_wait_for_the_interval(guest):
    device, _ = guest([["start", 1], *at("interval=250000", 5)], netem="loss 4% ecn")
    told = {report.congestion_events for report in device.reports}
    assert max(told) >= 20, "events come closer than the interval"
    assert told == set(range(max(told) + 1)), "each is told by itself"


def test_without_answer_flows_go_on_alone_and_come_back(guest):
    steps = [["start", 2], *at("window=14480"), *at("stall", 3), *at("serve", 2)]
    device, seen = guest(steps, stale_us=200_000)
    assert seen["window=14480"].coupled == 2
    assert seen["stall"].coupled == 0
    assert max(seen["stall"].windows) > 10
    assert seen["serve"].coupled == 2


def test_a_full_queue_ends_in_a_rescan(guest):
    device, seen = guest([["start", 4], *at("window=14480"), *at("stall", 5), *at("serve", 2)])
    assert device.doorbells[wire.OP_RESCAN] >= 1
    assert seen["serve"].coupled == 4


def test_a_refused_extent_leaves_its_flows_alone(guest):
    steps = [["start", 12], *at("window=7240", 3)]
    _, seen = guest(steps, parameters="slots=8", refuse_after=8)
    assert seen["window=7240"].coupled == 8
    assert len(seen["window=7240"].tcp) == 12
    assert all(flow["acked"] > 10_000 for flow in seen["window=7240"].tcp)


def test_extents_are_offered_as_flows_come(guest):
    device, seen = guest([["start", 40], *at("window=2896", 4)], parameters="slots=8")
    assert seen["window=2896"].coupled == 40
    assert len(device.extents) >= 5


def test_flows_over_max_slots_wait_for_room(guest):
    steps = [["start", 12], *at("window=7240", 2), ["stop", 4], *at("window=7241", 3)]
    _, seen = guest(steps, parameters="slots=8", max_slots=8)
    assert seen["window=7240"].coupled == 8
    assert len(seen["window=7241"].tcp) == 8
    assert seen["window=7241"].coupled == 8


def test_a_released_extent_is_offered_again(guest):
    steps = [["start", 12], *at("window=7240", 3), *at("release=8", 3)]
    device, seen = guest(steps, parameters="slots=8")
    assert device.doorbells[wire.OP_RELEASE] == 1
    assert seen["release=8"].coupled == 12, device.extents
    assert seen["release=8"].coupled == 12


def test_f7_an_extent_that_was_refused_is_offered_again(guest):
    steps = [["start", 12], *at("window=7240", 3), *at("accept", 20)]
    device, seen = guest(steps, parameters="slots=8", refuse_after=8)
    assert seen["window=7240"].coupled == 8
    assert seen["accept"].coupled == 12, device.extents


@pytest.mark.parametrize("max_slots", [8, 32])
def test_f7_the_first_extent_taken_back_at_full_slots_is_offered_again(max_slots, guest):
    """Without it there are no lines, and no flow is coupled."""
    steps = [["start", 9], *at("window=7240", 3), *at("release=0", 3)]
    device, seen = guest(steps, parameters="slots=8", max_slots=max_slots)
    assert device.doorbells[wire.OP_RELEASE] == 1
    assert seen["release=0"].coupled == min(max_slots, 9), device.extents


def test_f7_an_extent_with_slots_of_idle_flows_is_offered_again(guest):
    """Whoever has no ACKs does not see that his slot was taken back."""
    steps = [["start", 4, "4", 0, 10_000], *at("window=7240", 2), *at("release=0", 2)]
    steps += [["start", 4], *at("window=7241", 2)]
    device, seen = guest(steps, parameters="slots=8", max_slots=8)
    assert [flow["cwnd"] for flow in seen["window=7241"].tcp[4:]] == [5] * 4, device.extents


def test_f7_a_device_that_refuses_for_ever_is_not_asked_all_the_time(guest):
    steps = [["start", 12], *at("window=7240", 100)]
    device, _ = guest(steps, parameters="slots=8", refuse_after=8)
    assert 3 <= device.refusals <= 15


def test_f8_a_reset_connection_has_delivered_what_it_has(guest):
    device, _ = guest([["start", 2], *at("window=14480", 2), ["stop", 2], ["sleep", 1]])
    sent = 10_000_000 / 8 * 3
    assert max(report.delivered_bytes for report in device.reports) < sent
    last: dict[int, int] = {}
    for report in device.reports:
        assert report.delivered_bytes >= last.get(report.generation, 0)


@pytest.mark.parametrize("kind", [wire.EV_RESYNC, wire.EV_POLICY, 77])
def test_events(kind, guest):
    device, seen = guest([["start", 1], *at("window=14480"), *at(f"event={kind}")])
    assert seen[f"event={kind}"].coupled == 1
    assert device.doorbells[wire.OP_RESCAN] == (kind == wire.EV_RESYNC)


def test_a_line_that_stays_torn_keeps_the_earlier_grant(guest):
    _, seen = guest([["start", 1], *at("window=14480"), ["device", "window=28960"], *at("torn")])
    assert seen["torn"].windows == [10]
    assert seen["torn"].acked > seen["window=14480"].acked


@pytest.mark.parametrize("line", [4, 16, 65535])
def test_a_line_out_of_range_couples_nothing(line, guest):
    _, seen = guest([["start", 1], *at("window=14480"), *at(f"line={line}")])
    assert seen[f"line={line}"].coupled == 0
    assert seen[f"line={line}"].acked > seen["window=14480"].acked


@pytest.mark.parametrize("level", [0, 1, 2**63, 2**64 - 2])
def test_any_level_is_survived(level, guest):
    _, seen = guest([["start", 2], *at("window=14480"), *at(f"level={level}", 2), *at("window=14481", 3)])
    extreme = seen[f"level={level}"]
    assert extreme.acked > seen["window=14480"].acked
    if level < 2:
        # A receiver holds back the ACK of a single segment.
        assert extreme.windows == [2, 2]
    assert seen["window=14481"].windows == [10, 10]


@pytest.mark.parametrize("level", [2**62, 2**64 - 2])
def test_f6_a_new_flow_survives_any_level_and_priority(level, guest):
    """The first share is what the inner algorithm's own window begins with."""
    steps = [["device", f"level={level}"], ["start", 2, "4", 6], *at(f"level={level}", 2)]
    _, seen = guest([*steps, *at("window=14481", 3)])
    assert seen[f"level={level}"].coupled == 2
    assert seen["window=14481"].windows == [60, 60]


@pytest.mark.parametrize("inner", ["reno", "cubic", "vegas", "dctcp"])
def test_f6_grants_of_any_content_are_survived(inner, guest):
    steps = [*(["start", 2, "4", n] for n in range(7)), *at("anything", 20), *at("window=1448", 3)]
    device, seen = guest(steps, parameters=f"inner={inner}", features=3, netem="loss 1%")
    assert all(flow["cwnd"] > 0 for flow in seen["anything"].tcp)
    assert seen["window=1448"].acked > seen["anything"].acked > 1_000_000


def test_priority_of_a_live_socket_is_in_the_next_report(guest):
    device, seen = guest([["start", 2], *at("window=14480"), ["priority", 0, 3], *at("window=14481")])
    assert {report.priority for report in device.reports[-2:]} <= {256, 768}
    assert 768 in {report.priority for report in device.reports}
    assert sorted(seen["window=14481"].windows) == [10, 30]


IP_TOS = (0, 1)
SO_PRIORITY = (1, 12)


def test_g1_ip_tos_does_not_set_the_weight(guest):
    steps = [["start", 2], *at("window=14480"), ["unprivileged", 0, *IP_TOS, 0x10]]
    steps += [["unprivileged", 1, *IP_TOS, 0x08], *at("window=14481")]
    device, seen = guest(steps)
    assert {report.priority for report in device.reports} == {256}
    assert seen["window=14481"].windows == [10, 10]


def test_g1_a_user_without_privileges_sets_the_weight_of_his_flows(guest):
    """With or without IP_TOS, which has to be set first."""
    steps = [["start", 2], ["unprivileged", 0, *IP_TOS, 0x10]]
    steps += [["unprivileged", n, *SO_PRIORITY, 3] for n in (0, 1)]
    device, seen = guest([*steps, *at("window=14480", 3)])
    assert seen["window=14480"].windows == [30, 30]


@pytest.mark.parametrize("way", ["loopback", "own", "container"])
def test_g2_flows_that_do_not_leave_are_not_coupled(way, guest):
    steps = [["start", 2, way], ["start", 1], *at("window=14480", 3)]
    device, seen = guest(steps)
    assert [flow["coupled"] for flow in seen["window=14480"].tcp] == [False, False, True]
    # Nor does the host learn of them.
    assert {bytes(report.daddr[:4]) for report in device.reports} == {bytes([10, 9, 0, 2])}
    assert all(flow["acked"] > 100_000 for flow in seen["window=14480"].tcp)


SO_MARK = (1, 36)


@pytest.mark.parametrize("option", [IP_TOS, SO_MARK])
def test_g2_a_flow_whose_route_is_looked_up_anew_is_coupled(option, guest):
    """Setting these takes the route away until the next packet."""
    steps = [["connect", 2], ["option", 0, *option, 0x10], ["send"], *at("window=14480", 5)]
    _, seen = guest(steps)
    assert [flow["coupled"] for flow in seen["window=14480"].tcp] == [True, True]


def test_g2_containers_are_coupled_by_choice(guest):
    steps = [["start", 2, "container"], *at("window=14480", 2)]
    _, seen = guest(steps, parameters="containers=1")
    assert seen["window=14480"].windows == [10, 10]


@pytest.mark.parametrize(("devices", "coupled"), [("up0", 2), ("eth7,up0", 2), ("up,up01", 0)])
def test_g2_devices_are_coupled_by_choice(devices, coupled, guest):
    _, seen = guest([["start", 2], *at("window=14480", 2)], parameters=f"devices={devices}")
    assert seen["window=14480"].coupled == coupled


@pytest.mark.parametrize("stale_us", [0, 2**32 - 1])
def test_g3_a_device_that_has_died_does_not_hold_windows(stale_us, guest):
    steps = [["start", 2], *at("window=14480"), *at("stall", 15), *at("serve", 2)]
    _, seen = guest(steps, stale_us=stale_us)
    assert seen["stall"].coupled == 0
    assert max(seen["stall"].windows) > 10
    assert seen["serve"].coupled == 2


@pytest.mark.parametrize("name", ["rogue", "westwood", "bbr"])
def test_g4_only_the_kernels_own_algorithms_are_coupled(name, guest, parts):
    """One of unknown size would write over the module's own pointers."""
    where = parts.module.parent
    steps = [
        ["run", f"rmmod ccc; insmod {where}/ccc_rogue.ko"],
        ["run", f"! insmod {where}/ccc.ko inner={name}"],
        *(["run", f"insmod {where}/ccc.ko"], ["start", 1], *at("window=14480", 2)),
    ]
    _, seen = guest(steps)
    assert seen["window=14480"].coupled == 1


@pytest.mark.parametrize(("inner", "allowed"), [("reno", True), ("vegas", True), ("dctcp", False)])
def test_g4_an_algorithm_for_marking_networks_stays_restricted(inner, allowed, guest):
    set_it = "s.setsockopt(6, 13, b\"ccc\")"
    user = f"setpriv --reuid 65534 --clear-groups python3 -c 'import socket; s = socket.socket(); {set_it}'"
    steps = [["run", user if allowed else f"! {user}"], ["snapshot", "end"]]
    guest(steps, parameters=f"inner={inner}")


def test_g7_idle_connections_give_their_slots_back(guest):
    steps = [["start", 8, "4", 0, 10_000], *at("window=7240", 3)]
    steps += [["start", 4], *at("window=7241", 5)]
    device, seen = guest(steps, parameters="slots=8", max_slots=8)
    assert [flow["cwnd"] for flow in seen["window=7241"].tcp[8:]] == [5] * 4, device.doorbells


def test_g8_the_largest_extents_are_offered_and_the_device_goes_under_load(guest):
    steps = [["start", 60], *at("window=1448", 3)]
    for _ in range(3):
        steps += [["bind", False], ["sleep", 0.1], ["bind", True], ["sleep", 1]]
    device, seen = guest([*steps, *at("window=1449", 2)], parameters="slots=4096", max_slots=8192)
    assert seen["window=1448"].coupled == seen["window=1449"].coupled == 60


def test_a_mark_is_an_event(guest):
    device, seen = guest([["start", 1], *at("window=14480", 3)], netem="loss 2% ecn")
    assert max(report.congestion_events for report in device.reports) > 0
    assert max(report.timeouts for report in device.reports) == 0
    assert seen["window=14480"].tcp[0]["retrans"] == 0


def test_reordering_is_undone(guest):
    steps = [["sysctl", "tcp_reordering", "3"], ["start", 1], *at("window=57920", 5)]
    device, _ = guest(steps, netem="reorder 90% gap 20")
    assert max(report.spurious_events for report in device.reports) > 0
    assert all(report.spurious_events <= report.congestion_events for report in device.reports)


def test_addresses_of_an_ipv6_flow(guest):
    device, seen = guest([["start", 1, "6"], *at("window=14480")])
    report = device.reports[-1]
    assert (report.family, bytes(report.daddr)) == (6, ipaddress.ip_address("fd09::2").packed)
    assert seen["window=14480"].windows == [10]


def test_a_device_that_goes_and_comes_back(guest):
    steps = [
        *(["start", 2], *at("window=14480")),
        *(["bind", False], ["sleep", 1], ["snapshot", "gone"]),
        *(["bind", True], ["sleep", 2], ["snapshot", "back"]),
    ]
    _, seen = guest(steps)
    assert seen["gone"].coupled == 0
    assert seen["gone"].acked > seen["window=14480"].acked
    assert seen["back"].coupled == 2


@pytest.mark.parametrize("revision", [0, 2, 2**32 - 1])
def test_a_device_of_another_revision_is_given_up(revision, guest):
    device, seen = guest([["start", 2], *at("window=14480", 2)], revision=revision)
    assert (device.extents, device.doorbells) == ({}, {})
    flows = seen["window=14480"]
    assert flows.coupled == 0
    assert all(flow["acked"] > 10_000 for flow in flows.tcp)


def test_a_reduction_by_another_flow_is_followed(guest):
    _, seen = guest([["start", 2], *at("window=28960", 2), *at("reduce")])
    assert seen["window=28960"].windows == [20, 20]
    assert seen["reduce"].windows == [10, 10]


@pytest.mark.parametrize("inner", ["reno", "cubic", "vegas", "dctcp"])
@pytest.mark.parametrize("ecn", [False, True])
def test_an_inner_algorithm_is_coupled_and_let_go(inner, ecn, guest):
    """Without ECN dctcp takes itself off the socket; the module must stay on it."""
    listener = "ccc" if ecn else "reno"
    steps = [
        ["sysctl", "tcp_congestion_control", listener],
        ["sysctl", "tcp_ecn", str(int(ecn))],
        *(["start", 2], *at("window=28960", 2), *at("reduce"), *at("window=28961", 2)),
        *(["sysctl", "tcp_congestion_control", "reno"], ["stop", 2], ["sleep", 2]),
        ["run", "rmmod ccc"],
    ]
    marks = "loss 1% ecn" if ecn else ""
    device, seen = guest(steps, netem=marks, parameters=f"inner={inner}")
    assert seen["window=28960"].coupled == 2
    assert seen["window=28961"].coupled == 2
    # The flow's own growth, never its slow start.
    # Modulo 2^32: an algorithm may close its window.
    growth = [(report.cwnd_growth_bytes, report.delivered_bytes) for report in device.reports]
    assert all(grown <= delivered or grown >= 1 << 31 for grown, delivered in growth)
    if ecn:
        factor = max(report.beta for report in device.reports) / 65536
        assert factor == {"reno": 0.5, "vegas": 0.5}.get(inner, pytest.approx(factor))
        assert factor > 0.65 or inner in ("reno", "vegas")


@pytest.mark.parametrize("inner", ["reno", "cubic"])
def test_who_grows_by_the_size_of_its_window_grows_as_the_aggregate(inner, guest):
    """After a reduction CUBIC goes towards the window it had, the faster the larger that was."""

    def grown(aggregate_bytes):
        steps = [["device", f"aggregate={aggregate_bytes}"], ["start", 1], ["sleep", 2], *at("reduce", 4), ["stop", 1]]
        device, seen = guest(steps, parameters=f"inner={inner}")
        assert seen["reduce"].coupled == 1
        return max(report.cwnd_growth_bytes for report in device.reports)

    window_bytes = 40 * 1448
    alone, a_tenth = grown(0), grown(10 * window_bytes)
    if inner == "reno":
        assert alone == a_tenth > 0
    else:
        assert a_tenth > 3 * alone > 0


TCP_OPS = r"cong_avoid|pkts_acked|in_ack_event|cwnd_event\w*|min_tso_segs"
ACK_PATH = rf"ccc_(tcp_({TCP_OPS})|recovery_(set_state|ssthresh|undo_cwnd))$"
SLEEPS = r"alloc|printk|^_dev_|mutex|(?<!tasklet_)schedule|sleep|wait_for|synchronize|^down"


def test_nothing_sleeps_allocates_or_logs_on_the_ack_path(parts):
    """By what the functions called for each ACK refer to, theirs included."""
    command = ["objdump", "-dr", "--no-show-raw-insn", str(parts.module)]
    listing = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    refers: dict[str, set[str]] = {}
    starts: dict[int, str] = {}
    section = function = ""
    for line in listing.splitlines():
        if found := re.match(r"Disassembly of section (.*):", line):
            section = found[1]
        elif found := re.match(r"([0-9a-f]+) <(.*)>:", line):
            function = found[2]
            refers[function] = set()
            if section == ".text":
                starts[int(found[1], 16)] = function
        elif found := re.search(r"R_X86_64_\w+\s+([\w.]+)(?:\+0x([0-9a-f]+))?", line):
            # A static function is an offset in its section.
            offset = int(found[2] or "0", 16)
            refers[function].add(offset if found[1] == ".text" else found[1])
        elif found := re.search(r"(?:call|jmp)\s+[0-9a-f]+ <(\w+)>", line):
            refers[function].add(found[1])
    reached, todo = set(), [name for name in refers if re.match(ACK_PATH, name)]
    assert len(todo) >= 7, todo
    while todo:
        name = todo.pop()
        name = starts.get(name, name) if isinstance(name, int) else name
        # Freed after a grace period, by somebody else.
        if isinstance(name, str) and name not in reached | {"ccc_device_free_rcu"}:
            reached.add(name)
            todo += refers.get(name, ())
    assert "ccc_doorbell_send" in reached and "virtqueue_add_outbuf" in reached, reached
    assert not [name for name in reached if re.search(SLEEPS, name)]
