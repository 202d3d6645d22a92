# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Scenarios and parts of them that several figures have.

A kind that begins with `coupled` has the module and the daemon, any other
plain Reno.
"""

from math import ceil, exp
from random import Random

from .scenario import Flows, Scenario, Vm

KINDS = ("uncoupled", "coupled")
# The same flows in two VMs: the first alone in one, or half of them in each.
TWO_VMS = ", two VMs"
KINDS_OF_TWO = ("uncoupled, two VMs", "coupled, two VMs")
# Flows of the papers' emulations start at random in the first second.
FIRST_SECOND_MS = 1000

# Sizes of background connections, as of files on the web (Barford and Crovella,
# SIGMETRICS 1998): a log-normal body and a Pareto tail, here cut off.
_BODY_MU, _BODY_SIGMA = 9.357, 1.318
_TAIL_PART, _TAIL_SHAPE, _TAIL_LEAST = 0.07, 1.1, 133_000
_MOST_BYTES = 5_000_000
# What each of them writes at most: connections of a campus are held up by
# applications, access links and small receive windows, not by the bottleneck
# alone.  With this rate and a load of 3.5 Mbit/s four uncoupled flows lose and
# queue what the dissertation's do.
_BACKGROUND_KBIT = 250.0
# Their round-trip times.
_BACKGROUND_MS = (80.0, 100.0)


def is_coupled(kind: str) -> bool:
    return kind.startswith("coupled")


def flow_count(vm: Vm) -> int:
    """How many connections a VM has."""
    return sum(flows.count for flows in vm.flows)


def vm_of(kind: str, *flows: Flows, **more) -> Vm:
    """A VM of a run of that kind."""
    control = "ccc" if is_coupled(kind) else "reno"
    return Vm(flows, congestion_control=control, module_options=JOINS.get(kind, ""), **more)


def outsider(*flows: Flows, **more) -> Vm:
    """A sender that is never coupled."""
    return Vm(flows, congestion_control="reno", device=False, **more)


def several_kernels(kind: str, seed: int, duration_s: float, *vms: Vm, **more) -> Scenario:
    """A kernel for each VM."""
    return Scenario("", vms, seed, duration_s, coupled=is_coupled(kind), **more)


def one_kernel(kind: str, seed: int, duration_s: float, *vms: Vm, **more) -> Scenario:
    """One kernel for all, which counts as one VM: where shares of VMs do not matter."""
    return several_kernels(kind, seed, duration_s, *vms, topology="single", **more)


def of_kind(kind: str, seed: int, duration_s: float, *flows: Flows, **more) -> Scenario:
    """Flows of one VM; of a kind of two VMs the first in one and the rest in the other."""
    if TWO_VMS not in kind:
        return one_kernel(kind, seed, duration_s, vm_of(kind, *flows), **more)
    return several_kernels(kind, seed, duration_s, *_in_two(kind, flows), **more)


def _in_two(kind: str, flows: tuple[Flows, ...]) -> tuple[Vm, ...]:
    first, *rest = flows
    return (vm_of(kind, first), vm_of(kind, *rest)) if rest else (vm_of(kind, first),)


def background(seed: int, load_mbit: float, duration_s: float) -> tuple[Vm, ...]:
    """Senders of TCP connections that come at random and respond to congestion.

    Connections of heavy-tailed sizes, each of a limited rate, arrive as a
    Poisson process; without losses they would offer `load_mbit`.
    """
    random = Random(seed)
    rate = load_mbit * 1e6 / 8 / _mean_bytes()
    connections: dict[float, list[Flows]] = {delay: [] for delay in _BACKGROUND_MS}
    at_s = random.expovariate(rate)
    while at_s < duration_s:
        one = Flows(start_s=round(at_s, 6), bytes=_size(random), rate_kbit=_BACKGROUND_KBIT)
        connections[random.choice(_BACKGROUND_MS)].append(one)
        at_s += random.expovariate(rate)
    return tuple(outsider(*flows, delay_ms=delay) for delay, flows in connections.items() if flows)


def _size(random: Random) -> int:
    """Bytes of one connection."""
    if random.random() < _TAIL_PART:
        return min(_MOST_BYTES, ceil(_TAIL_LEAST * random.paretovariate(_TAIL_SHAPE)))
    return min(_MOST_BYTES, ceil(random.lognormvariate(_BODY_MU, _BODY_SIGMA)))


def _mean_bytes() -> float:
    """Mean of the sizes, the cut of the tail included."""
    body = exp(_BODY_MU + _BODY_SIGMA**2 / 2)
    cut = (_TAIL_LEAST / _MOST_BYTES) ** (_TAIL_SHAPE - 1)
    tail = _TAIL_LEAST * (_TAIL_SHAPE - cut) / (_TAIL_SHAPE - 1)
    return (1 - _TAIL_PART) * body + _TAIL_PART * tail


# Ways of joining that are not the ACK clock, and the module's parameter for each.
PACED, UNCLOCKED = "coupled, paced", "coupled, unclocked"
JOINS = {PACED: "join=paced", UNCLOCKED: "join=unclocked"}

# Coupling algorithms that the papers compare.
POLICIES = {
    "uncoupled": None,
    "coupled EFCM": "efcm",
    "coupled E-TCP": "e-tcp",
    "coupled CM": "cm",
    "coupled": "ctrltcp",
}


def policy_run(kind: str, seed: int, duration_s: float, *flows: Flows, **more) -> Scenario:
    """One VM's flows, or those of two, coupled by the policy of that kind."""
    group = {"share": "window", "policy": POLICIES[kind.removesuffix(TWO_VMS)]}
    vms = _in_two(kind, flows) if TWO_VMS in kind else (vm_of(kind, *flows),)
    return several_kernels(kind, seed, duration_s, *vms, group=group, **more)
