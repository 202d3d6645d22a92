# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Kernels: those that are built from Debian's sources, and Debian's own."""

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ccc_build.artefact import PROJECT, Artefact, cache, digest
from ccc_build.debian import Suite, require
from ccc_build.process import Failed, compiler, output, run, say

COMPILING = ("gcc", "make", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "kmod", "xz-utils")
# Two builds of the same are the same to the byte.
REPRODUCIBLE = ("KBUILD_BUILD_TIMESTAMP=@0", "KBUILD_BUILD_USER=ccc", "KBUILD_BUILD_HOST=lab")
EXPORTED_BY_MACROS = (
    "__x86_return_thunk", "param_ops_uint", "_dev_err", "_dev_info", "_dev_warn", "__SCT__cond_resched",
    "__SCT__might_resched", "__SCT__preempt_schedule", "__SCT__preempt_schedule_notrace",
)  # fmt: skip
BACKPORTS = Suite("trixie-backports")
BOOKWORM = Suite("bookworm")


def packages() -> Path:
    """The kernels' packages of other releases, unpacked."""
    return cache() / "guest"


def find_source(suite: Suite, package: str) -> tuple[str, str]:
    """Name and version of a kernel source package, or of the newest where it has gone."""
    for name in (package, suite.real_package("linux-source", "linux-source-")):
        if version := suite.newest(name):
            return name, version
    raise Failed(f"neither {package} nor linux-source is in {suite.name}")


def unpack_source(suite: Suite, package: str, version: str, tree: Path, exclude: Iterable[str] = ()) -> None:
    """Unpacks a kernel source package as `tree`."""
    say(f"kernel: fetching {package} {version}")
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent) as unpacked:
        suite.unpack(Path(unpacked), f"{package}={version}")
        (archive,) = Path(unpacked).glob("usr/src/linux-source-*.tar.xz")
        tree.mkdir()
        patterns = (f"--exclude={pattern}" for pattern in exclude)
        output("tar", "-C", tree, "--strip-components=1", *patterns, "-xf", archive)


def require_options(wanted: Iterable[str], config: Path) -> None:
    """Raises Failed for an option that Kconfig did not take."""
    lines = set(config.read_text().splitlines())
    if missing := [option for option in wanted if option not in lines]:
        raise Failed(f"{', '.join(missing)} could not be set in {config}")


def laboratory() -> Artefact:
    """The laboratory's kernel (UML with time travel): `linux`, and the tree `source`."""
    require(*COMPILING)
    # The newest long-lived source package known to be right in virtual time;
    # older kernels die at start on processors with a large floating-point state.
    package, version = find_source(BACKPORTS, "linux-source-7.2")
    config = PROJECT / "experiments" / "kernel" / "config"
    # To be raised when the steps below change what they build.
    recipe = 1

    def build(directory: Path) -> None:
        tree, unpacked = directory / "source", directory / "unpacked"
        if not unpacked.exists():
            unpack_source(BACKPORTS, package, version, tree)
            unpacked.touch()
        log = directory / "log"
        run("make", "-s", "ARCH=um", "defconfig", cwd=tree, log=log)
        run("scripts/kconfig/merge_config.sh", "-m", ".config", config, cwd=tree, log=log)
        run("make", "-s", "ARCH=um", "olddefconfig", cwd=tree, log=log)
        needed = ("UML_TIME_TRAVEL_SUPPORT", "VIRTIO_UML", "VIRTIO_NET", "NET_SCH_NETEM", "MODULES", "HOSTFS")
        require_options((f"CONFIG_{option}=y" for option in needed), tree / ".config")
        say("kernel: compiling (about 4 minutes on 2 cores, 2,000 steps)")
        jobs = f"-j{os.cpu_count()}"
        run("make", "ARCH=um", jobs, *REPRODUCIBLE, "linux", "modules", cwd=tree, log=log, progress="kernel")
        shutil.copy(tree / "linux", directory)
        (directory / "release").write_text(output("make", "-s", "ARCH=um", "kernelrelease", cwd=tree))

    key = digest(f"{package}={version} {recipe}\n", config, compiler(), digits=16)
    return Artefact(cache() / f"kernel-{key}", build, resumes=True)


def sanitized() -> Artefact:
    """An x86 kernel with KASAN, lockdep and other checks: `bzImage`, and the tree `build`."""
    return _checking("sanitized", "config-checks")


def racing() -> Artefact:
    """The same with KCSAN, which excludes KASAN."""
    return _checking("racing", "config-races")


