# SPDX-License-Identifier: GPL-2.0-or-later
"""PCI as firmware and an operating system would set it up: find functions, place BARs, program MSI-X."""

from __future__ import annotations

from dataclasses import dataclass, field

from ummulab.qtest.errors import QtestError
from ummulab.qtest.protocol import QtestClient

_COMMAND = 0x04
_COMMAND_MEMORY = 0x2
_COMMAND_MASTER = 0x4
_CAP_POINTER = 0x34
_CAP_MSIX = 0x11
_CAP_LIMIT = 48  # a capability list cannot be longer than configuration space allows
_BAR0 = 0x10
_MSIX_ENABLE = 0x8000
_MSIX_FUNCTION_MASK = 0x4000


@dataclass
class PciFunction:
    """One function on bus 0 with its BARs placed."""

    qtest: QtestClient
    config: int
    vendor: int
    device: int
    bars: dict[int, int] = field(default_factory=dict)
    bar_sizes: dict[int, int] = field(default_factory=dict)

    def read_config(self, offset: int, size: int = 4) -> int:
        """Read configuration space."""
        return self.qtest.read(self.config + offset, size)

    def write_config(self, offset: int, value: int, size: int = 4) -> None:
        """Write configuration space."""
        self.qtest.write(self.config + offset, value, size)

    def capabilities(self) -> list[tuple[int, int]]:
        """(id, offset) of every capability, in list order."""
        found: list[tuple[int, int]] = []
        at = self.read_config(_CAP_POINTER, 1)
        while at:
            if len(found) == _CAP_LIMIT:
                raise QtestError(f"PCI {self.vendor:04x}:{self.device:04x}: the capability list does not end")
            word = self.read_config(at, 2)
            found.append((word & 0xFF, at))
            at = word >> 8
        return found

    def capability(self, cap_id: int) -> int:
        """Offset of the first capability with this id."""
        for found, at in self.capabilities():
            if found == cap_id:
                return at
        raise QtestError(f"PCI {self.vendor:04x}:{self.device:04x} has no capability {cap_id:#x}")

    def enable(self, master: bool = True) -> None:
        """Switch memory decoding on, and bus mastering if wanted."""
        self.write_config(_COMMAND, _COMMAND_MEMORY | (_COMMAND_MASTER if master else 0), 2)

    def reset_function(self) -> None:
        """Function-level reset through the PCI Express capability."""
        express = self.capability(0x10)
        self.write_config(express + 8, self.read_config(express + 8, 2) | 0x8000, 2)

    def msix_enable(self, messages: dict[int, tuple[int, int]], function_mask: bool = False) -> None:
        """Unmask the given vectors with (address, data) each, and switch MSI-X on.

        The address may be plain RAM: the message is then a memory write, no interrupt controller needed.
        """
        cap = self.capability(_CAP_MSIX)
        table = self.read_config(cap + 4)
        base = self.bars[table & 7] + (table & ~7)
        writes: list[tuple[int, int, int]] = []
        for vector, (address, data) in messages.items():
            entry = base + 16 * vector
            writes += [(entry, address & 0xFFFFFFFF, 4), (entry + 4, address >> 32, 4)]
            writes += [(entry + 8, data, 4), (entry + 12, 0, 4)]
        self.qtest.write_many(writes)
        control = self.read_config(cap + 2, 2) & ~_MSIX_FUNCTION_MASK
        control |= _MSIX_ENABLE | (_MSIX_FUNCTION_MASK if function_mask else 0)
        self.write_config(cap + 2, control, 2)

    def msix_vectors(self) -> int:
        """Number of vectors the function has."""
        return (self.read_config(self.capability(_CAP_MSIX) + 2, 2) & 0x7FF) + 1


class PciBus:
    """Bus 0 behind an ECAM window."""

    def __init__(self, qtest: QtestClient, ecam: int, mmio32: int, mmio64: int) -> None:
        self._qtest = qtest
        self._ecam = ecam
        self._next32 = mmio32
        self._next64 = mmio64

    def scan(self) -> list[PciFunction]:
        """All functions 0 of bus 0, BARs not placed yet."""
        configs = [self._ecam + (slot << 15) for slot in range(32)]
        ids = self._qtest.read_many([(config, 4) for config in configs])
        return [
            PciFunction(self._qtest, config, word & 0xFFFF, word >> 16)
            for config, word in zip(configs, ids, strict=True)
            if word & 0xFFFF not in (0, 0xFFFF)
        ]

    def place_bars(self, function: PciFunction) -> None:
        """Size every memory BAR of an endpoint and give it an aligned place in the fitting window."""
        at = [function.config + _BAR0 + 4 * n for n in range(6)]
        self._qtest.write_many([(a, 0xFFFFFFFF, 4) for a in at])
        raw = self._qtest.read_many([(a, 4) for a in at])
        writes: list[tuple[int, int, int]] = []
        bar = 0
        while bar < 6:
            wide = raw[bar] & 7 == 4 and bar < 5
            mask = (raw[bar] & ~0xF) | ((raw[bar + 1] if wide else 0xFFFFFFFF) << 32)
            if raw[bar] and not raw[bar] & 1:
                size = ((~mask) & 0xFFFFFFFFFFFFFFFF) + 1
                address = self._allocate(size, wide)
                function.bars[bar], function.bar_sizes[bar] = address, size
                writes.append((at[bar], address & 0xFFFFFFFF, 4))
                if wide:
                    writes.append((at[bar + 1], address >> 32, 4))
            else:
                writes.append((at[bar], 0, 4))
            bar += 2 if wide else 1
        self._qtest.write_many(writes)

    def _allocate(self, size: int, wide: bool) -> int:
        if wide:
            address = (self._next64 + size - 1) & ~(size - 1)
            self._next64 = address + size
        else:
            address = (self._next32 + size - 1) & ~(size - 1)
            self._next32 = address + size
        return address
