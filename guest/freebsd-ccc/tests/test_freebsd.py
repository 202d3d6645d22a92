# SPDX-License-Identifier: BSD-3-Clause
"""The modules on a real kernel of FreeBSD, with the real daemon."""

import time
from contextlib import closing

import pytest
from freebsd import DEVICE, NIC, PCI_DEVICE
from testbed.bottleneck import ADDRESS, PORT
from testbed.random_device import RandomDevice
from testbed.wait import until

EBUSY, EINVAL, EMSGSIZE = 16, 22, 40
# Before and while rates are measured.
SETTLE_S, MEASURE_S = 15, 40
# Without the device.
SUSPENDED_S = 10
# Of a connection, and longer than it takes to send on a slow machine.
LONG_S = 600


def send(guest, flows, seconds=LONG_S, priority=0):
    guest.does("flows", ADDRESS, PORT, flows, seconds, priority)


def await_coupled(guest, daemon, flows, timeout_s=90):
    until(f"{guest.name}: {flows} flows coupled", lambda: daemon.coupled_flows(guest.name) == flows, timeout_s)


def await_none(guest, daemon):
    until("all flows have left", lambda: daemon.coupled_flows(guest.name) == 0 and guest.counts("slots_used") == 0, 90)


def ports(daemon, vm):
    return [str(flow["source_port"]) for flow in daemon.get(f"/v1/vms/{vm}/flows")["flows"]]


def rates(bed, daemon, *vms):
    """What arrives of each VM, in Mbit/s, and of each of its flows."""
    time.sleep(SETTLE_S)
    of = {vm: ports(daemon, vm) for vm in vms}
    before, began = bed.receiver.arrived(), time.monotonic()
    time.sleep(MEASURE_S)
    after, seconds = bed.receiver.arrived(), time.monotonic() - began
    return {vm: [(after[port] - before[port]) * 8e-6 / seconds for port in of[vm]] for vm in vms}


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def test_flows_are_coupled_and_leave(bed, measured):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    until("the tables are accepted", lambda: guest.tables() == "accepted", 30)
    send(guest, 4, 80)
    await_coupled(guest, daemon, 4)
    assert guest.counts("slots_used") == 4
    got = rates(bed, daemon, "bsd")["bsd"]
    measured(mbits=[round(rate, 2) for rate in got], jain=jain(got))
    events = sum(flow["events"] for flow in daemon.get("/v1/vms/bsd/flows")["flows"])
    assert events > 0, "a full queue, and no congestion event"
    assert jain(got) >= 0.98
    await_none(guest, daemon)


def test_a_thousand_connections_leave_no_slot_behind(bed, measured):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    until("the tables are accepted", lambda: guest.tables() == "accepted", 30)
    assert guest.does("churn", ADDRESS, PORT, 100, 20000) == 100
    for _ in range(9):
        assert guest.does("churn", ADDRESS, PORT, 100, 3000) == 100
    await_none(guest, daemon)
    # Each has registered and left.
    assert guest.counts("messages") >= 2000
    measured(messages=guest.counts("messages"))


def test_the_daemon_ends_and_begins_again(bed):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    send(guest, 4)
    await_coupled(guest, daemon, 4)
    daemon.kill()
    bed.receiver.check(4, "without the daemon", 60)
    until("the driver sees that nobody answers", lambda: guest.tables() == "unanswered", 60)
    daemon.start()
    await_coupled(guest, daemon, 4)
    bed.receiver.check(4, "with the daemon again", 60)


def test_the_modules_are_unloaded_when_nobody_uses_them(bed):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    guest.does("set-number", "net.inet.tcp.msl", 500)
    send(guest, 2, 30)
    await_coupled(guest, daemon, 2)
    guest.does("set-string", "net.inet.tcp.cc.algorithm", "cubic")
    assert int(guest.asks("unload", "cc_ccc.ko")) == -EBUSY
    # It has refused, and goes on serving.
    guest.does("set-string", "net.inet.tcp.cc.algorithm", "ccc")
    guest.does("set-string", "net.inet.tcp.cc.algorithm", "cubic")
    assert int(guest.asks("unload", "virtio_ccc.ko")) == -EBUSY
    for module in ("cc_ccc.ko", "virtio_ccc.ko"):
        assert int(guest.asks("unload-forced", module)) == -EBUSY
    assert daemon.coupled_flows("bsd") == 2
    await_none(guest, daemon)
    until("cc_ccc goes", lambda: int(guest.asks("unload", "cc_ccc.ko")) == 0, 60, 1)
    guest.does("unload", "virtio_ccc.ko")
    guest.load()
    send(guest, 2, 30)
    await_coupled(guest, daemon, 2)


