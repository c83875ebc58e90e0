# SPDX-License-Identifier: GPL-2.0-or-later
"""The permission table of a context as a list of ranges: whole level tables at a time with numpy.

A table written by a process is hostile: it may point to itself or anywhere.  Each (table, level) is read
once, the number of tables is bounded, and what does not fit the rules of section 6.2 becomes a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ummulab import layouts
from ummulab.decode.view import Problem
from ummulab.layouts import Entry, Words
from ummulab.memory import Memory, MemoryReadError
from ummulab.model.mapt import FREED, LEVEL_BYTES, NODE_BYTES, SHIFT

MAX_TABLES = 1 << 14
_MAX_SIZE_CODE = 9
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Range:
    """One granted range, both ends inclusive, with the node that holds it."""

    first: int
    last: int
    level: int
    entry: Entry


@dataclass
class Dump:
    """All ranges of one context, as arrays sorted by address."""

    first: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    last: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    level: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    addr: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    words: Words = field(default_factory=lambda: np.zeros((0, 8), "<u4"))
    tables: int = 0
    problems: list[Problem] = field(default_factory=list)
    structure: str = "MAPTE"

    def __len__(self) -> int:
        return len(self.first)

    def column(self, name: str) -> U64:
        """One field of every range's node."""
        return layouts.column(self.structure, self.words, name)

    def ranges(self) -> Iterator[Range]:
        """The ranges one by one."""
        spec = layouts.layout(self.structure)
        rows = zip(
            self.first.tolist(),
            self.last.tolist(),
            self.level.tolist(),
            self.addr.tolist(),
            self.words.tolist(),
            strict=True,
        )
        for first, last, level, addr, words in rows:
            yield Range(first, last, level, Entry(spec, addr, tuple(words)))

    def near(self, addr: int, count: int = 2) -> list[Range]:
        """The ``count`` ranges closest to an address."""
        if not len(self):
            return []
        at = np.uint64(addr)
        below = np.where(self.last < at, at - self.last, np.uint64(0))
        above = np.where(self.first > at, self.first - at, np.uint64(0))
        best = np.argsort(below + above, kind="stable")[:count]
        spec = layouts.layout(self.structure)
        return [
            Range(
                int(self.first[i]),
                int(self.last[i]),
                int(self.level[i]),
                Entry(spec, int(self.addr[i]), tuple(int(w) for w in self.words[i])),
            )
            for i in best
        ]


@dataclass(frozen=True)
class _Table:
    block: int
    size: int
    offset: int
    level: int
    start: int
    path: str


