# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The test bed itself, as far as it needs neither root nor a guest."""

import os
import select
import socket
import struct
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from testbed import layout, vhost_user, virtio_ccc
from testbed.artefacts import program
from testbed.bottleneck import PORT, Receiver
from testbed.daemon import Daemon
from testbed.errors import CommandError, TestbedError, TimedOut
from testbed.host import HERE, is_running
from testbed.random_device import RandomDevice
from testbed.vhost_user import GuestMemory, Virtqueue
from testbed.wait import until


def test_the_layout_is_the_headers():
    assert layout.module() == layout.MODULE.read_text(), "run PYTHONPATH=experiments python3 -m testbed.layout"


@pytest.mark.parametrize("struct", layout.structs())
def test_places_in_the_layout_are_the_compilers(struct):
    wanted, had = layout.places(struct, getattr(virtio_ccc, layout.class_name(struct)))
    assert layout.compiled(wanted) == had


def test_waiting_ends_when_it_is_so_and_names_what_never_was():
    answers = iter((False, 0, "yes"))
    assert until("the third time", lambda: next(answers)) < 1
    with pytest.raises(TimedOut, match="a miracle: not within 0.1 s"):
        until("a miracle", lambda: False, 0.1)


def test_a_process_that_ends_while_it_is_looked_at_is_none(monkeypatch):
    process = subprocess.Popen(["sleep", "60"])
    assert is_running(process.pid)

    def read_late(path: Path) -> str:
        with path.open() as opened:
            process.kill()
            process.wait()
            return opened.read()

    monkeypatch.setattr(Path, "read_text", read_late)
    assert not is_running(process.pid)


def test_a_command_that_fails_or_hangs_is_named_with_its_words():
    with pytest.raises(CommandError, match="sh -c echo why >&2; false: why"):
        HERE.run("sh", "-c", "echo why >&2; false")
    with pytest.raises(TimedOut, match="sleep 9: hangs"):
        HERE.attempt("sleep", "9", timeout_s=0.1)


def test_a_receiver_tells_who_sends_and_who_was_reset(tmp_path):
    began = time.time()
    # An address of this machine that nobody has a server at.
    with closing(Receiver(HERE, tmp_path / "received", "127.77.0.1")) as receiver:
        flow = socket.socket()
        until("it listens", lambda: flow.connect_ex(("127.77.0.1", PORT)) == 0)
        with flow:
            flow.sendall(b"data")
            until("the data arrive", lambda: list(receiver.arrived().values()) == [4])
            assert not receiver.arrived(plain=True)
            since = receiver.arrived()
            flow.sendall(b"more")
            until("more arrive", lambda: receiver.moves(since))
            flow.sendall(b"last")
            assert receiver.standstill_s(began) < 60
            with pytest.raises(TimedOut, match="two: 2 flows: not within"):
                receiver.check(2, "two", timeout_s=0.1)
        with pytest.raises(TestbedError, match="one: "):
            receiver.check(1, "one", timeout_s=0.1)


@pytest.fixture
def daemon(tmp_path):
    try:
        program("ccc-vhost")
    except TestbedError as error:
        pytest.skip(str(error))
    with Daemon.of_vm(tmp_path) as daemon:
        yield daemon


def test_a_daemon_is_killed_hangs_and_answers_again(daemon):
    assert daemon.vm("guest")["group"] == "uplink" == daemon.group("uplink")["name"]
    assert daemon.vm("nobody") is None
    daemon.kill()
    with pytest.raises(OSError):
        daemon.vm("guest")
    daemon.start()
    daemon.hang()
    assert daemon.coupled_flows("guest") == 0
    daemon.resume()
    assert daemon.vm("guest")["connected"] is False


def test_a_daemon_that_cannot_start_says_why(daemon):
    daemon.stop()
    with pytest.raises(TestbedError, match="(?s)does not start: .*nonsense"):
        daemon.start("[nonsense]")


def test_a_message_in_pieces_is_received_whole_with_its_descriptors():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        message = vhost_user.HEADER.pack(5, 1, 4) + b"abcd"
        socket.send_fds(theirs, [message[:3]], [theirs.fileno()])
        theirs.sendall(message[3:])
        request, flags, payload, (fd,) = vhost_user.receive_message(ours)
        assert (request, flags, payload) == (5, 1, b"abcd")
        os.close(fd)
        theirs.shutdown(socket.SHUT_WR)
        assert vhost_user.receive_message(ours) is None


def ask(stream, request, payload, fds=(), *, reply=0):
    message = vhost_user.HEADER.pack(request, vhost_user.VERSION, len(payload)) + payload
    socket.send_fds(stream, [message], fds)
    return stream.recv(vhost_user.HEADER.size + reply, socket.MSG_WAITALL) if reply else b""


def test_a_kick_is_the_front_ends_once_its_ring_has_stopped(tmp_path):
    kick = os.eventfd(0, os.EFD_NONBLOCK)
    with closing(RandomDevice(tmp_path / "ccc.sock", seed=1)) as device, socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(tmp_path / "ccc.sock"))
        ask(stream, vhost_user.Request.SET_VRING_KICK, struct.pack("<Q", 2), [kick])
        os.eventfd_write(kick, 1)
        until("the kick is read", lambda: not select.select([kick], [], [], 0)[0])
        ask(stream, vhost_user.Request.GET_VRING_BASE, struct.pack("<II", 2, 0), reply=8)
        os.eventfd_write(kick, 1)
        ask(stream, vhost_user.Request.GET_FEATURES, b"", reply=8)
        assert os.eventfd_read(kick) == 1, f"the device read it again: {device.error}"
        assert device.error is None
    os.close(kick)


def test_a_device_that_failed_lets_nobody_wait_for_it(tmp_path):
    def serve(connection):
        raise ValueError("no such thing")

    path = tmp_path / "ccc.sock"
    with closing(vhost_user.Server(path, serve)) as server:
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(path))
            until("the device has failed", lambda: server.error)
        with socket.socket(socket.AF_UNIX) as second, pytest.raises(ConnectionRefusedError):
            second.connect(str(path))
        assert str(server.error) == "no such thing"


GUEST, USER, SIZE = 0x1000, 0x7000, 4096
DESCRIPTORS, AVAILABLE, USED = GUEST, GUEST + 0x100, GUEST + 0x200


def test_a_chain_is_taken_and_returned():
    fd = os.memfd_create("guest")
    os.truncate(fd, SIZE)
    memory = GuestMemory(bytes(8) + struct.pack("<QQQQ", GUEST, SIZE, USER, 0), [fd])
    assert memory.guest_address(USER + 5) == GUEST + 5
    queue = Virtqueue(memory, 4)
    queue.descriptors, queue.available, queue.used = DESCRIPTORS, AVAILABLE, USED
    assert queue.pop() is None
    memory.write(DESCRIPTORS + 2 * 16, struct.pack("<QIHHQIHH", GUEST + 0x800, 7, 1, 3, GUEST + 0x900, 9, 0, 0))
    memory.write(AVAILABLE, struct.pack("<HHH", 0, 1, 2))
    chain = queue.pop()
    assert (chain.head, chain.buffers) == (2, [(GUEST + 0x800, 7), (GUEST + 0x900, 9)])
    assert queue.pop() is None
    queue.add_used(chain.head, 9)
    assert memory.read(USED, 12) == struct.pack("<HHII", 0, 1, 2, 9)
    with pytest.raises(ValueError, match="0x3000 is in no memory region"):
        memory.read(0x3000, 1)
