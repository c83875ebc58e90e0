# SPDX-License-Identifier: GPL-2.0-or-later
"""Physical memory handed out to tables, rings and buffers."""

from __future__ import annotations

from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import QtestMachine

PAGE = 4096


class Arena:
    """A bump allocator over the RAM of a machine.  What it hands out is zeroed, unless that is not wanted."""

    def __init__(self, machine: QtestMachine) -> None:
        self.machine = machine
        self._start = machine.arch.ram_base + machine.arch.ram_usable
        self._end = machine.arch.ram_base + machine.ram_size
        self._next = self._start

    def take(self, size: int, align: int = PAGE, *, zero: bool = True) -> int:
        """Address of ``size`` zeroed bytes; ``zero=False`` for large areas that are filled at once."""
        address = (self._next + align - 1) & ~(align - 1)
        if address + size > self._end:
            raise QtestError(
                f"the test machine has {self.machine.ram_size >> 20} MiB of RAM, too little for the tables"
            )
        self._next = address + size
        if zero:
            self.write(address, bytes(size))
        return address

    def read(self, address: int, length: int) -> bytes:
        """Read physical memory."""
        return self.machine.read_memory(address, length)

    def write(self, address: int, data: bytes) -> None:
        """Write physical memory."""
        self.machine.write_memory(address, data)

    def read_word(self, address: int, size: int = 8) -> int:
        """Read one little-endian number."""
        return int.from_bytes(self.read(address, size), "little")

    def write_word(self, address: int, value: int, size: int = 8) -> None:
        """Write one little-endian number."""
        self.write(address, value.to_bytes(size, "little"))

    @property
    def used(self) -> tuple[int, int]:
        """Start and end of what was handed out."""
        return self._start, self._next
