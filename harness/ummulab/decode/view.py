# SPDX-License-Identifier: GPL-2.0-or-later
"""One UMMU as seen from outside: its memory, its registers, its DstEID bindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ummulab import layouts
from ummulab.layouts import Entry
from ummulab.memory import Memory, MemoryReadError
from ummulab.model import Refusal, Request, State
from ummulab.model import stage2 as s2
from ummulab.model.entity import ST_NESTED
from ummulab.model.fetch import Trace
from ummulab.model.stage1 import Rights
from ummulab.model.state import Access


@dataclass(frozen=True)
class Problem:
    """Something that could not be decoded: ``path`` names the object, ``addr`` is where it should be."""

    path: str
    addr: int
    text: str

    def __str__(self) -> str:
        return f"{self.path} at {self.addr:#x}: {self.text}"


@dataclass(frozen=True)
class DeviceAnswer:
    """The device's own side-effect-free answer; ``event`` is "" for none, ``length`` the bytes covered."""

    status: str
    event: str
    pa: int
    length: int
    fault_addr: int


@dataclass
class View:
    """Memory, registers (by name) and EID bindings of one UMMU.

    ``banks`` holds registers of indexed banks ((MCMDQ_PI, 3)), ``user_queues`` what the device says of its
    user queues.  ``probe`` asks the device itself; None for a dump.
    """

    memory: Memory
    registers: Mapping[str, int]
    kv: Mapping[int, int] | None = None
    banks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    user_queues: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    probe: Callable[[Request], DeviceAnswer] | None = None

    def __post_init__(self) -> None:
        if self.kv is None:
            self.kv = kv_from_memory(self.memory, State(self.registers))

    @property
    def state(self) -> State:
        """Registers and bindings for the reference model."""
        return State(self.registers, self.kv or {})

    def eids_of(self, tag: int) -> list[int]:
        """The EIDs bound to a tag."""
        return sorted(e for e, t in (self.kv or {}).items() if t == tag)

    def table_memory(self, tecte: Entry) -> Memory:
        """Memory as the tables of an entity's contexts see it: through stage 2 if nested (5.5)."""
        return Stage2Memory(self, tecte) if tecte["ST_MODE"] == ST_NESTED else self.memory


class Stage2Memory:
    """The intermediate address space of a nested entity, read through its stage 2."""

    def __init__(self, view: View, tecte: Entry) -> None:
        self._view = view
        self._tecte = tecte

    def read(self, addr: int, length: int) -> bytes:
        """Bytes by IPA; MemoryReadError where stage 2 refuses."""
        out = bytearray()
        while len(out) < length:
            ipa = addr + len(out)
            try:
                pa, left = s2.translate(
                    self._view.state,
                    Trace(self._view.memory),
                    self._tecte,
                    ipa,
                    Rights(Access.READ, True, False),
                    s2.CLS_WALK,
                )
            except Refusal as refusal:
                raise MemoryReadError(ipa, length - len(out), refusal.text) from refusal
            out += self._view.memory.read(pa, min(left, length - len(out)))
        return bytes(out)


_KV_BYTES = 32
_KV_SLOTS_MAX = 1 << 16


def kv_from_memory(memory: Memory, state: State) -> dict[int, int]:
    """EID bindings from the key-value and CAM tables in memory (the recommended layout).

    For sources that do not have the device's own map; unreadable tables give no bindings.
    """
    out: dict[int, int] = {}
    kv, cam = "DSTEID_KV_TABLE_BASE", "DSTEID_CAM_TABLE_BASE"
    slots = state.get(kv + "_CFG", "DEPTH") * state.get(kv + "_CFG", "BANK_NUM")
    for base, count in ((kv, slots), (cam, state.get(cam + "_CFG", "DEPTH"))):
        if not 0 < count <= _KV_SLOTS_MAX:
            continue
        try:
            data = memory.read(state.get(base, "ADDR") << 5, count * _KV_BYTES)
        except MemoryReadError:
            continue
        for entry in layouts.entries("KV_ENTRY", layouts.bulk("KV_ENTRY", data), 0):
            eid = int.from_bytes(entry.raw[16:32], "little")
            out[eid] = entry["TECTE_TAG"]
    return out
