# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The daemon in its AppArmor profile, on a Debian 12 with its own kernel, where that is in force.

The host is emulated: this takes minutes.  test_guide.py has the same with QEMU and guests."""

import json
from collections.abc import Iterator
from pathlib import Path

import apparmor
import pytest
from testbed import artefacts
from testbed.host import Host
from testbed.machine import VirtualMachine
from testbed.wait import until
from versions import NEW

pytestmark = pytest.mark.slow

PATIENCE_S = 300.0
CONFIGURATION = """
[daemon]
control = "/run/ccc/control/control.sock"
state = "/var/lib/ccc/state.json"
operators = "ccc-operators"
metrics = "127.0.0.1:9170"

[group.uplink]
enforce = "on"

[vm.web]
socket = "/run/ccc/vm/web.sock"
group = "uplink"
tap = "web0"
"""
# With what the document has for operators and taps; the last two lines are what a daemon that was
# killed leaves of a tap that has gone, for which the next one needs its capability.
PREPARE = f"""
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q --yes install apparmor
apt-get -q --yes --no-install-recommends install ./ccc-vhost_*.deb ./cccctl_*.deb
groupadd --system ccc-operators
echo 'z /run/ccc/control 2750 ccc ccc-operators' >/etc/tmpfiles.d/ccc-operators.conf
systemd-tmpfiles --create
cat >/etc/ccc/ccc.toml <<'END'
{CONFIGURATION}
END
mkdir -p /etc/systemd/system/ccc-vhost.service.d
printf '[Service]\\nAmbientCapabilities=CAP_NET_ADMIN\\nCapabilityBoundingSet=CAP_NET_ADMIN\\n' \\
	>/etc/systemd/system/ccc-vhost.service.d/enforce.conf
systemctl daemon-reload
ip tuntap add web0 mode tap
ip link set web0 up
ip link add ccc-ifb9 type ifb
ip link set ccc-ifb9 alias 'ccc-vhost holds gone0 by /etc/ccc/ccc.toml'
"""
# Memory as QEMU may have it: without a name, and in a file.
CONNECT = """
from pathlib import Path
from testbed.front_end import FrontEnd
for memory in (None, Path("/dev/shm/guest")):
    FrontEnd(Path("/run/ccc/vm/web.sock"), 16, 2, memory).close()
"""
SCRAPE = 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:9170/metrics").read().decode())'
OTHER = "/root/other.toml"


@pytest.fixture
def host(logs: Path) -> Iterator[VirtualMachine]:
    machine = VirtualMachine("bookworm", logs, "host", processors=2)
    machine.boot()
    yield machine
    machine.close()


def test_apparmor_confines_the_daemon_to_what_it_needs(host, packages):
    host.give("/root", *(packages / NEW).glob("*.deb"), artefacts.PROJECT / "experiments/testbed")
    machine = host.host
    prepared = machine.attempt("sh", "-e", stdin=PREPARE, timeout_s=PATIENCE_S)
    assert prepared.ok, prepared.text
    restart(machine)

    machine.run("python3", "-c", CONNECT)
    assert "ccc_build_info" in machine.run("python3", "-c", SCRAPE)
    machine.run("cccctl", "set", "web", "--weight", "3")
    machine.run("cccctl", "tenant", "add", "batch", "--cgroup", "system.slice", "--group", "uplink")
    machine.run("cccctl", "remove", "batch")
    assert "ccc-ifb9" not in machine.run("ip", "link"), "what was left of a held tap is still there"
    restart(machine)
    assert json.loads(machine.run("cccctl", "--json", "show", "web"))["weight"] == 3, "what was set was not kept"
    assert apparmor.refused(machine) == []
    see_that_it_refuses(machine)


def restart(host: Host) -> None:
    host.run("systemctl", "restart", "ccc-vhost")
    until("the daemon answers", lambda: host.attempt("cccctl", "list").ok, PATIENCE_S, poll_s=2)
    assert apparmor.profile_of_the_daemon(host) == apparmor.ENFORCED


def see_that_it_refuses(host: Host) -> None:
    """A file of root's, until the operator's own file of rules has it; what is typed is not confined."""
    host.run("sh", "-c", f"printf '[vm.other]\\nsocket = \"/run/ccc/vm/other.sock\"\\n' >{OTHER}")
    check = ("ccc-vhost", "--config", OTHER, "--check")
    confined = ("systemd-run", "--quiet", "--wait", "--pipe", f"--property=AppArmorProfile={apparmor.PROFILE}")
    host.run(*check)
    denied = host.attempt(*confined, *check)
    assert not denied.ok and "Permission denied" in denied.text, denied.text
    assert any(OTHER in line for line in apparmor.refused(host)), "the kernel's log does not tell"
    host.run("sh", "-c", f"echo '{OTHER} r,' >/etc/apparmor.d/local/{apparmor.PROFILE}")
    host.run("apparmor_parser", "--replace", f"/etc/apparmor.d/{apparmor.PROFILE}")
    allowed = host.attempt(*confined, *check)
    assert allowed.ok, f"local rules are not read: {allowed.text}"
