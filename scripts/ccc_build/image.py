# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The guest of the real-time experiments and libvirt's tests.

Debian 12 with its own 6.1 kernel, our module by DKMS, iperf3, sshd and the QEMU
guest agent. Any number of domains share its root. The same packages and sources
give the same bytes.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from ccc_build import kernels, module
from ccc_build.artefact import PROJECT, Artefact, digest
from ccc_build.debian import require
from ccc_build.initrd import needed_modules, pack
from ccc_build.process import Failed, output, run, say

GUEST = PROJECT / "experiments" / "testbed" / "guest"
MODULE = PROJECT / "guest" / "linux-ccc"
PACKAGES = (
    "busybox-static", "ethtool", "iperf3", "iproute2", "kmod", "mount", "openssh-server", "procps", "qemu-guest-agent",
)  # fmt: skip
# What guests, read-only and without a manual, have no use for.
EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/var/cache/apt/*")
EPOCH = "1672531200"
# Where files of GUEST go in the root.
INSTALLED = {
    "rc": "etc/rc",
    "inittab": "etc/inittab",
    "sshd_config": "etc/ssh/sshd_config",
    "agent": "usr/sbin/agent",
    "serve-ssh": "usr/sbin/serve-ssh",
    "sample-queue": "usr/bin/sample-queue",
}


def _versions(packages: tuple[str, ...]) -> str:
    """A line with the version of each package."""
    versions = kernels.BOOKWORM.versions(*packages)
    return "".join(f"{package} {version}\n" for package, version in versions.items())


def debian(packages: tuple[str, ...]) -> Artefact:
    """A Debian 12 with these packages: `root.tar`. They change more seldom than the rest."""
    excluded = [f"--dpkgopt=path-exclude={what}" for what in EXCLUDED]

    def build(directory: Path) -> None:
        say(f"image: installing {' '.join(packages)}")
        os.environ["SOURCE_DATE_EPOCH"] = EPOCH
        run(
            "mmdebstrap", "--quiet", "--mode=root", "--variant=essential", *excluded,
            f"--include={','.join(packages)}", "--format=tar",
            "bookworm", directory / "root.tar", kernels.BOOKWORM.sources_list,
            log=directory / "log",
        )  # fmt: skip

    key = digest(_versions(packages), *excluded)
    return Artefact(kernels.packages() / f"debian-{key}", build, product="root.tar")


def _unpack(packages: tuple[str, ...], root: Path) -> None:
    root.mkdir()
    output("tar", "-C", root, "-xf", debian(packages).get())


def _build_module(tools: tuple[str, ...], release: str, tree: Path, status: Path) -> Path:
    """Has DKMS build and install the module for the guests' kernel, in a tree with
    the compiler and headers that guests have no use for."""
    _unpack(tools, tree)
    output("make", "-s", "-C", MODULE, "dkms-tree", f"DESTDIR={tree}")
    version = re.search(r'^PACKAGE_VERSION="(.*)"', (MODULE / "dkms.conf").read_text(), re.M)
    assert version
    name = f"ccc/{version[1]}"
    inside = ("unshare", "--mount", "--pid", "--fork", f"--mount-proc={tree}/proc", "chroot", tree, "dkms")
    for step in ("add", "build", "install"):
        try:
            run(*inside, step, name, "-k", release, log=tree / "log")
        except Failed as failed:
            made = tree / "var/lib/dkms" / name / "build/make.log"
            said = made.read_text() if made.exists() else ""
            raise Failed(f"dkms {step}: {failed}\n{said}") from None
    said = output(*inside, "status", name)
    if not re.search(rf"{re.escape(release)}.*: installed$", said, re.M):
        raise Failed(f"DKMS has not installed the module: {said.strip()}")
    status.write_text(said)
    return tree / "lib/modules" / release / "updates/dkms/ccc.ko"


def _make_root(root: Path, kernel: Path, release: str, ours: Path) -> None:
    """The root directory: packages, the kernel's modules, ours among them, and what starts it."""
    _unpack(PACKAGES, root)
    base = Path("lib/modules", release)
    shutil.copytree(kernel / base, root / base)
    (root / base / "updates/dkms").mkdir(parents=True)
    shutil.copy(ours, root / base / "updates/dkms")
    output("depmod", "-b", root, release)
    for name, path in INSTALLED.items():
        shutil.copyfile(GUEST / name, root / path)
        (root / path).chmod(0o644 if name in ("inittab", "sshd_config") else 0o755)
    # Every guest has its own.
    for key in root.glob("etc/ssh/ssh_host_*"):
        key.unlink()
    (root / "sbin/init").unlink(missing_ok=True)
    (root / "sbin/init").symlink_to("/bin/busybox")
    for name in ("var/lib/apt/lists", "var/log"):
        shutil.rmtree(root / name)
        (root / name).mkdir()
    shutil.rmtree(root / "boot")
    (root / "etc/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").touch()


def _make_initrd(root: Path, release: str, work: Path, initrd: Path) -> None:
    """A busybox that mounts the root and goes there."""
    for name in ("bin", "proc", "sys", "dev", "root", "modules"):
        (work / name).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", work / "bin")
    (work / "bin/sh").symlink_to("busybox")
    order = work / "modules/order"
    modules = needed_modules(root, release, ("virtio_pci", "virtio_blk", "squashfs"))
    for path in modules:
        shutil.copy(path, work / "modules")
    order.write_text("".join(f"/modules/{path.name}\n" for path in modules))
    shutil.copy(GUEST / "initrd-init", work / "init")
    (work / "init").chmod(0o755)
    pack(work, initrd, level=6)


def image() -> Artefact:
    """The guest of the experiments on libvirt's domains: `vmlinuz`, `initrd` and `root.squashfs`."""
    require("mmdebstrap", "squashfs-tools", "cpio")
    kernel, release = kernels.cloud(), kernels.cloud_release()
    tools = ("dkms", "gcc", "make", f"linux-headers-{release}")

    def build(directory: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            say(f"image: building the module for {release}")
            ours = _build_module(tools, release, work / "dkms", directory / "dkms")
            root = work / "root"
            _make_root(root, kernel.get(), release, ours)
            _make_initrd(root, release, work / "initrd", directory / "initrd")
            # Uncompressed: emulated processors are slow, the host's page cache is not.
            os.environ["SOURCE_DATE_EPOCH"] = EPOCH
            plain = ("-quiet", "-no-progress", "-noI", "-noD", "-noF", "-noX")
            run("mksquashfs", root, directory / "root.squashfs", *plain, log=work / "log")
        shutil.copy(kernel.get() / "boot" / f"vmlinuz-{release}", directory / "vmlinuz")
        (directory / "packages").write_text(f"Linux {release}\n{_versions(PACKAGES)}")

    programs = (Path(__file__).with_name(name) for name in ("image.py", "initrd.py"))
    sources = [*sorted(GUEST.iterdir()), *programs]
    key = digest(_versions(PACKAGES + tools), kernel.path.name, *sources, module.key())
    return Artefact(kernels.packages() / f"image-{key}", build)
