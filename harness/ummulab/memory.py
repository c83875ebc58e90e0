# SPDX-License-Identifier: GPL-2.0-or-later
"""Where decoders and the reference model read from: one protocol, several sources.

A source answers ``read(addr, length)`` for guest-physical addresses and raises :class:`MemoryReadError` for
anything that is not there; it never returns fewer bytes or invented zeros.
"""

from __future__ import annotations

import bisect
import itertools
import mmap
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from ummulab.errors import UserError


class MemoryReadError(Exception):
    """Guest memory that a source does not have; ``addr`` is the first missing byte."""

    def __init__(self, addr: int, length: int, reason: str = "not in this memory") -> None:
        super().__init__(f"{length} bytes at {addr:#x}: {reason}")
        self.addr = addr
        self.length = length
        self.reason = reason


class Memory(Protocol):
    """Anything that can be read by guest-physical address."""

    def read(self, addr: int, length: int) -> bytes:
        """Exactly ``length`` bytes, or MemoryReadError."""
        ...


class MemorySource(Memory, Protocol):
    """Memory together with the register values of the UMMU that uses it."""

    def register(self, name: str) -> int:
        """A register of the frame by name; KeyError if the source does not have it."""
        ...


class Segments:
    """Read-only memory made of byte-like pieces at fixed addresses."""

    def __init__(
        self,
        pieces: Iterable[tuple[int, bytes | memoryview | mmap.mmap]],
        registers: Mapping[str, int] | None = None,
    ) -> None:
        ordered = sorted(((a, p) for a, p in pieces if len(p)), key=lambda x: x[0])
        for (a, p), (b, _) in itertools.pairwise(ordered):
            if a + len(p) > b:
                raise UserError(f"memory pieces overlap at {b:#x}")
        self._starts = [a for a, _ in ordered]
        self._pieces = [p for _, p in ordered]
        self._registers = dict(registers or {})

    def read(self, addr: int, length: int) -> bytes:
        """Bytes of one or several adjoining pieces."""
        out = b""
        while length > 0:
            i = bisect.bisect_right(self._starts, addr) - 1
            offset = addr - self._starts[i] if i >= 0 else -1
            if i < 0 or offset >= len(self._pieces[i]):
                raise MemoryReadError(addr, length)
            part = bytes(self._pieces[i][offset : offset + length])
            out += part
            addr += len(part)
            length -= len(part)
        return out

    def register(self, name: str) -> int:
        """A register value given when the source was made."""
        return self._registers[name]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The pieces as (address, length)."""
        return [(a, len(p)) for a, p in zip(self._starts, self._pieces, strict=True)]


class BytesImage(Segments):
    """One contiguous image of guest memory."""

    def __init__(self, data: bytes, base: int = 0, registers: Mapping[str, int] | None = None) -> None:
        super().__init__([(base, data)], registers)


def ram_file(
    path: Path, layout: Iterable[tuple[int, int, int]], registers: Mapping[str, int] | None = None
) -> Segments:
    """A running VM's RAM file; ``layout`` is (guest address, offset in the file, length) per piece."""
    view = memoryview(_map(path))
    return Segments([(addr, view[off : off + length]) for addr, off, length in layout], registers)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as f:
            return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as err:
        raise UserError(f"cannot read {path}: {err}") from err


_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_PT_LOAD = 1
_PHNUM_MAX = 4096


def elf_core(path: Path, registers: Mapping[str, int] | None = None) -> Segments:
    """A dump made by QMP ``dump-guest-memory`` (ELF, not paged); UserError if it is damaged or not one."""
    data = _map(path)
    if len(data) < _EHDR.size or data[:4] != b"\x7fELF":
        raise UserError(f"{path}: not an ELF core", hint="make it with dump-guest-memory, format elf")
    if data[4] != 2 or data[5] != 1:
        raise UserError(f"{path}: not a 64-bit little-endian ELF core")
    header = _EHDR.unpack_from(data)
    phoff, phentsize, phnum = header[5], header[9], header[10]
    if phentsize != _PHDR.size or phnum > _PHNUM_MAX or phoff + phnum * phentsize > len(data):
        raise UserError(f"{path}: offset {phoff:#x}: damaged program header table")
    view = memoryview(data)
    pieces: list[tuple[int, bytes | memoryview | mmap.mmap]] = []
    for i in range(phnum):
        where = phoff + i * phentsize
        kind, _, offset, _, paddr, filesz, _, _ = _PHDR.unpack_from(data, where)
        if kind != _PT_LOAD or filesz == 0:
            continue
        if offset + filesz > len(data):
            raise UserError(
                f"{path}: offset {where:#x}: segment for {paddr:#x} is cut off: needs {filesz} bytes "
                f"at {offset:#x}, the file has {len(data)}"
            )
        pieces.append((paddr, view[offset : offset + filesz]))
    if not pieces:
        raise UserError(f"{path}: an ELF file without memory segments")
    return Segments(pieces, registers)
