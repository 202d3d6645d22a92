# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What an acknowledgement must not pass over: the program's own machine code, in an emulated processor.

A flow is brought to where its ACKs are quiet, one thing is changed, and the next ACK has to go the
general way. Nothing of that is seen in throughput: a program that looks at less is as fair while all is
well.
"""

from collections.abc import Callable
from pathlib import Path

from ccc_experiments.scores import Score

from .instructions import ACKED, MSS, RTT_US, WINDOW, Flow
from .service import Service, bpf, until

_SOCK = "inet_conn.icsk_inet.sk"
_TIMER, _NO_RATE = f"{_SOCK}.sk_pacing_status", (1 << 64) - 1
_CWR, _RECOVERY, _TX_START, _PACING_FQ = 2, 3, 0, 2
# Of a line: VIRTIO_CCC_L_COUPLED, _SLOW_START and _RATE.
_COUPLED, _SLOW_START, _BY_RATE = 1, 2, 4
# A tenth more than what they were, as of 26 November 2026 (`make bench-bpf` has more).
MOST_QUIET, MOST_CHANGED = 231, 231
Change = Callable[[Flow], object]

# One thing each that the general way has to see, at the next ACK.
CHANGES: dict[str, Change] = {
    "priority": lambda flow: flow.sock.set(**{f"{_SOCK}.sk_priority": 6}),
    "a lease that is over": lambda flow: flow.control.set(lease_us=1),
    "a table that is not accepted": lambda flow: flow.status.set(status=0),
    "another instance": lambda flow: flow.status.set(instance=6),
    "another level": lambda flow: change_line(flow, level=flow.line.get("level") // 2),
    "a level of a packet more": lambda flow: change_line(flow, level=flow.line.get("level") * 101 // 100),
    "another epoch": lambda flow: change_line(flow, epoch=2),
    "other flags": lambda flow: change_line(flow, flags=_COUPLED | _BY_RATE | _SLOW_START),
    "a slot that is refused": lambda flow: flow.grant.set(flags=0),
    "another line": lambda flow: flow.grant.set(line=1),
    "another generation of the grant": lambda flow: flow.grant.set(generation=8),
    "a lower window": lambda flow: flow.sock.set(snd_cwnd=flow.sock.get("snd_cwnd") - 5),
    "a higher window": lambda flow: flow.sock.set(snd_cwnd=flow.sock.get("snd_cwnd") + 5),
    "nothing on its way": lambda flow: flow.sock.set(packets_out=0),
    "nothing left to send": lambda flow: flow.sock.set(write_seq=flow.sock.get("snd_nxt") + ACKED * MSS),
    "a window that is not used": lambda flow: flow.sock.set(is_cwnd_limited=0),
    "another table": lambda flow: flow.control.set(id=77),
    "another flow in the slot": lambda flow: flow.flow.set(generation=8),
    "set_state()": lambda flow: flow.call("set_state", 1),
    "ssthresh()": lambda flow: flow.call("ssthresh"),
    "undo_cwnd()": lambda flow: flow.call("undo_cwnd"),
    "cwnd_event()": lambda flow: flow.call("cwnd_event", 1),
}

# And with the next message; what of the flow is another then.
LATER: dict[str, tuple[Change, str]] = {
    "segments of another size": (lambda flow: flow.sock.set(mss_cache=1400), "grant.mss"),
    "another rounding": (lambda flow: change_line(flow, rounding_offset=77), "grant.rounding_offset"),
    "another interval": (lambda flow: change_line(flow, report_interval_us=9_000), "grant.report_interval_us"),
}


def noticed(out: Path) -> list[Score]:
    service = Service(out, {"g": {}})
    try:
        service.start()
        until("the program is loaded", lambda: any(service.pins.glob("*/complete")))
        programs = {one["name"]: one["id"] for one in bpf("prog") if one.get("type") == "struct_ops"}
        ours = {name.removeprefix("ccc_"): number for name, number in programs.items() if name.startswith("ccc_")}
        missed = [name for name, change in CHANGES.items() if is_quiet(changed(ours, change))]
        late = [name for name, change in LATER.items() if not is_seen_with_a_message(settled(ours), *change)]
        wrong = [name for name, held in HELD.items() if not held(settled(ours))]
        wrong += [name for name, change in UNSETTLED.items() if not settles_not(settled(ours), change)]
        flow = settled(ours)
        executed = [min(flow.ack(changes) for _ in range(WINDOW)) for changes in (False, True)]
    finally:
        service.stop()
    for name in missed + late + wrong:
        print(f"not as it has to be after a quiet ACK: {name}")
    return [
        Score(f"of {len(CHANGES)} changes, those that a quiet ACK passes over", len(missed), "1", "<=", 0),
        Score(f"of {len(LATER)} changes, those that the next message passes over", len(late), "1", "<=", 0),
        Score(
            f"of {len(HELD) + len(UNSETTLED)} things that hold beside quiet ACKs, those that do not",
            len(wrong),
            "1",
            "<=",
            0,
        ),
        Score("instructions of a quiet ACK", executed[0], "1", "<=", MOST_QUIET),
        Score("  of one whose line has changed", executed[1], "1", "<=", MOST_CHANGED),
    ]


def settled(programs: dict[str, int]) -> Flow:
    """A flow whose last ACK was quiet and whose next messages are far."""
    flow = Flow(programs)
    for _ in range(50):
        flow.ack(True)
    for _ in range(100):
        far = flow.flow.get("report.tcp_due") - flow.sock.get("delivered") - 4 * ACKED
        if is_quiet(flow) and 0 < far < 1 << 31:
            return flow
    raise RuntimeError("no ACK is quiet")


def is_quiet(flow: Flow, rtt_us: int = RTT_US) -> bool:
    """Whether the flow's next ACK is: it notes what is acknowledged, and leaves the rest to others."""
    acked, delivered = (flow.flow.get(name) for name in ("shadow.quiet_acked", "report.tcp_delivered"))
    flow.ack(False, rtt_us)
    noted = flow.flow.get("shadow.quiet_acked") - acked == ACKED
    return noted and flow.flow.get("report.tcp_delivered") == delivered