def test_the_device_is_suspended_and_detached_while_flows_run(bed):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    send(guest, 4)
    await_coupled(guest, daemon, 4)
    guest.does("device", "suspend", DEVICE)
    bed.receiver.check(4, "suspended", 60)
    time.sleep(SUSPENDED_S)
    guest.does("device", "resume", DEVICE)
    await_coupled(guest, daemon, 4)
    # A sample of that time would be an eighth of it.
    assert max(flow["srtt_us"] for flow in daemon.get("/v1/vms/bsd/flows")["flows"]) < SUSPENDED_S * 1e6 / 16
    bed.receiver.check(4, "resumed", 60)
    guest.does("device", "detach", DEVICE)
    bed.receiver.check(4, "without the device", 60)
    # A driver that was detached has no name any more: its bus finds it.
    guest.does("device", "detach", PCI_DEVICE)
    guest.does("device", "attach", PCI_DEVICE)
    await_coupled(guest, daemon, 4)
    bed.receiver.check(4, "with the device again", 60)


def test_sysctls_refuse_what_is_none(bed):
    guest = bed.guest("bsd")
    assert int(guest.asks("set-number", "net.inet.tcp.cc.ccc.priority", 11)) < 0
    assert int(guest.asks("set-string", "net.inet.tcp.cc.ccc.inner", "htcp")) < 0
    guest.does("set-string", "net.inet.tcp.cc.ccc.inner", "cubic")
    assert guest.asks("string", "net.inet.tcp.cc.ccc.inner") == "cubic"
    guest.does("set-number", "net.inet.tcp.cc.ccc.priority", 3)


def test_priority_is_a_number_from_1_to_10(bed):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    assert guest.does("priority", 4) == 1
    assert guest.does("priority", 4, 10) == 10
    assert int(guest.asks("priority", 4, 0)) == -EINVAL
    assert int(guest.asks("priority", 4, 11)) == -EINVAL
    assert int(guest.asks("priority", 2, 3)) == -EMSGSIZE
    assert int(guest.asks("priority", 8, 3)) == -EMSGSIZE
    # The default is for connections that are made later, and have none of their own.
    send(guest, 1)
    await_coupled(guest, daemon, 1)
    guest.does("set-number", "net.inet.tcp.cc.ccc.priority", 3)
    assert guest.does("priority", 4) == 3
    send(guest, 1)
    await_coupled(guest, daemon, 2)
    send(guest, 1, LONG_S, 7)
    await_coupled(guest, daemon, 3)
    assert [flow["priority"] for flow in daemon.get("/v1/vms/bsd/flows")["flows"]] == [1, 3, 7]


def test_flows_beyond_the_slots_go_on_alone(bed):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd", environment={"hw.ccc.slots": "2"})
    assert guest.counts("slots") == 2
    send(guest, 2, 60)
    await_coupled(guest, daemon, 2)
    send(guest, 2)
    bed.receiver.check(4, "two without a slot", 60)
    assert daemon.coupled_flows("bsd") == guest.counts("slots_used") == 2
    # The first two end, and the others take their slots.
    until("the first have ended", lambda: len(bed.receiver.ended()) == 2, 120)
    await_coupled(guest, daemon, 2)


