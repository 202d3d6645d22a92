# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""docs/operator.md word by word, on a Debian 12 host with its own kernel and AppArmor in force.

The host is emulated, and its guests are once more: this takes half an hour, and says nothing
of speed.  Other than in the document, apt asks nothing, domains have our emulator from the
beginning, so that `virsh edit` is left out, and the guests' image has the module already."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apparmor
import pytest
from testbed import artefacts
from testbed.errors import CommandError
from testbed.host import Host
from testbed.libvirt import Domain
from testbed.machine import VirtualMachine
from testbed.wait import until
from versions import NEW, OLD

pytestmark = pytest.mark.slow

HERE_DIR = Path(__file__).resolve().parent
DOCUMENT = artefacts.PROJECT / "docs" / "operator.md"
EMULATOR = "/usr/lib/ccc/qemu-system-x86_64"
IMAGES = "/var/lib/libvirt/images"
GUESTS = {"alice": "10.9.0.11", "bob": "10.9.0.12"}
RECEIVER, PORT = "10.9.0.2", 5201
FLOWS = {"alice": 1, "bob": 4}
# A guest within a guest boots in minutes, and can send no more than this.
PATIENCE_S, ANSWER_S, RATE = 1500.0, 300, "1mbit"
# What a kernel may leave out that nobody is to wait for.
PARAMETERS = (
    "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable nokaslr cryptomgr.notests nowatchdog no_timer_check"
    " apparmor=0 rcupdate.rcu_expedited=1 8250.nr_uarts=1 i8042.noaux=1 i8042.nokbd=1"
)
# What an operator's host has before: libvirt, a bridge, and what is behind it.
PREPARE = f"""
echo 'APT::Get::Assume-Yes "true";' > /etc/apt/apt.conf.d/yes
# What is lost with the machine needs no disk to be waited for.
echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/fast
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install libvirt-daemon-system libvirt-clients apparmor
ip link add br0 type bridge
ip link set br0 up
ip address add 10.9.0.1/24 dev br0
ip netns add receiver
ip link add uplink type veth peer name eth0 netns receiver
ip link set uplink master br0 up
tc qdisc add dev uplink root tbf rate {RATE} burst 5kb limit 30000
ip -n receiver link set eth0 up
ip -n receiver address add {RECEIVER}/24 dev eth0
cat > /root/sink.py <<'END'
import socketserver

class Sink(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(1 << 16):
            pass

socketserver.ThreadingTCPServer(("", {PORT}), Sink).serve_forever()
END
systemd-run -q -p NetworkNamespacePath=/run/netns/receiver python3 /root/sink.py
mkdir -p out/packages old
"""


def blocks(heading: str) -> list[list[str]]:
    """Lines of the commands below a heading of the document, block by block, without comments."""
    section = DOCUMENT.read_text().split(f"\n{heading}\n", 1)[1].split("\n##", 1)[0]
    found = re.findall(r"^ *```(?:sh)?\n(.*?)^ *```$", section, re.M | re.S)
    lines = ([re.sub(r"(^| +)#.*", "", line).strip() for line in block.splitlines()] for block in found)
    return [[line for line in block if line] for block in lines]


class Operator:
    """Types commands on a machine; what was typed and said is the transcript."""

    def __init__(self, host: Host, transcript: Path) -> None:
        self._host, self._transcript, self._directory = host, transcript, "/root"
        self._began = time.monotonic()

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._began) / 60

    def types(self, line: str, *statuses: int) -> str:
        """What it prints; it has to end with 0, or one of these."""
        text, status = self._type(line)
        self._tell(line, text)
        assert status in (statuses or (0,)), f"{line}: status {status}: {text}"
        return text

    def follows(self, lines: list[str]) -> None:
        for line in lines:
            if line == "cccctl top":  # Until somebody has seen enough.
                self.types("timeout 5 cccctl top", 124)
            elif not line.startswith("virsh edit"):
                self.types(line)

    def waits(self, what: str, line: str, shows: str = "", status: int = 0) -> str:
        """Types it again and again until it ends and shows as it should; the last time is told of."""
        last = ("", -1)

        def comes() -> bool:
            nonlocal last
            last = self._type(line)
            return last[1] == status and re.search(shows, last[0]) is not None

        try:
            until(what, comes, PATIENCE_S, poll_s=5)
        finally:
            self._tell(line, last[0])
        return last[0]

    def _type(self, line: str) -> tuple[str, int]:
        script = f"exec 2>&1\ncd {self._directory}\nexport DEBIAN_FRONTEND=noninteractive\n{line}\necho @ $? $PWD\n"
        said = self._host.attempt("sh", stdin=script, timeout_s=PATIENCE_S)
        text, _, end = said.stdout.rpartition("@ ")
        assert end, f"{line}: no end: {said.text}"
        status, self._directory = end.split()
        return text, int(status)

    def _tell(self, line: str, text: str) -> None:
        said = re.sub(r"^\(Reading database \.\.\. (\d+%)?\n", "", text, flags=re.M)
        with self._transcript.open("a") as transcript:
            transcript.write(f"[{self.minutes:5.1f} min] # {line}\n{said}")