def changed(programs: dict[str, int], change: Change) -> Flow:
    flow = settled(programs)
    change(flow)
    return flow


def change_line(flow: Flow, **fields: int) -> None:
    flow.line.set(seq=flow.line.get("seq") + 2, **fields)


def is_seen_with_a_message(flow: Flow, change: Change, follows: str) -> bool:
    """Of which there are eight in a round trip."""
    before = flow.flow.get(follows)
    change(flow)
    for _ in range(WINDOW // 8 // ACKED + 1):
        flow.ack(False)
    return flow.flow.get(follows) != before


def unchanged_is_quiet(flow: Flow) -> bool:
    return is_quiet(flow)


def a_line_of_as_many_packets_is_quiet(flow: Flow) -> bool:
    level = flow.line.get("level") + flow.line.get("level") // 100_000
    change_line(flow, level=level)
    return is_quiet(flow) and is_quiet(flow)


def what_was_quiet_is_counted_before_an_event(flow: Flow) -> bool:
    before = flow.flow.get("report.acked_limited_bytes")
    acked = flow.flow.get("shadow.quiet_acked")
    flow.call("set_state", _RECOVERY)
    counted = flow.flow.get("report.acked_limited_bytes") - before
    return acked > 0 and counted == acked * MSS and flow.flow.get("shadow.quiet_acked") == 0


def all_that_is_acknowledged_is_counted(flow: Flow) -> bool:
    """By the next message, of quiet ACKs and others."""

    def counted() -> int:
        return flow.flow.get("report.acked_limited_bytes") + flow.flow.get("shadow.quiet_acked") * MSS

    before = counted()
    for _ in range(2 * WINDOW):
        flow.ack(False)
    return counted() - before == 2 * WINDOW * ACKED * MSS and flow.flow.get("shadow.quiet_acked") < WINDOW


def grown(flow: Flow) -> float:
    """Packets by which the shadow window has grown, with the part of one, and what is still to come."""
    cwnd, count, owed, quiet = (flow.flow.get(f"shadow.{name}") for name in ("cwnd", "cwnd_cnt", "owed", "quiet_acked"))
    return cwnd + (count + owed + quiet * cwnd / WINDOW) / cwnd


def the_inner_algorithm_has_all_that_is_acknowledged(flow: Flow) -> bool:
    """It grows by a packet in a window, and that is reported."""
    before, told = grown(flow), flow.flow.get("report.cwnd_growth_bytes")
    for _ in range(5 * WINDOW // ACKED):
        flow.ack(False)
    reported = (flow.flow.get("report.cwnd_growth_bytes") - told) // MSS
    return abs(grown(flow) - before - 5) < 0.2 and 4 <= reported <= 6


def of_another_window_what_was_quiet_counts_no_more(flow: Flow) -> bool:
    """As after TCP's restart of one that was idle."""
    before = grown(flow)
    flow.sock.set(snd_cwnd=10)
    flow.call("set_state", 1)
    return abs(grown(flow) - before) < 0.05


def what_was_quiet_outlives_an_ack_that_is_not_limited(flow: Flow) -> bool:
    before = grown(flow)
    for _ in range(WINDOW // ACKED):
        flow.sock.set(is_cwnd_limited=0)
        flow.ack(False)
        flow.sock.set(is_cwnd_limited=1)
        for _ in range(4):
            flow.ack(False)
    return 3.5 < grown(flow) - before < 4.5


def where_reports_are_rare_acks_are_quiet(flow: Flow) -> bool:
    change_line(flow, report_interval_us=250_000)
    for _ in range(WINDOW):
        flow.ack(False)
    told, sequence = flow.flow.get("report.notified_us"), set()
    quiet = []
    # Three round trips, which is less than that.
    for _ in range(3 * WINDOW // ACKED):
        quiet.append(is_quiet(flow))
        sequence.add(flow.flow.get("report.notified_us"))
    return sum(quiet) > 0.8 * len(quiet) and len(sequence | {told}) <= 2


def settles_not(flow: Flow, change: Change) -> bool:
    """What is so does not become quiet, once an ACK has gone the general way."""
    change(flow)
    flow.know(settled=0)
    return not any(is_quiet(flow) for _ in range(20))


# States in which each ACK has to go the general way.
UNSETTLED: dict[str, Change] = {
    "slow start": lambda flow: change_line(flow, flags=_COUPLED | _SLOW_START),
    "a line that couples nobody": lambda flow: change_line(flow, flags=0),
    "three segments": lambda flow: change_line(flow, level=flow.line.get("level") * 3 // WINDOW),
    "an epoch that has just begun": lambda flow: [change_line(flow, epoch=2), flow.sock.set(snd_nxt=1 << 29)],
    "a window that may not be had": lambda flow: flow.sock.set(snd_cwnd_clamp=WINDOW // 2),
    "no window that limits": lambda flow: flow.sock.set(is_cwnd_limited=0),
}


def a_shorter_rtt_is_noted(flow: Flow) -> bool:
    before = flow.flow.get("report.rtt_us")
    return is_quiet(flow, RTT_US // 2) and flow.flow.get("report.rtt_us") == RTT_US // 2 < before


def recovery_is_reported(flow: Flow) -> bool:
    """cong_avoid() is not called there: what is delivered is told by in_ack_event()."""
    flow.call("set_state", _RECOVERY)
    flow.sock.set(**{"inet_conn.icsk_ca_state": _RECOVERY}, delivered=flow.sock.get("delivered") + WINDOW)
    flow.call("in_ack_event", 0x8)
    return flow.flow.get("report.tcp_delivered") == flow.sock.get("delivered")


def a_part_by_rate_follows_the_rtt(flow: Flow) -> bool:
    """Though its line stays: what is due then is a message, and the window that the average of it brings."""
    srtt_us = flow.flow.get("report.srtt_us")
    before = flow.sock.get("snd_cwnd")
    flow.sock.set(srtt_us=2 * RTT_US * 8)
    for _ in range(20 * WINDOW):
        flow.ack(False, 2 * RTT_US)
    wanted = before * flow.flow.get("report.srtt_us") // srtt_us
    return flow.sock.get("snd_cwnd") > before + 5 and abs(flow.sock.get("snd_cwnd") - wanted) <= 2


def parks(flow: Flow) -> bool:
    """All that was sent is acknowledged: whether its slot may be another's."""
    flow.sock.set(packets_out=0)
    flow.ack(False)
    return is_parked(flow)


def is_parked(flow: Flow) -> bool:
    known = flow.known()
    return known["generation"] == 0 and known["parked"] == flow.flow.get("generation")


def it_parks_with_the_last_ack_while_tcp_reduces_the_window(flow: Flow) -> bool:
    """Before Linux 6.16 what that acknowledges is counted as on its way yet; and it is told that it is idle."""
    flow.call("set_state", _CWR)
    flow.sock.set(**{"inet_conn.icsk_ca_state": _CWR, "snd_una": flow.sock.get("snd_nxt")})
    flow.sock.set(write_seq=flow.sock.get("snd_nxt"))
    flow.call("in_ack_event", 0x8)
    return is_parked(flow) and flow.flow.get("report.now.active") == 0


def it_stays_parked_when_told_that_it_sent_twice(flow: Flow) -> bool:
    parked = parks(flow)
    flow.call("undo_cwnd")
    return parked and is_parked(flow)


def restored_while_it_sends_it_looks_for_a_slot(flow: Flow) -> bool:
    """TCP_REPAIR sends without an event, when the algorithm has begun; who sends looks for one at its next ACK."""
    flow.know(generation=0, sender=0)
    flow.ack(False)
    return flow.known()["sender"] == 1


def once_parked_it_goes_on_with_what_is_written(flow: Flow) -> bool:
    """As the same flow, and its ACKs are quiet again."""
    parked, before = parks(flow), flow.known()["parked"]
    flow.sock.set(packets_out=WINDOW)
    flow.call("cwnd_event", _TX_START)
    flow.ack(False)
    goes_on = flow.known()["generation"] == before and not flow.known()["parked"]
    return parked and goes_on and any(is_quiet(flow) for _ in range(WINDOW))


def once_parked_it_does_not_use_what_is_another_s(flow: Flow) -> bool:
    """Another flow has its slot when it writes."""
    parked = parks(flow)
    flow.flow.set(generation=flow.flow.get("generation") + 1)
    before = flow.flow.get("report.acked_limited_bytes"), flow.flow.get("shadow.quiet_acked")
    flow.sock.set(packets_out=WINDOW)
    for _ in range(WINDOW):
        flow.ack(False)
    after = flow.flow.get("report.acked_limited_bytes"), flow.flow.get("shadow.quiet_acked")
    return parked and before == after and not flow.known()["parked"]


def waits(flow: Flow) -> None:
    """TCP waits for its timer, for us."""
    flow.know(timed=1)
    flow.sock.set(**{_TIMER: 1, f"{_SOCK}.sk_max_pacing_rate": _NO_RATE})


def a_time_to_send_at_is_waited_for(flow: Flow) -> bool:
    """Or the RTT of what is sent then would be too short."""
    waits(flow)
    flow.sock.set(tcp_clock_cache=1, tcp_wstamp_ns=1_000_000)
    flow.control.set(id=77)
    flow.ack(False)
    waited = flow.sock.get(_TIMER)
    flow.sock.set(tcp_clock_cache=1_000_000)
    flow.call("release")
    return waited == 1 and flow.sock.get(_TIMER) == 0


def fq_waits_for_little_windows(flow: Flow) -> bool:
    """It has the rate of half a segment in a round trip, which TCP's own window of two is not."""
    flow.sock.set(**{_TIMER: _PACING_FQ, f"{_SOCK}.sk_max_pacing_rate": _NO_RATE})
    change_line(flow, epoch=2, level=flow.line.get("level") // (2 * WINDOW))
    for _ in range(3):
        flow.ack(False)
        # TCP puts its own rate there.
        flow.sock.set(**{f"{_SOCK}.sk_pacing_rate": 10 * MSS * 1_000_000 // RTT_US})
        flow.call("min_tso_segs")
    return flow.sock.get(f"{_SOCK}.sk_pacing_rate") < MSS * 1_000_000 // RTT_US


def released_it_waits_no_more(flow: Flow) -> bool:
    waits(flow)
    flow.call("release")
    return flow.sock.get(_TIMER) == 0


def without_its_table_it_waits_no_more(flow: Flow) -> bool:
    waits(flow)
    flow.control.set(id=77)
    flow.ack(False)
    return flow.sock.get(_TIMER) == 0


def the_owner_s_rate_stays(flow: Flow) -> bool:
    waits(flow)
    flow.sock.set(**{f"{_SOCK}.sk_max_pacing_rate": 1_000_000})
    flow.call("release")
    return flow.sock.get(_TIMER) == 1


HELD: dict[str, Callable[[Flow], bool]] = {
    check.__name__.replace("_", " "): check
    for check in (
        unchanged_is_quiet, a_line_of_as_many_packets_is_quiet, what_was_quiet_is_counted_before_an_event,
        the_inner_algorithm_has_all_that_is_acknowledged, of_another_window_what_was_quiet_counts_no_more,
        what_was_quiet_outlives_an_ack_that_is_not_limited, where_reports_are_rare_acks_are_quiet,
        all_that_is_acknowledged_is_counted, a_shorter_rtt_is_noted,
        recovery_is_reported, a_part_by_rate_follows_the_rtt,
        it_parks_with_the_last_ack_while_tcp_reduces_the_window, it_stays_parked_when_told_that_it_sent_twice,
        restored_while_it_sends_it_looks_for_a_slot, a_time_to_send_at_is_waited_for, fq_waits_for_little_windows,
        once_parked_it_goes_on_with_what_is_written, once_parked_it_does_not_use_what_is_another_s,
        released_it_waits_no_more, without_its_table_it_waits_no_more, the_owner_s_rate_stays,
    )
}  # fmt: skip