def test_flows_of_ipv6_are_coupled(bed):
    far, near = "fd77::1", "fd77::2"
    daemon = bed.daemon(bsd=1)
    bed.far.host.run("ip", "address", "add", f"{far}/64", "dev", "eth0", "nodad")
    receiver = bed.another_receiver(far)
    guest = bed.guest("bsd")
    guest.does("address6", NIC, near)
    guest.does("flows", far, PORT, 2, LONG_S, 0)
    await_coupled(guest, daemon, 2)
    flows = daemon.get("/v1/vms/bsd/flows")["flows"]
    assert {(flow["source"], flow["destination"]) for flow in flows} == {(near, far)}
    receiver.check(2, "by IPv6", 60)


@pytest.mark.parametrize("coupled", [0, 1])
def test_a_jail_with_a_network_of_its_own_is_coupled_if_wanted(bed, coupled):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd", environment={"net.inet.tcp.cc.ccc.jails": str(coupled)})
    guest.does("set-number", "net.inet.tcp.cc.ccc.priority", 3)
    guest.does("jail", NIC)
    guest.set_address("10.77.0.2")
    # It has settings of its own.
    assert guest.asks("string", "net.inet.tcp.cc.algorithm") == "ccc"
    assert guest.does("number", "net.inet.tcp.cc.ccc.priority") == 1
    send(guest, 2)
    bed.receiver.check(2, "from the jail", 60)
    if coupled:
        await_coupled(guest, daemon, 2)
    assert guest.counts("slots_used") == 2 * coupled


@pytest.mark.parametrize("inner", ["newreno", "cubic"])
def test_priorities_divide(bed, measured, inner):
    daemon = bed.daemon(bsd=1)
    guest = bed.guest("bsd")
    guest.does("set-string", "net.inet.tcp.cc.ccc.inner", inner)
    send(guest, 1, LONG_S, 3)
    await_coupled(guest, daemon, 1)
    send(guest, 1, LONG_S, 1)
    await_coupled(guest, daemon, 2)
    flows = daemon.get("/v1/vms/bsd/flows")["flows"]
    assert [flow["algorithm"] for flow in flows] == [inner] * 2
    first, second = rates(bed, daemon, "bsd")["bsd"]
    measured(ratio=first / second)
    assert first / second == pytest.approx(3, rel=0.08)


@pytest.mark.parametrize(("bsd", "linux"), [(1, 4), (4, 1)])
def test_a_vm_of_freebsd_and_one_of_linux_share_equally(bed, measured, bsd, linux):
    daemon = bed.daemon(bsd=1, linux=1)
    guest, other = bed.guest("bsd", number=3), bed.linux("linux", linux)
    until("Linux' flows are coupled", lambda: daemon.coupled_flows("linux") == linux, 180)
    send(guest, bsd)
    await_coupled(guest, daemon, bsd)
    got = {vm: sum(each) for vm, each in rates(bed, daemon, "bsd", "linux").items()}
    measured(**got, jain=jain(list(got.values())))
    assert not other.complaints()
    assert jain(list(got.values())) >= 0.98


def test_weights_of_vms_divide(bed, measured):
    daemon = bed.daemon(bsd=3, linux=1)
    guest, other = bed.guest("bsd", number=3), bed.linux("linux", 4)
    until("Linux' flows are coupled", lambda: daemon.coupled_flows("linux") == 4, 180)
    send(guest, 1)
    await_coupled(guest, daemon, 1)
    got = {vm: sum(each) for vm, each in rates(bed, daemon, "bsd", "linux").items()}
    measured(**got, ratio=got["bsd"] / got["linux"])
    assert not other.complaints()
    assert got["bsd"] / got["linux"] == pytest.approx(3, rel=0.08)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_device_that_does_everything_wrong(bed, measured, seed):
    # FreeBSD's virtqueue(9) believes a used ring, whatever the driver, and panics where that lies.
    with closing(RandomDevice(bed.socket("bsd"), seed, breaks_rings=False)) as device:
        guest = bed.guest("bsd", processors=2)
        send(guest, 8)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            # It is there, and its flows are its own affair.
            guest.does("number", "dev.virtio_ccc.0.slots_used")
            time.sleep(1)
        guest.does("device", "detach", DEVICE)
        bed.receiver.check(8, "without the device", 120)
        assert device.did["lines"] > 0 and device.did["doorbells"] > 0, "it coupled nothing"
        measured(**device.did)
        assert not device.error
