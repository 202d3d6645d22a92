# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A kernel of FreeBSD as QEMU's -kernel takes it: a multiboot image that has, around
the kernel, all that FreeBSD's own loader would have put into memory: its environment,
the map of memory, and a file system as the root."""

import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BASE = 0x100000
PARAMETERS, ENTRY = 0x40, 0x50
PAGE = 4096
# sys/linker.h and machine/metadata.h
END, NAME, TYPE, ADDRESS, SIZE = 0, 1, 2, 3, 4
METADATA = 0x8000
ENVIRONMENT, HOWTO, KERNEL_END, MEMORY_MAP, MODULES = 0x6, 0x7, 0x8, 0x1001, 0x1006
VERBOSE_SERIAL = 0x1000  # RB_SERIAL
PRESENT_WRITABLE, LARGE = 0x3, 0x80


def up(value: int, to: int = PAGE) -> int:
    return -(-value // to) * to


def segments(kernel: bytes) -> tuple[int, list[tuple[int, bytes, int]]]:
    """The entry of an ELF file, and of what it loads the physical address, content and size."""
    if kernel[:5] != b"\x7fELF\x02":
        raise ValueError(f"invalid kernel: expected a 64-bit ELF file, got one that begins with {kernel[:5]!r}")
    entry, table = struct.unpack_from("<QQ", kernel, 24)
    size, count = struct.unpack_from("<HH", kernel, 54)
    loaded = []
    for number in range(count):
        header = struct.unpack_from("<IIQQQQQQ", kernel, table + number * size)
        kind, _, offset, _, physical, in_file, in_memory, _ = header
        if kind == 1:
            loaded.append((physical, kernel[offset : offset + in_file], in_memory))
    return entry, loaded


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content.ljust(up(len(content), 8), b"\0")


def module(name: str, kind: str, address: int, size: int, metadata: bytes = b"") -> bytes:
    return (
        record(NAME, name.encode() + b"\0")
        + record(TYPE, kind.encode() + b"\0")
        + record(ADDRESS, struct.pack("<Q", address))
        + record(SIZE, struct.pack("<Q", size))
        + metadata
    )


def page_tables() -> bytes:
    """Every gigabyte of the address space is the first of memory."""
    at = BASE + PAGE
    top = struct.pack("<Q", at + PAGE | PRESENT_WRITABLE) * 512
    middle = struct.pack("<Q", at + 2 * PAGE | PRESENT_WRITABLE) * 512
    bottom = b"".join(struct.pack("<Q", number << 21 | PRESENT_WRITABLE | LARGE) for number in range(512))
    return top + middle + bottom


def memory_map(memory: int) -> bytes:
    """Of a machine with so many bytes; what its firmware keeps for itself is at the end."""
    areas = [(0, 0x9F000), (BASE, memory - BASE - 0x100000)]
    return b"".join(struct.pack("<QQI", start, size, 1) for start, size in areas)


def stub(directory: Path) -> bytearray:
    made = directory / "stub.o"
    subprocess.run(["gcc", "-c", "-o", made, HERE / "stub.S"], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", made, directory / "stub.bin"], check=True)
    return bytearray((directory / "stub.bin").read_bytes())


def build(kernel: Path, root: Path, environment: dict[str, str], memory: int, directory: Path) -> Path:
    """The image of a kernel with a file system as its root, for a machine of so many bytes."""
    entry, loaded = segments(kernel.read_bytes())
    image = stub(directory)

    def put(address: int, content: bytes) -> None:
        end = address - BASE + len(content)
        image.extend(bytes(max(end - len(image), 0)))
        image[address - BASE : end] = content

    put(BASE + PAGE, page_tables())
    for physical, content, _ in loaded:
        put(physical, content)
    first = min(physical for physical, _, _ in loaded)
    last = max(physical + size for physical, _, size in loaded)
    disk = root.read_bytes()
    at = up(last)
    put(at, disk)
    modules = up(at + len(disk))
    variables = modules + PAGE
    text = b"".join(f"{name}={value}\0".encode() for name, value in environment.items()) + b"\0"
    end = up(variables + len(text))
    metadata = (
        record(METADATA | HOWTO, struct.pack("<I", VERBOSE_SERIAL))
        + record(METADATA | ENVIRONMENT, struct.pack("<Q", variables))
        + record(METADATA | KERNEL_END, struct.pack("<Q", end))
        + record(METADATA | MODULES, struct.pack("<Q", modules))
        + record(METADATA | MEMORY_MAP, memory_map(memory))
    )
    put(
        modules,
        module("/boot/kernel/kernel", "elf kernel", first, last - first, metadata)
        + module("/root.iso", "mfs_root", at, len(disk))
        + record(END, b""),
    )
    put(variables, text)
    put(end - 1, b"\0")
    struct.pack_into("<II", image, PARAMETERS + 4, modules, end)
    struct.pack_into("<Q", image, ENTRY, entry)
    path = directory / "freebsd.img"
    path.write_bytes(image)
    return path
