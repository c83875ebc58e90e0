# SPDX-License-Identifier: GPL-2.0-or-later
"""Table reads of one resolution: every read is traced, and a bus error becomes the right refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ummulab import layouts
from ummulab.layouts import Entry
from ummulab.memory import Memory, MemoryReadError
from ummulab.model.verdict import Refusal, Step, Update

#: Translates the address of a table access (stage 2 in nested mode); identity otherwise.
Translate = Callable[[int], int]


def identity(addr: int) -> int:
    """No stage 2: a table address is a physical address."""
    return addr


@dataclass
class Trace:
    """Memory plus the record of what was looked at."""

    memory: Memory
    steps: list[Step] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    def note(self, what: str, section: str, note: str, entry: Entry | None = None) -> None:
        """Record a step."""
        self.steps.append(Step(what, section, note, entry))

    def read(self, addr: int, length: int, event: str, what: str, section: str, cls: int = 0) -> bytes:
        """Bytes of a table; a bus error is refused with ``event`` and FTADDR."""
        try:
            return self.memory.read(addr, length)
        except MemoryReadError as err:
            self.note(what, section, f"bus error at {addr:#x}")
            raise Refusal(
                event,
                "bus-error",
                section,
                f"bus error reading {what} at {addr:#x}",
                cls=cls,
                ftaddr=addr,
                detail={"addr": addr},
            ) from err

    def entry(self, name: str, addr: int, event: str, what: str, section: str, *, big: bool = False) -> Entry:
        """One structure at a physical address.  ``big``: its words are big endian (TCTE.ENDI, choice 27)."""
        spec = layouts.layout(name)
        data = self.read(addr, spec.size, event, what, section, cls=1)
        if big:
            step = spec.unit_bits // 8
            data = b"".join(data[i : i + step][::-1] for i in range(0, len(data), step))
        return layouts.parse(name, data, addr, path=what)