def _checking(name: str, checks: str) -> Artefact:
    """The kernel of the sanitized guest with these checks."""
    require(*COMPILING)
    package, version = find_source(BACKPORTS, "linux-source-7.2")
    configs = [PROJECT / "guest" / "tests" / "sanitized" / part for part in ("config", checks)]
    wanted = [line for config in configs for line in config.read_text().splitlines() if not line.startswith("#")]
    # Of drivers, what Kconfig reads and little more.
    source = source_tree(
        package, version, "-whole",
        ("*/drivers/gpu/*.[ch]", "*/sound/*.[ch]", "*/drivers/net/ethernet/*.[ch]",
         "*/drivers/net/wireless/*.[ch]", "*/drivers/media/*.[ch]", "*/Documentation/*.rst"),
    )  # fmt: skip

    def build(directory: Path) -> None:
        fragment, built, log = directory / "fragment", directory / "build", directory / "log"
        make = ("make", "-C", source.get() / "tree", f"O={built}", "ARCH=x86_64")
        built.mkdir(exist_ok=True)
        fragment.write_text("".join(f"{line}\n" for line in wanted))
        run(*make, "-s", f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig", log=log)
        require_options((line for line in wanted if line.endswith("=y")), built / ".config")
        say(f"{name} kernel: compiling {package} {version} (5 to 15 minutes on 2 cores, 1,900 steps)")
        run(*make, f"-j{os.cpu_count()}", *REPRODUCIBLE, "bzImage", "modules", log=log, progress=f"{name} kernel")
        shutil.copy(built / "arch/x86/boot/bzImage", directory)
        (directory / "release").write_text(output(*make, "-s", "kernelrelease"))

    key = digest(f"{package} {version}\n", *(f"{line}\n" for line in wanted), compiler())
    return Artefact(packages() / f"{name}-{key}", build, resumes=True)


def source_tree(package: str, version: str, suffix: str, exclude: Iterable[str]) -> Artefact:
    """The source of a kernel of trixie-backports: `tree`."""

    def build(directory: Path) -> None:
        unpack_source(BACKPORTS, package, version, directory / "tree", exclude)

    return Artefact(packages() / f"{package}-{version}{suffix}", build)


def prepared(suite: Suite, package: str) -> Artefact:
    """A kernel's source, configured for x86 and prepared for modules: its tree."""
    require(*COMPILING)
    package = suite.real_package(package, "linux-source-")
    version = suite.newest(package)
    if not version:
        raise Failed(f"{package} is not in {suite.name}")
    options = {
        "-e": ("VIRTIO_MENU", "VIRTIO_PCI", "DEBUG_FS", "KUNIT", "UNWINDER_FRAME_POINTER", "MODULES"),
        "-d": ("UNWINDER_ORC", "DEBUG_INFO_BTF", "MITIGATION_RETPOLINE", "RETPOLINE", "OBJTOOL"),
    }
    # Of drivers, only what the configuration needs.
    exclude = ("*/drivers/gpu/*.[ch]", "*/drivers/net/*.[ch]", "*/sound/*.[ch]", "*/tools/testing/*")

    def build(directory: Path) -> None:
        tree, log = directory / "tree", directory / "log"
        unpack_source(suite, package, version, tree, exclude)
        say(f"kernel: preparing {package} {version}")
        make = ("make", "-s", "-C", tree, "ARCH=x86")
        run(*make, "x86_64_defconfig", log=log)
        words = [word for flag, names in options.items() for name in names for word in (flag, name)]
        run("scripts/config", *words, cwd=tree, log=log)
        run(*make, "olddefconfig", log=log)
        run(*make, f"-j{os.cpu_count()}", "modules_prepare", log=log)
        (tree / "Module.symvers").write_text(exported_symbols(tree))

    return Artefact(packages() / f"{package}-{version}-prepared", build, product="tree")


def exported_symbols(tree: Path) -> str:
    """What a build of the kernel would have written to Module.symvers, from its
    source: modpost then finds what is not exported."""
    exported = r"EXPORT_(PER_CPU_)?SYMBOL(_GPL)?\([a-zA-Z0-9_]+\)"
    places = ("arch/x86", "drivers/base", "drivers/virtio", "fs", "kernel", "lib", "mm", "net", "security")
    found = output("grep", "-rhoE", "--include=*.[chS]", exported, *places, cwd=tree)
    names = {line.rstrip(")").rsplit("(", 1)[1] for line in found.split()} | set(EXPORTED_BY_MACROS)
    return "".join(f"0x00000000\t{name}\tvmlinux\tEXPORT_SYMBOL\t\n" for name in sorted(names))


def release(tree: Path) -> str:
    """The release of a kernel whose tree this is."""
    return (tree / "include/config/kernel.release").read_text().strip()


def headers(flavour: str) -> Artefact:
    """The headers of Debian 12's kernel, usable where they are: its build tree."""
    package = BOOKWORM.real_package(f"linux-headers-{flavour}", "linux-headers-")
    version = BOOKWORM.newest(package)
    if not version:
        raise Failed(f"{package} is not in {BOOKWORM.name}")
    common = package.removesuffix(flavour) + "common"

    def build(directory: Path) -> None:
        say(f"kernel: fetching {package} {version}")
        BOOKWORM.unpack(directory, package, common, "linux-kbuild-6.1")
        # They name each other by where they would be installed.
        makefile = directory / "usr/src" / package / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src", f"{directory}/usr/src"))

    return Artefact(packages() / f"{package}-{version}", build, product=f"usr/src/{package}")


def cloud_release() -> str:
    """The release of Debian 12's cloud kernel."""
    return BOOKWORM.real_package("linux-headers-cloud-amd64", "linux-headers-").removeprefix("linux-headers-")


def cloud() -> Artefact:
    """Debian 12's cloud kernel, unpacked: `boot` and `lib/modules`."""
    package = f"linux-image-{cloud_release()}"
    version = BOOKWORM.newest(package)

    def build(directory: Path) -> None:
        say(f"kernel: fetching {package} {version}")
        BOOKWORM.unpack(directory, package)

    return Artefact(packages() / f"{package}-{version}", build)


def newest_cloud() -> Artefact:
    """The newest cloud kernel that Debian offers, of its backports: its directory in `lib/modules`."""
    image = BACKPORTS.real_package("linux-image-cloud-amd64", "linux-image-")
    version = BACKPORTS.newest(image)
    release = image.removeprefix("linux-image-")

    def build(directory: Path) -> None:
        say(f"kernel: fetching {image} {version}")
        BACKPORTS.unpack(directory, f"linux-binary-{release}", f"linux-modules-{release}")

    return Artefact(packages() / f"{image}-{version}", build, product=f"usr/lib/modules/{release}")
