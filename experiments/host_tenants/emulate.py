# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The machine code that the kernel has made of a BPF program, run instruction by instruction in an
emulated processor: what it executes can be counted where no counter of the hardware is to be had.

The kernel's functions that it calls are not counted, nor run: what they do may be given in Python.
"""

import ctypes
import os
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from unicorn import UC_ARCH_X86, UC_HOOK_CODE, UC_HOOK_MEM_UNMAPPED, UC_MODE_64, UC_TLB_VIRTUAL, Uc
from unicorn.x86_const import UC_X86_REG_RAX, UC_X86_REG_RDI, UC_X86_REG_RDX, UC_X86_REG_RIP, UC_X86_REG_RSP

_BPF = 321
_PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 13, 15
# struct bpf_prog_info, as far as it is used.
_INFO = struct.Struct("<II8sIIQQQIIQ16sIIQQIIQQ")
_PAGE = 4096
_STACK, _END = 0x7000_0000, 0x7FFF_0000


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"))
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(_BPF, command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), "bpf()")
    return result


def machine_code(number: int) -> dict[int, bytes]:
    """The functions of the program with this number, by where they are."""
    fd = _bpf(_PROG_GET_FD_BY_ID, struct.pack("<I", number))
    code, starts = ctypes.create_string_buffer(1 << 20), (ctypes.c_uint64 * 64)()
    lengths = (ctypes.c_uint32 * 64)()
    fields: list[Any] = [0] * 20
    fields[2] = fields[11] = b""
    fields[3], fields[5] = len(code), ctypes.addressof(code)
    fields[16], fields[17] = len(starts), len(lengths)
    fields[18], fields[19] = ctypes.addressof(starts), ctypes.addressof(lengths)
    info = ctypes.create_string_buffer(_INFO.pack(*fields))
    _bpf(_OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", fd, _INFO.size, ctypes.addressof(info)))
    os.close(fd)
    functions, begin = {}, 0
    for part in range(_INFO.unpack(info.raw[: _INFO.size])[17]):
        functions[starts[part]] = code.raw[begin : begin + lengths[part]]
        begin += lengths[part]
    return functions


@cache
def _symbols() -> list[tuple[int, str]]:
    """The kernel's, with their addresses."""
    lines = (line.split()[:3] for line in Path("/proc/kallsyms").read_text().splitlines())
    return [(int(address, 16), name) for address, _, name in lines]


def _return_thunks() -> set[int]:
    """Where kernels go to return."""
    return {address for address, name in _symbols() if name.endswith("_return_thunk")}


class Processor:
    """Memory that is empty until it is written, and programs in it."""

    def __init__(self) -> None:
        self._uc = Uc(UC_ARCH_X86, UC_MODE_64)
        # Else addresses would be cut as without page tables.
        self._uc.ctl_set_tlb_mode(UC_TLB_VIRTUAL)
        self._mapped: set[int] = set()
        self._code: dict[int, int] = {}
        self._returns = _return_thunks()
        self._functions: dict[int, Callable[[int], object]] = {}
        self.executed = 0
        self._uc.hook_add(UC_HOOK_MEM_UNMAPPED, self._unmapped)
        self._uc.hook_add(UC_HOOK_CODE, self._step)
        self._map(_STACK - 64 * _PAGE, 65 * _PAGE)
        self._map(_END, _PAGE)

    def load(self, number: int) -> int:
        """Puts a program where it is in the kernel; the address of its first function."""
        functions = machine_code(number)
        for start, code in functions.items():
            self.write(start, code)
            self._code[start] = start + len(code)
        return next(iter(functions))

    def give(self, name: str, does: Callable[[int], object]) -> None:
        """What the kernel's function of this name does, with its third argument."""
        self._functions[next(at for at, symbol in _symbols() if symbol == name)] = does

    def run(self, start: int, *arguments: int) -> int:
        """Instructions that it executes with these words as its context."""
        context = _STACK - 1024
        self.write(context, struct.pack(f"<{len(arguments)}Q", *arguments))
        self.write(context - 8, struct.pack("<Q", _END))
        self._uc.reg_write(UC_X86_REG_RSP, context - 8)
        self._uc.reg_write(UC_X86_REG_RDI, context)
        self.executed = 0
        self._uc.emu_start(start, _END)
        return self.executed

    def write(self, address: int, data: bytes) -> None:
        self._map(address, len(data))
        self._uc.mem_write(address, data)

    def read(self, address: int, length: int) -> bytes:
        self._map(address, length)
        return bytes(self._uc.mem_read(address, length))

    def _map(self, address: int, length: int) -> None:
        for page in range(address // _PAGE, (address + length - 1) // _PAGE + 1):
            if page not in self._mapped:
                self._uc.mem_map(page * _PAGE, _PAGE)
                self._mapped.add(page)

    def _unmapped(self, _uc: Uc, _access: int, address: int, size: int, _value: int, _data: object) -> bool:
        self._map(address & (1 << 64) - 1, size)
        return True

    def _step(self, uc: Uc, address: int, _size: int, _data: object) -> None:
        address &= (1 << 64) - 1
        if any(start <= address < end for start, end in self._code.items()):
            self.executed += 1
            return
        if address == _END:
            uc.emu_stop()
            return
        stack = uc.reg_read(UC_X86_REG_RSP)
        if address not in self._returns:
            # A function of the kernel: it returns 0.
            uc.reg_write(UC_X86_REG_RAX, 0)
            if does := self._functions.get(address):
                does(uc.reg_read(UC_X86_REG_RDX) & 0xFFFFFFFF)
        uc.reg_write(UC_X86_REG_RSP, stack + 8)
        uc.reg_write(UC_X86_REG_RIP, int.from_bytes(uc.mem_read(stack, 8), "little"))