@dataclass(frozen=True)
class Guest(Domain):
    """A domain with a shell at its address."""

    @property
    def address(self) -> str:
        return GUESTS[self.name]

    def attempt(self, script: str) -> tuple[str, str | None]:
        """What a script prints there, and the status it ends with if it does in time."""
        talk = f"exec 3<>/dev/tcp/{self.address}/2323; cat >&3; cat <&3"
        text = f"{{ {script}\n}} 2>&1; echo @ $?; exit\n"
        said = self.host.attempt("timeout", str(ANSWER_S), "bash", "-c", talk, stdin=text).stdout
        answer, end, status = said.rpartition("@ ")
        return (answer, status.strip()) if end else (said, None)

    def answers(self) -> bool:
        return self.attempt("true")[1] == "0"

    def run(self, script: str) -> None:
        said, status = self.attempt(script)
        how = f"no end within {ANSWER_S} s" if status is None else f"status {status}"
        assert status == "0", f"{self.name}: {script}: {how}: {said}"

    def send(self, flows: int) -> None:
        each = f"nc {RECEIVER} {PORT} </dev/zero >/dev/null 2>&1 &"
        self.run("\n".join([each] * flows))


@pytest.fixture
def host(logs: Path) -> Iterator[VirtualMachine]:
    machine = VirtualMachine("bookworm", logs, "host", processors=2, memory="3G")
    machine.boot()
    yield machine
    machine.close()


def test_the_guide_word_by_word(host, packages, logs, measured):
    # What is below these is what they say.
    install, in_guest, look = blocks("## In short")[:3]
    (confine,) = blocks("### Set up the host, once")
    (remove,) = [block for block in blocks("## The daemon") if block[0].startswith("cccctl detach")]
    prepared = host.host.attempt("sh", "-e", stdin=PREPARE, timeout_s=PATIENCE_S)
    assert prepared.ok, prepared.text
    for version, where in ((NEW, "out/packages"), (OLD, "old")):
        host.give(where, *(packages / version).glob("*.deb"))
    host.give(IMAGES, *(artefacts.build("guide-guest") / name for name in ("vmlinuz", "initrd")))

    operator = Operator(host.host, logs / "transcript.txt")
    define(host.host, operator, install, confine)
    assert apparmor.profile_of_the_daemon(host.host) == apparmor.ENFORCED
    guests = {name: Guest(name, host.host) for name in GUESTS}
    start(operator, guests, in_guest)
    sending = f'"active_flows": {sum(FLOWS.values())}'
    operator.waits("all flows coupled", "cccctl --json flows", sending)
    minutes = operator.minutes
    operator.waits("all is well", "cccctl status")
    operator.follows(look[:-1])  # The last one takes half an hour.
    operator.types("cccctl list")
    operator.types("cccctl doctor", 0, 4)
    change(operator)
    find_who_bypasses(operator, guests["bob"])
    before = connections(host.host)
    upgrade(operator)
    assert connections(host.host) == before, "a connection has ended"
    assert apparmor.profile_of_the_daemon(host.host) == apparmor.ENFORCED
    assert apparmor.refused(host.host) == []

    for name, guest in guests.items():
        operator.follows([line.replace("alice", name) for line in remove[:-1]])
        with suppress(CommandError):
            guest.destroy()
    operator.follows(remove[-1:])
    left = host.host.run("sh", "-c", "find / -xdev -path '*ccc*' -not -path '/root/*' -not -path '/var/lib/dpkg/*'")
    assert "/usr/bin" not in left and "/etc/libvirt" not in left, left
    measured(minutes_to_coupled_flows=minutes, minutes=operator.minutes)


