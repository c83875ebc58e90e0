# SPDX-License-Identifier: GPL-2.0-or-later
"""Guest RAM at memory speed, read and written without stopping the guest."""

from __future__ import annotations

import mmap
import os
from typing import Protocol

from ummulab.memory import MemoryReadError
from ummulab.vm.errors import VmError


class _Backing(Protocol):
    def read(self, offset: int, length: int) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None: ...

    def close(self) -> None: ...


class SharedFile:
    """RAM that QEMU maps shared: we map the same file."""

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset of RAM."""
        return self._map[offset : offset + length]

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes at an offset of RAM."""
        self._map[offset : offset + len(data)] = data

    def close(self) -> None:
        """Drop the mapping."""
        self._map.close()


class PrivateMapping:
    """RAM of a copy-on-write clone: only QEMU's own address space holds it."""

    def __init__(self, pid: int, fd: int, size: int) -> None:
        stat = os.fstat(fd)
        self._base = _find_mapping(pid, stat.st_dev, stat.st_ino, size)
        self._mem = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset of RAM."""
        data = os.pread(self._mem, length, self._base + offset)
        if len(data) != length:
            raise VmError(f"short read of guest memory: {len(data)} of {length} bytes at offset {offset:#x}")
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes at an offset of RAM."""
        if os.pwrite(self._mem, data, self._base + offset) != len(data):
            raise VmError(f"short write of guest memory at offset {offset:#x}")

    def close(self) -> None:
        """Drop the access."""
        os.close(self._mem)


def _find_mapping(pid: int, device: int, inode: int, size: int) -> int:
    """Return the address at which a process has mapped a whole file."""
    start = end = 0
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) < 5 or int(fields[4]) != inode:
                continue
            major, minor = (int(part, 16) for part in fields[3].split(":"))
            if os.makedev(major, minor) != device:
                continue
            low, high = (int(part, 16) for part in fields[0].split("-"))
            if int(fields[2], 16) == 0:
                start = low
            elif low != end:
                continue
            end = high  # the kernel may show one mapping in several lines
            if end - start == size:
                return start
    raise VmError(f"guest RAM not found in the address space of QEMU (pid {pid})")


class GuestMemory:
    """Guest-physical RAM by address; a ``ummulab.memory.Memory`` for decoders and the model."""

    def __init__(self, backing: _Backing, base: int, size: int) -> None:
        self._backing = backing
        self.base = base
        self.size = size

    def contains(self, addr: int, length: int) -> bool:
        """Whether all bytes are RAM."""
        return length >= 0 and self.base <= addr and addr + length <= self.base + self.size

    def read(self, addr: int, length: int) -> bytes:
        """Return ``length`` bytes at a guest-physical address."""
        self._check(addr, length)
        return self._backing.read(addr - self.base, length)

    def write(self, addr: int, data: bytes) -> None:
        """Store bytes at a guest-physical address."""
        self._check(addr, len(data))
        self._backing.write(addr - self.base, data)

    def _check(self, addr: int, length: int) -> None:
        if not self.contains(addr, length):
            end = self.base + self.size
            raise MemoryReadError(addr, length, f"not in guest RAM [{self.base:#x}, {end:#x})")

    def close(self) -> None:
        """Release the backing."""
        self._backing.close()
