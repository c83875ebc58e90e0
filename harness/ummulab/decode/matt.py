# SPDX-License-Identifier: GPL-2.0-or-later
"""A translation table of either stage as a list of mappings: whole tables at a time, bounded like MAPT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ummulab.decode.view import Problem
from ummulab.layouts import Entry
from ummulab.memory import Memory, MemoryReadError
from ummulab.model.descriptor import S1_DESC, S2_DESC, Geometry, address_of, block_allowed

MAX_TABLES = 1 << 16
U64 = npt.NDArray[np.uint64]
#: Descriptor bits that say what a mapping allows (address, software bits and contiguous hint left out).
_ATTRS = 0x0078_0000_0000_0FFC


@dataclass(frozen=True)
class Mapping:
    """One leaf: input address, output address, bytes, level, and its descriptor."""

    va: int
    pa: int
    size: int
    level: int
    entry: Entry


@dataclass(frozen=True)
class Run:
    """Neighbouring leaves with continuing addresses and equal attributes; ``first`` is the lowest leaf."""

    va: int
    pa: int
    size: int
    leaves: int
    first: Entry


@dataclass
class Dump:
    """All leaves, sorted by input address."""

    va: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    desc: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    addr: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    level: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    tables: int = 0
    problems: list[Problem] = field(default_factory=list)
    geometry: Geometry | None = None
    s2: bool = False

    def __len__(self) -> int:
        return len(self.va)

    def mappings(self) -> Iterator[Mapping]:
        """The leaves one by one."""
        geo = self.geometry
        if geo is None:
            return
        spec = S2_DESC if self.s2 else S1_DESC
        rows = zip(self.va.tolist(), self.desc.tolist(), self.addr.tolist(), self.level.tolist(), strict=True)
        for va, desc, addr, level in rows:
            shift = geo.shift(level)
            yield Mapping(va, address_of(desc, shift), 1 << shift, level, Entry(spec, addr, (desc,)))

    def runs(self) -> list[Run]:
        """The leaves merged where addresses and attributes continue."""
        out: list[Run] = []
        for m in self.mappings():
            if out:
                last = out[-1]
                joins = last.va + last.size == m.va and last.pa + last.size == m.pa
                if joins and (last.first.words[0] ^ m.entry.words[0]) & _ATTRS == 0:
                    out[-1] = Run(last.va, last.pa, last.size + m.size, last.leaves + 1, last.first)
                    continue
            out.append(Run(m.va, m.pa, m.size, 1, m.entry))
        return out


def dump(memory: Memory, geo: Geometry, *, s2: bool = False, path: str = "MATT") -> Dump:
    """All leaves of a table.  ``memory`` is the address space its descriptors point into."""
    out = Dump(geometry=geo, s2=s2)
    parts: list[tuple[U64, U64, U64, int]] = []
    seen: set[tuple[int, int]] = set()
    todo = [(geo.base, geo.start_level, 0, path)]
    while todo:
        table, level, va, where = todo.pop()
        if (table, level) in seen:
            out.problems.append(Problem(where, table, f"level {level} table is reached twice"))
            continue
        if len(seen) >= MAX_TABLES:
            out.problems.append(Problem(where, table, f"more than {MAX_TABLES} tables; the rest is not read"))
            break
        seen.add((table, level))
        try:
            data = memory.read(table, 8 << geo.index_bits(level))
        except MemoryReadError as err:
            out.problems.append(Problem(where, err.addr, f"level {level} table: {err.reason}"))
            continue
        todo.extend(_read_table(geo, data, table, level, va, where, parts, out.problems))
    out.tables = len(seen)
    _join(out, parts)
    return out


def _read_table(
    geo: Geometry,
    data: bytes,
    table: int,
    level: int,
    va: int,
    path: str,
    parts: list[tuple[U64, U64, U64, int]],
    problems: list[Problem],
) -> list[tuple[int, int, int, str]]:
    desc = np.frombuffer(data, dtype=">u8" if geo.big else "<u8").astype(np.uint64)
    kind = desc & np.uint64(3)
    leaf_kind = 3 if level == 3 else 1
    index = np.arange(len(desc), dtype=np.uint64)
    shift = np.uint64(geo.shift(level))
    leaves = np.nonzero(kind == leaf_kind)[0]
    allowed = level == 3 or block_allowed(geo.granule_bits, level)
    if len(leaves) and allowed:
        parts.append(
            (
                np.uint64(va) + (index[leaves] << shift),
                desc[leaves],
                np.uint64(table) + index[leaves] * np.uint64(8),
                level,
            )
        )
    bad = np.nonzero(kind == 1)[0] if level == 3 or not allowed else leaves[:0]
    for i in bad[:8].tolist():
        problems.append(
            Problem(f"{path}.L{level}[{i}]", table + i * 8, f"reserved descriptor {int(desc[i]):#018x}")
        )
    if level == 3:
        return []
    return [
        (
            address_of(int(desc[i]), geo.granule_bits),
            level + 1,
            va + (i << geo.shift(level)),
            f"{path}.L{level}[{i}]",
        )
        for i in np.nonzero(kind == 3)[0].tolist()
    ]


def _join(out: Dump, parts: list[tuple[U64, U64, U64, int]]) -> None:
    if not parts:
        return
    va = np.concatenate([p[0] for p in parts])
    order = np.argsort(va, kind="stable")
    out.va = va[order]
    out.desc = np.concatenate([p[1] for p in parts])[order]
    out.addr = np.concatenate([p[2] for p in parts])[order]
    out.level = np.concatenate([np.full(len(p[0]), p[3], np.uint8) for p in parts])[order]
