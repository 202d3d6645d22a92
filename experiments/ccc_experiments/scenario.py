# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
# Generated from experiments/lab/scenario.schema.json by `python -m ccc_experiments.schema`.
"""Scenarios of the laboratory, as it reads them: what each field means and what it is if left out."""

from dataclasses import KW_ONLY, dataclass, field
from types import EllipsisType
from typing import Any, Literal


@dataclass(frozen=True)
class Request:
    """A request on the control socket."""

    # `GET`, `PATCH`, …
    method: str
    # Path of the resource.
    path: str
    _: KW_ONLY
    # JSON document sent with it.
    body: Any = None


@dataclass(frozen=True)
class Action:
    """Something done to the daemon while nobody runs: one of its kinds."""

    # When.
    at_s: float
    _: KW_ONLY
    # A request on the daemon's control socket.
    control: Request | None = None
    # The status of its answer; none: any of 200 to 299.
    expect: int | None = None
    # SIGKILL for the daemon.
    kill_daemon: bool = False
    # Start of the daemon after it was killed.
    start_daemon: bool = False


# A queueing discipline.
Queue = Literal["fifo", "fq_codel", "dualpi2", "cake", "htb", "htb_fq_codel"]


@dataclass(frozen=True)
class RateChange:
    """A change of the bottleneck's rate."""

    # When.
    at_s: float
    # Rate from then on, of what waits then too.
    rate_mbit: float


@dataclass(frozen=True)
class Bottleneck:
    """The shared queue and the way back; the defaults are those of the papers."""

    _: KW_ONLY
    # Delay of the way back.
    delay_ms: float = 100.0
    # Length of the FIFO in packets; of each VM's with `htb`.
    limit_packets: int = 83
    # Packets of flows with ECN that waited longer than this are marked.
    mark_ms: float | None = None
    # Its queueing discipline.
    queue: Queue = "fifo"
    # Changes of the rate, in the order of times.
    rate_changes: tuple[RateChange, ...] = ()
    # Rate in Mbit/s, of Ethernet frames.
    rate_mbit: float = 10.0
    # The way back's delay is evenly spread by so much to both sides, and
    # packets that overtake others come first; none: not at all.
    return_jitter_ms: float | None = None
    # What the way back loses at random, percent; none: nothing.
    return_loss_percent: float | None = None


@dataclass(frozen=True)
class Cross:
    """On-off streams of UDP packets, which do not respond to congestion; the
    defaults are those of the papers."""

    # What they offer in the mean, of the bottleneck's rate.
    load: float
    _: KW_ONLY
    # Mean and standard deviation of the payload.
    bytes: tuple[float, float] = (1000.0, 200.0)
    # Hurst parameter: on-times are Pareto with shape 3 - 2H.
    hurst: float = 0.8
    # Bounds of the streams' mean off-times, which are exponential.
    off_s: tuple[float, float] = (1.0, 2.0)
    # Bounds of the streams' mean packet rates while on, each second; the
    # times between packets are exponential.
    packets_s: tuple[float, float] = (50.0, 150.0)
    # How many.
    streams: int = 11


@dataclass(frozen=True)
class Fault:
    """Segments of one flow that are lost: a number of them, or all for a time."""

    # Name of the VM.
    vm: str
    # Number of the flow within the VM, from 0.
    flow: int
    # From when.
    at_s: float
    _: KW_ONLY
    # All segments for so many seconds.
    for_s: float | None = None
    # The next so many segments with data.
    packets: int | None = None


# Where the senders live.
Topology = Literal["vms", "single"]


@dataclass(frozen=True)
class DelayChange:
    """A change of the delay of a VM's way back."""

    # When.
    at_s: float
    # Delay from then on.
    delay_ms: float


@dataclass(frozen=True)
class Churn:
    """Connections that are opened one after another from the start on, send a
    little, are held, and are reset all at once."""

    # How many.
    connections: int
    # Seconds from the last opening to the reset.
    hold_s: float
    _: KW_ONLY
    # Milliseconds after which each sends that again, until the reset; none:
    # it sends once.
    again_ms: int | None = None
    # What each sends.
    bytes: int = 4096
    # Milliseconds within which they are opened.
    open_ms: int = 1000


@dataclass(frozen=True)
class Phase:
    """A change of live flows; what is left out stays as it is."""

    # When.
    at_s: float
    _: KW_ONLY
    # Congestion control.
    congestion_control: str | None = None
    # SO_PRIORITY.
    priority: int | None = None
    # What the application writes from now on; null: as much as it can, 0:
    # nothing.
    rate_kbit: float | None | EllipsisType = ...