class _Walker:
    def __init__(self, memory: Memory, tcte: Entry, free_bit: bool, path: str) -> None:
        self.memory = memory
        self.tcte = tcte
        self.free_bit = free_bit
        self.last_level = 2 if tcte["RTGS"] == 2 else 3
        self.path = path
        self.problems: list[Problem] = []
        self.seen: set[tuple[int, int]] = set()
        self.parts: list[tuple[U64, U64, int, U64, Words]] = []
        self.blocks: Words | None = None

    def root(self) -> _Table:
        """The level 0 table."""
        base, size = self.tcte["MAPT_BBA"] << 5, 4096 << self.tcte["MAPT_BB_SZ"]
        return _Table(base, size, 0, 0, 0, self.path)

    def fits(self, table: _Table, where: int) -> bool:
        """True if a level table lies inside its block; a problem is noted otherwise."""
        if table.offset % LEVEL_BYTES == 0 and table.offset + LEVEL_BYTES <= table.size:
            return True
        text = f"table offset {table.offset:#x} does not fit a block of {table.size:#x} bytes"
        self.report(table.path, where, text)
        return False

    def run(self) -> Dump:
        todo = [self.root()]
        while todo:
            table = todo.pop()
            where = table.block + table.offset
            if not self.fits(table, where):
                continue
            if (where, table.level) in self.seen:
                self.report(table.path, where, f"level {table.level} table is reached twice")
            elif len(self.seen) >= MAX_TABLES:
                self.report(table.path, where, f"more than {MAX_TABLES} tables; the rest is not read")
                break
            else:
                self.seen.add((where, table.level))
                todo.extend(self._read(table, where))
        return self._result()

    def _read(self, table: _Table, where: int) -> list[_Table]:
        try:
            data = self.memory.read(where, LEVEL_BYTES)
        except MemoryReadError as err:
            self.report(table.path, err.addr, f"level {table.level} table: {err.reason}")
            return []
        words = layouts.bulk("MAPTE", data, path=table.path)
        index = layouts.valid_indices("MAPTE", words)
        self._collect(table, where, words[index], index)
        if table.level == self.last_level:
            return []
        below = index[layouts.column("MAPTE", words[index], "T") == 0]
        spec = layouts.layout("MAPTE")
        children = []
        for i in below.tolist():
            node = Entry(spec, where + i * NODE_BYTES, tuple(int(w) for w in words[i]))
            children.append(self.child(table, node, i))
        return [c for c in children if c is not None]

    def _collect(self, table: _Table, where: int, words: Words, index: npt.NDArray[np.intp]) -> None:
        """The nodes that have a range of their own."""

        def col(name: str) -> U64:
            return layouts.column("MAPTE", words, name)

        base, limit = (
            col("BASE_LO") | col("BASE_HI") << np.uint64(32),
            col("LIMIT_LO") | col("LIMIT_HI") << np.uint64(32),
        )
        freed = (base == FREED) & (limit == FREED) & (col("PERMISSION") == 0)
        if self.free_bit:
            freed |= col("F_BIT") == 1
        shift = np.uint64(SHIFT[table.level])
        mask = (np.uint64(1) << shift) - np.uint64(1)
        base, limit = base & mask, limit & mask
        own = ~freed & (base <= limit)
        start = np.uint64(table.start) + (index.astype(np.uint64) << shift)
        addr = np.uint64(where) + index.astype(np.uint64) * np.uint64(NODE_BYTES)
        if own.any():
            self.parts.append(((start + base)[own], (start + limit)[own], table.level, addr[own], words[own]))

    def child(self, table: _Table, entry: Entry, index: int) -> _Table | None:
        """The table below a node, None if the node names no usable block."""
        path = f"{table.path}.L{table.level}[{index}]"
        block, size = table.block, table.size
        if entry["N"]:
            found = self._block(entry["NEXT_LV_INDEX"], path, entry.addr)
            if found is None:
                return None
            block, size = found
        offset = entry.join("NEXT_LV_OFFSET_LO", "NEXT_LV_OFFSET_HI") * NODE_BYTES
        return _Table(block, size, offset, table.level + 1, table.start + (index << SHIFT[table.level]), path)

    def _block(self, index: int, path: str, where: int) -> tuple[int, int] | None:
        base, size = self.tcte["MAPT_BTA"] << 5, 4096 << self.tcte["MAPT_BT_SZ"]
        if self.blocks is None:
            try:
                self.blocks = layouts.bulk("MAPT_BLOCK_DESC", self.memory.read(base, size))
            except MemoryReadError as err:
                self.report(f"{self.path}.blocks", err.addr, f"block table: {err.reason}")
                self.blocks = np.zeros((0, 1), "<u8")
        if index >= len(self.blocks):
            self.report(path, where, f"block index {index} is not below {len(self.blocks)}")
            return None
        desc = Entry(layouts.layout("MAPT_BLOCK_DESC"), base + index * 8, (int(self.blocks[index, 0]),))
        if not desc["V"] or desc["BS"] > _MAX_SIZE_CODE:
            self.report(path, desc.addr, f"block descriptor {index}: V {desc['V']}, size code {desc['BS']}")
            return None
        return desc["BA"] << 5, 4096 << desc["BS"]

    def report(self, path: str, addr: int, text: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(path, addr, text))

    def _result(self) -> Dump:
        dump = Dump(tables=len(self.seen), problems=self.problems)
        if self.parts:
            dump.first = np.concatenate([p[0] for p in self.parts])
            dump.last = np.concatenate([p[1] for p in self.parts])
            dump.level = np.concatenate([np.full(len(p[0]), p[2], np.uint8) for p in self.parts])
            dump.addr = np.concatenate([p[3] for p in self.parts])
            dump.words = np.concatenate([p[4] for p in self.parts])
            order = np.lexsort((dump.level, dump.first))
            for name in ("first", "last", "level", "addr", "words"):
                setattr(dump, name, getattr(dump, name)[order])
        return dump


def dump(memory: Memory, tcte: Entry, *, free_bit: bool = False, path: str = "MAPT") -> Dump:
    """All ranges of a context's permission table, in either mode.

    ``memory`` is the table's address space (:meth:`View.table_memory`), ``free_bit`` CAP5.FREE_BIT.
    """
    if tcte["MAPT_MODE"]:
        return _Walker(memory, tcte, free_bit, path).run()
    base = tcte["MAPT_BBA"] << 5
    out = Dump(structure="UMAPTE")
    try:
        data = memory.read(base, NODE_BYTES)
    except MemoryReadError as err:
        out.problems.append(Problem(path, err.addr, f"MAPT entry: {err.reason}"))
        return out
    node = layouts.parse("UMAPTE", data, base, path=path)
    if node["V"]:
        out.first = np.array([node.join("BASE_LO", "BASE_HI")], np.uint64)
        out.last = np.array([node.join("LIMIT_LO", "LIMIT_HI")], np.uint64)
        out.level, out.addr = np.zeros(1, np.uint8), np.array([base], np.uint64)
        out.words = layouts.bulk("UMAPTE", data)
    return out


class PathWalker:
    """The nodes on the way to one address, also past a node that already decides; at most four."""

    def __init__(self, memory: Memory, tcte: Entry, path: str) -> None:
        self._walker = _Walker(memory, tcte, False, path)

    @property
    def problems(self) -> list[Problem]:
        """What could not be followed."""
        return self._walker.problems

    def nodes(self, addr: int) -> Iterator[tuple[int, Entry]]:
        """(level, node) from the root down."""
        walker = self._walker
        table: _Table | None = walker.root()
        while table is not None:
            index = addr >> SHIFT[table.level] & 511
            where = table.block + table.offset
            if not walker.fits(table, where):
                return
            try:
                data = walker.memory.read(where + index * NODE_BYTES, NODE_BYTES)
            except MemoryReadError as err:
                walker.report(table.path, err.addr, err.reason)
                return
            node = layouts.parse("MAPTE", data, where + index * NODE_BYTES, path=table.path)
            yield table.level, node
            if not node["V"] or node["T"] or table.level == walker.last_level:
                return
            table = walker.child(table, node, index)
