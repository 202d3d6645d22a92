# SPDX-License-Identifier: GPL-2.0
"""The guest that measures what the host's traffic control costs."""

import shutil
import tempfile
from pathlib import Path

from ccc_build import kernels
from ccc_build.artefact import PROJECT, Artefact, digest
from ccc_build.initrd import BEGIN, Root, needed_modules, pack
from ccc_build.process import output

SOURCE = PROJECT / "guest" / "tests" / "shaper"
MODULES = (
    "veth", "bridge", "tun", "ifb", "sch_htb", "sch_fq_codel", "sch_ingress", "act_mirred", "cls_u32",
)  # fmt: skip
FLAGS = ("-Wall", "-Wextra", "-Werror", "-O2", "-static")


def guest() -> Artefact:
    """The guest of `make bench-enforce`, of Debian 12's cloud kernel: `vmlinuz` and `initrd`."""
    kernel, release = kernels.cloud(), kernels.cloud_release()

    def build(directory: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            root = Root(Path(name) / "root", SOURCE / "guest-init.sh", ("ip", "tc"))
            _add_modules(root, kernel.get(), Path(name) / "kernel", release)
            output("gcc", *FLAGS, "-o", root.path / "packets", SOURCE / "packets.c")
            shutil.copy(kernel.get() / "boot" / f"vmlinuz-{release}", directory / "vmlinuz")
            pack(root.path, directory / "initrd")

    inputs = (SOURCE / "guest-init.sh", SOURCE / "packets.c", BEGIN, Path(__file__))
    return Artefact(kernels.packages() / f"shaper-guest-{digest(kernel.path.name, *inputs)}", build)


def _add_modules(root: Root, kernel: Path, work: Path, release: str) -> None:
    """Those of the kernel that are wanted, with a list that modprobe reads."""
    base = Path("lib/modules", release)
    shutil.copytree(kernel / base, work / base)
    output("depmod", "-b", work, release)
    for module in needed_modules(work, release, MODULES):
        root.add(module, str(module.relative_to(work)))
    (root.path / base / "modules.order").touch()
    for listed in (kernel / base).glob("modules.builtin*"):
        root.add(listed, str(base / listed.name))
    output("depmod", "-b", root.path, release)
