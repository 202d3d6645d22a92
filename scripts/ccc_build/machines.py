# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A machine as an operator's Ansible finds it: Debian with systemd, sshd and Python, nothing of ours.

`disk.img` with `vmlinuz` and `initrd` for a virtual machine, `root.tar` for a container;
`packages.img` is its mirror, and `key` logs in as root.
"""

import os
import shutil
import tempfile
from pathlib import Path

from ccc_build import kernels
from ccc_build.artefact import Artefact, digest
from ccc_build.debian import Suite, apt_get, require
from ccc_build.process import output, run, say

PACKAGES = (
    "apt", "ca-certificates", "dbus", "init", "initramfs-tools", "iproute2", "iputils-ping", "kmod",
    "linux-image-cloud-amd64", "openssh-server", "python3", "python3-apt", "systemd", "udev", "zstd",
)  # fmt: skip
# What the roles install, with all that it depends on.
OFFERED = (
    "apparmor", "dkms", "iperf3", "libvirt-clients", "libvirt-daemon-driver-qemu", "libvirt-daemon-system",
    "linux-headers-cloud-amd64", "nftables", "ipxe-qemu", "qemu-system-data", "seabios",
    "libfdt1", "libpixman-1-0", "libslirp0",
)  # fmt: skip
_FILES = {
    "etc/fstab": "LABEL=root / ext4 defaults 0 1\nLABEL=packages /packages ext4 ro,nofail 0 0\n",
    "etc/apt/sources.list": "deb [trusted=yes] file:/packages ./\n",
    # An address of the kernel's command line goes before it.
    "etc/systemd/network/99-dhcp.network": "[Match]\nName=eth0\n[Network]\nDHCP=yes\n",
    "etc/ssh/sshd_config.d/test.conf": "PermitRootLogin prohibit-password\nUseDNS no\n",
    "etc/hostname": "fresh\n",
    "etc/hosts": "127.0.0.1 localhost fresh\n",
}
_SERVICES = ("systemd-networkd", "systemd-network-generator", "ssh")
_DISK = "3G"


def _fill(root: Path, key: str) -> None:
    """What makes an unpacked Debian one that is logged in to."""
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for other in (root / "etc/apt/sources.list.d").iterdir():
        other.unlink()
    (root / "packages").mkdir()
    keys = root / "root/.ssh/authorized_keys"
    keys.parent.mkdir(mode=0o700, exist_ok=True)
    keys.write_text(key)
    keys.chmod(0o600)
    output("systemctl", f"--root={root}", "enable", *_SERVICES)
    (root / "etc/machine-id").write_text("")
    # Nobody has asked apt's sources.
    os.utime(root / "var/lib/apt/lists", (0, 0))


def _offer(suite: Suite, root: Path, packages: Path) -> None:
    """Downloads what the roles install on such a machine, as a mirror that is a directory."""
    packages.mkdir()
    (packages / "partial").mkdir()
    suite.versions("apt")
    own = (f"Dir::State::status={root}/var/lib/dpkg/status", f"Dir::Cache::Archives={packages}")
    words = [word for option in own for word in ("-o", option)]
    apt_get(*suite.options(), *words, "--download-only", "--no-install-recommends", "-y", "install", *OFFERED)
    for name in ("partial", "lock"):
        path = packages / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (packages / "Packages").write_text(output("dpkg-scanpackages", "-m", ".", cwd=packages))


def _disk(directory: Path, image: Path, label: str, size: str) -> None:
    """A file system with what a directory holds."""
    options = ("-q", "-F", "-t", "ext4", "-L", label, "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1")
    output("mke2fs", *options, "-d", directory, image, size)


def machine(release: str) -> Artefact:
    """A machine of that Debian release: the directory with its files."""
    suite = Suite(release)

    def build(directory: Path) -> None:
        require("mmdebstrap", "e2fsprogs", "dpkg-dev", "openssh-client")
        say(f"{directory.name}: installing {' '.join(PACKAGES)}")
        log = directory / "log"
        run(
            "mmdebstrap", "--quiet", "--mode=root", "--variant=important", f"--include={','.join(PACKAGES)}",
            "--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*",
            "--format=tar", suite.name, directory / "bare.tar", suite.sources_list, log=log,
        )  # fmt: skip
        output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", directory / "key")
        with tempfile.TemporaryDirectory(dir=directory) as name:
            root, packages = Path(name) / "root", Path(name) / "packages"
            root.mkdir()
            output("tar", "-C", root, "-xf", directory / "bare.tar")
            (directory / "bare.tar").unlink()
            _fill(root, (directory / "key.pub").read_text())
            say(f"{directory.name}: downloading what the roles install")
            _offer(suite, root, packages)
            for kind, product in (("vmlinuz", "vmlinuz"), ("initrd.img", "initrd")):
                shutil.copy(next((root / "boot").glob(f"{kind}-*")), directory / product)
            output("tar", "-C", root, "-cf", directory / "root.tar", "--exclude=./boot/*", ".")
            _disk(root, directory / "disk.img", "root", _DISK)
            shutil.copytree(packages, directory / "packages")
            _disk(packages, directory / "packages.img", "packages", "1G")

    versions = suite.versions(*PACKAGES, *OFFERED)
    key = digest(*(f"{name} {version}\n" for name, version in sorted(versions.items())), Path(__file__))
    return Artefact(kernels.packages() / f"machine-{release}-{key}", build)


def bookworm() -> Artefact:
    """A Debian 12 machine that Ansible is let loose on."""
    return machine("bookworm")


def trixie() -> Artefact:
    """A Debian 13 machine, likewise."""
    return machine("trixie")