def define(host: Host, operator: Operator, install: list[str], confine: list[str]) -> None:
    """The host's part, with the step that its place is marked of."""
    apt = next(number for number, line in enumerate(install) if line.startswith("apt install"))
    operator.follows(install[: apt + 1])
    operator.follows(confine)
    operator.types("cd /root")
    for name, address in GUESTS.items():
        text = (HERE_DIR / "domain.xml").read_text().format(
            name=name, emulator=EMULATOR, image=IMAGES, parameters=PARAMETERS, address=address
        )  # fmt: skip
        host.run("virsh", "-q", "define", "/dev/stdin", stdin=text)
    operator.follows(install[apt + 1 :])
    operator.types("cccctl attach bob --group uplink")


def start(operator: Operator, guests: dict[str, Guest], lines: list[str]) -> None:
    """Each guest's own lines of the document but for apt's, and its flows."""
    for name in guests:
        operator.types(f"virsh start {name}")
    confined = operator.types("grep libvirt- /sys/kernel/security/apparmor/profiles")
    assert len(confined.splitlines()) >= len(guests), f"QEMU is not confined: {confined}"
    for name, guest in guests.items():
        until(f"{name}: its shell answers", lambda guest=guest: guest.answers(), PATIENCE_S, poll_s=5)
        guest.run("\n".join(line for line in lines if not line.startswith("apt")))
        guest.send(FLOWS[name])


def change(operator: Operator) -> None:
    """What the document sets, asks and takes back, while flows run."""
    for heading, number in (("### The log", 0), ("### Floors and caps", 0), ("### Attach and detach", 0)):
        # What stands for one of two lines is none.
        operator.follows([line for line in blocks(heading)[number] if "[" not in line])
    operator.types("cccctl show web | grep 'cap mbit'")
    section = DOCUMENT.read_text().split("\n### Weights\n", 1)[1]
    metadata = re.search(r"`(virsh metadata DOMAIN .*?)`", section)
    assert metadata, "no such line in the document"
    operator.types(metadata[1].replace("DOMAIN", "alice"))
    operator.types("cccctl sync alice")
    assert "in force until domain alice stops" in operator.types("cccctl set alice --weight 3 --cap 900kbit")
    operator.types("cccctl group uplink --share window")
    operator.types("cccctl group uplink --share rate")
    operator.types("cccctl log --level info")
    operator.types("cccctl top --count 1")
    operator.types("ccc-vhost --config /etc/ccc/ccc.toml --check")
    operator.types("cccctl tenant remove web")
    # Before a downgrade.
    operator.types("cccctl attach alice --cap none --coupled on --weight 4")
    assert "cap_mbit" not in operator.types("virsh dumpxml alice") + operator.types("virsh dumpxml --inactive alice")


def find_who_bypasses(operator: Operator, bob: Guest) -> None:
    """A VM sends beside the coupling; doctor tells which."""
    for name in GUESTS:
        tap = operator.types(f"virsh -q domiflist {name}").split()[0]
        operator.types(f"cccctl set {name} --tap {tap}")
    operator.types("cccctl group uplink --enforce observe")
    bob.run("sysctl -w net.ipv4.tcp_congestion_control=reno")
    bob.send(8)
    operator.waits("doctor tells who sends beside the coupling", "cccctl doctor", "(?m)^.*bob.*", status=4)
    operator.types("cccctl group uplink --enforce off")


def connections(host: Host) -> list[str]:
    """Who is connected to the receiver: each guest's flows, coupled or not."""
    asked = ("ip", "netns", "exec", "receiver", "ss", "-Htn", "state", "established", "sport", f"= :{PORT}")
    found = sorted(line.split()[3] for line in host.run(*asked).splitlines())
    assert len(found) >= sum(FLOWS.values()), found
    return found


def upgrade(operator: Operator) -> None:
    """Back to the release before, and to this one, while flows run."""
    for directory, options in (("old", " --allow-downgrades"), ("out/packages", "")):
        operator.types(f"cd /root/{directory}")
        operator.types(f"apt install{options} ./ccc-vhost_*.deb ./cccctl_*.deb")
        operator.waits("it runs again, with both", "cccctl status || true", "2 of them connected")
    operator.waits("flows are coupled again", "cccctl --json flows", '"active_flows": [1-9]')