@dataclass(frozen=True)
class Flows:
    """Some like connections of a VM."""

    _: KW_ONLY
    # How much each sends; none: without end.
    bytes: int | None = None
    # Many short-lived connections in place of one that lasts.
    churn: Churn | None = None
    # How many.
    count: int = 1
    # TCP_MAXSEG of the sockets.
    mss: int | None = None
    # Changes while the flows live, in the order of their times.
    phases: tuple[Phase, ...] = ()
    # SO_PRIORITY of the sockets.
    priority: int = 0
    # What the application writes, kbit/s; none: as much as it can.
    rate_kbit: float | None = None
    # SO_RCVBUF of the receivers' sockets, which bounds the window that they offer; none: TCP's own.
    receive_buffer_bytes: int | None = None
    # When they start, to which each adds a seeded part of `start_spread_ms`.
    start_s: float = 0.0
    # By how much each may start later; none: by 100 ms.
    start_spread_ms: int | None = None
    # When they are aborted; none: they last to the end.
    stop_s: float | None = None


@dataclass(frozen=True)
class GuestAction:
    """Something done inside a VM's kernel: one of its kinds."""

    # When.
    at_s: float
    _: KW_ONLY
    # The driver takes its device again.
    bind_device: bool = False
    # Default congestion control of new sockets.
    congestion_control: str | None = None
    # The module is loaded again.
    reload_module: bool = False
    # The driver lets go of its device.
    unbind_device: bool = False
    # The module is unloaded, if it is not in use.
    unload_module: bool = False


@dataclass(frozen=True)
class Link:
    """A link of a limited rate with a FIFO before it."""

    # Rate in Mbit/s, of Ethernet frames.
    rate_mbit: float
    _: KW_ONLY
    # Length of the FIFO in packets, the one being sent included.
    limit_packets: int = 1000
    # It goes past the bottleneck, right to the receivers.
    past_bottleneck: bool = False


@dataclass(frozen=True)
class Stalls:
    """Times at which a VM stands still by turns with times at which it runs, each
    evenly between two bounds."""

    # Milliseconds from the end of one to the beginning of the next.
    every_ms: tuple[float, float]
    # Milliseconds that each lasts.
    for_ms: tuple[float, float]


@dataclass(frozen=True)
class Vm:
    """One tenant."""

    # Its connections.
    flows: tuple[Flows, ...]
    _: KW_ONLY
    # Default congestion control of its sockets.
    congestion_control: str = "ccc"
    # Changes of that delay, in the order of times.
    delay_changes: tuple[DelayChange, ...] = ()
    # Delay of its way back, in place of the bottleneck's.
    delay_ms: float | None = None
    # Whether a coupled run gives it a device.
    device: bool = True
    # Whether its flows ask for ECN.
    ecn: bool = False
    # What is done inside its kernel, in the order of times.
    guest_actions: tuple[GuestAction, ...] = ()
    # Whether that module is the hostile one.
    hostile: bool = False
    # The link from it to the router; none: one without limits.
    link: Link | None = None
    # Parameters of the module in its kernel.
    module_options: str = ""
    # Its name in the results, and its host name; left out: `vm1` for the
    # first VM, `vm2` for the second, …
    name: str = ""
    # When its kernel is killed, and started again.
    reboot_s: float | None = None
    # How much the delay of its way back is spread, in place of the bottleneck's.
    return_jitter_ms: float | None = None
    # What its way back loses at random, percent, in place of the bottleneck's.
    return_loss_percent: float | None = None
    # When its processor stands still, so that its packets wait; none: never.
    stalls: Stalls | None = None
    # UDP datagrams that it sends beside its flows, all the time, Mbit/s of Ethernet frames.
    udp_mbit: float | None = None
    # The operator's weight, for the daemon's configuration.
    weight: float = 1.0


@dataclass(frozen=True)
class Scenario:
    """One run."""

    # Name of the run, for people.
    name: str
    # The tenants.
    vms: tuple[Vm, ...]
    # Seed of everything random: the same seed gives the same run.
    seed: int
    # Simulated seconds of traffic.
    duration_s: float
    _: KW_ONLY
    # What is done from outside, in the order of times.
    actions: tuple[Action, ...] = ()
    # The shared queue and the way back.
    bottleneck: Bottleneck = Bottleneck()
    # Whether `ccc-vhost` runs and devices are attached.
    coupled: bool = False
    # Traffic beside the tenants' that does not respond.
    cross: Cross | None = None
    # The `ccc-vhost` program.
    daemon: str | None = None
    # How long doorbells take to the daemon; those rung meanwhile go along.
    doorbell_delay_ms: float | None = None
    # Segments that are lost on purpose.
    faults: tuple[Fault, ...] = ()
    # Settings of the bottleneck group, by their names in the daemon's configuration.
    group: dict[str, Any] = field(default_factory=dict)
    # The one of VMs that are hostile.
    hostile_module: str | None = None
    # Whether the tenants' flows use IPv6.
    ipv6: bool = False
    # The User Mode Linux kernel.
    kernel: str | None = None
    # Kernel module loaded in every guest that sends.
    module: str | None = None
    # Interval of the queue samples.
    queue_sample_ms: int = 10
    # Congestion control of the receivers, which decides how they echo marks.
    receiver_congestion_control: str = "reno"
    # Whether the laboratory stands between guests and daemon, so that a
    # daemon can come back; given when one is killed.
    relay: bool = False
    # Interval of the TCP and goodput samples.
    sample_ms: int = 100
    # Where the senders live.
    topology: Topology = "vms"
