# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What a host has of its owner before the collection comes: libvirt, a QEMU, domains; and what it has at all."""

import shutil
from pathlib import Path

from bed import FreshHost
from testbed import artefacts
from testbed.host import HERE

EMULATOR = "/usr/local/bin/qemu-system-x86_64"
LIBVIRT = ("libvirt-daemon-system", "libvirt-daemon-driver-qemu", "libvirt-clients")
# In namespaces of another machine there are no cgroups, devices and security modules for domains.
CONFIGURATION = """user = "root"
group = "root"
security_driver = "none"
dynamic_ownership = 0
cgroup_controllers = []
namespaces = []
"""
DOMAIN = f"""<domain type='qemu'>
  <name>NAME</name>
  <memory unit='MiB'>256</memory>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>/machine/vmlinuz</kernel>
    <initrd>/machine/initrd</initrd>
    <cmdline>console=ttyS0 break=top</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <devices>
    <emulator>{EMULATOR}</emulator>
    <controller type='usb' model='none'/>
    <serial type='file'><source path='/disks/NAME.console'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""
# What it has: files with what is in them, directories, accounts, and what is started at boot.  Left out is
# what programs keep for themselves.
STATE = r"""
find /etc /lib/systemd /opt /root /run/systemd/system /srv /usr /var/lib -xdev ! -name '*.pyc' \( \
  -path /etc/ld.so.cache -o -path /etc/group -o -path /etc/gshadow -o -name '*-' -path '/etc/*' \
  -o -path /etc/libvirt/qemu -o -path /root/.ansible -o -name __pycache__ -o -path /usr/share/mime \
  -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/libvirt -o -path /var/lib/systemd \) -prune -o \
  \( -type f -exec sha256sum {} + -o -type l -printf '%p -> %l\n' -o -type d -printf '%p/\n' \)
getent passwd
getent group
systemctl list-unit-files --state=enabled --no-legend
systemctl list-units --failed --plain --no-legend | cut -d' ' -f1
"""


def have_domain(host: FreshHost, packages: Path, *names: str) -> None:
    """Libvirt with domains that do not run, and what our packages need of Debian."""
    assert host.host
    run = host.host.run
    needs = [HERE.run("dpkg-deb", "--field", file, "Depends").strip() for file in packages.glob("*_amd64.deb")]
    (host.root / "etc/libvirt").mkdir(exist_ok=True)
    (host.root / "etc/libvirt/qemu.conf").write_text(CONFIGURATION)
    run("apt-get", "-qq", "update")
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends")
    run(*quiet, "-o", "Dpkg::Options::=--force-confold", "install", *LIBVIRT)
    run(*quiet, "satisfy", ", ".join(needs))
    shutil.copy(artefacts.build("qemu"), host.root / EMULATOR.lstrip("/"))
    for name in names:
        run("virsh", "-q", "define", "/dev/stdin", stdin=DOMAIN.replace("NAME", name))


def state(host: FreshHost) -> set[str]:
    assert host.host
    return set(host.host.run("sh", "-c", STATE).splitlines())
