# SPDX-License-Identifier: GPL-2.0-or-later
"""TECT and TCT: every valid entity and context of a UMMU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ummulab import layouts
from ummulab.decode.view import Problem, View
from ummulab.layouts import Entry, Words
from ummulab.memory import Memory, MemoryReadError
from ummulab.model.entity import ST_NESTED, ST_STAGE1

_TAG_BITS_MAX = 16
_TID_BITS_MAX = 20


@dataclass(frozen=True)
class Entity:
    """A valid TECTE."""

    tag: int
    entry: Entry


@dataclass(frozen=True)
class Context:
    """A valid TCTE."""

    tag: int
    tid: int
    entry: Entry


def entities(view: View, problems: list[Problem], tag: int | None = None) -> Iterator[Entity]:
    """Every valid TECTE, or that of one tag."""
    state = view.state
    base = state.get("TECT_BASE", "ADDR") << 6
    log2size = min(state.get("TECT_BASE_CFG", "LOG2SIZE"), _TAG_BITS_MAX)
    split = log2size if state.get("TECT_BASE_CFG", "FMT") == 0 else state.get("TECT_BASE_CFG", "SPLIT")
    for first, table, count in _tect_tables(view, problems, base, log2size, split):
        wanted = range(first, min(first + count, 1 << log2size))
        if tag is not None:
            if tag not in wanted:
                continue
            table, wanted = table + (tag - first) * 64, range(tag, tag + 1)
        words = _read_table(view.memory, problems, "TECTE", f"TECT[{wanted.start:#x}..]", table, len(wanted))
        for entry in layouts.entries("TECTE", words, table):
            yield Entity(wanted.start + (entry.addr - table) // 64, entry)


def _tect_tables(
    view: View, problems: list[Problem], base: int, log2size: int, split: int
) -> Iterator[tuple[int, int, int]]:
    """(first tag, address, entries) of each table of TECTEs."""
    if view.state.get("TECT_BASE_CFG", "FMT") == 0:
        yield 0, base, 1 << log2size
        return
    count = 1 << max(0, log2size - split)
    words = _read_table(view.memory, problems, "TECT_L1_DESC", "level-1 TECT", base, count)
    for desc in layouts.entries("TECT_L1_DESC", words, base):
        yield (desc.addr - base) // 8 << split, desc["L2PTR"] << 6, 1 << min(desc["L2TECTE_NUM"], split)


def contexts(
    view: View, entity: Entity, problems: list[Problem], tid: int | None = None
) -> Iterator[Context]:
    """Every valid TCTE of an entity, or that of one TID."""
    tecte = entity.entry
    if tecte["ST_MODE"] not in (ST_STAGE1, ST_NESTED) or tecte["TCT_NUM"] == 0:
        return
    memory = view.table_memory(tecte)
    path = f"TECT[{entity.tag:#x}].TCT"
    bits = min(tecte["TCT_NUM"], _TID_BITS_MAX)
    for first, table, count in _tct_tables(memory, tecte, bits, problems, path):
        wanted = range(first, first + count)
        if tid is not None:
            if tid not in wanted:
                continue
            table, wanted = table + (tid - first) * 64, range(tid, tid + 1)
        words = _read_table(memory, problems, "TCTE", f"{path}[{wanted.start:#x}..]", table, len(wanted))
        for entry in layouts.entries("TCTE", words, table):
            yield Context(entity.tag, wanted.start + (entry.addr - table) // 64, entry)


def _tct_tables(
    memory: Memory, tecte: Entry, bits: int, problems: list[Problem], path: str
) -> Iterator[tuple[int, int, int]]:
    base, fmt = tecte["TCT_PTR"] << 6, tecte["TCT_FMT"]
    if fmt == 3:
        problems.append(Problem(path, base, "TCT_FMT 3 is reserved"))
        return
    if fmt == 0:
        yield 0, base, 1 << bits
        return
    split = 6 if fmt == 1 else 10
    words = _read_table(memory, problems, "TCT_L1_DESC", path, base, 1 << max(0, bits - split))
    for desc in layouts.entries("TCT_L1_DESC", words, base):
        yield (desc.addr - base) // 8 << split, desc["L2TCT_PTR"] << 12, 1 << min(split, bits)


_CHUNK = 1 << 20


def _read_table(
    memory: Memory, problems: list[Problem], name: str, path: str, base: int, count: int
) -> Words:
    """A table as words.  What cannot be read becomes a problem; the readable beginning is still given."""
    size = layouts.layout(name).size
    data = bytearray()
    try:
        while len(data) < count * size:
            data += memory.read(base + len(data), min(_CHUNK, count * size - len(data)))
    except MemoryReadError as err:
        data += _readable_prefix(memory, base + len(data), min(_CHUNK, count * size - len(data)))
        problems.append(
            Problem(path, err.addr, f"{name}: {err.reason}; {len(data) // size} of {count} entries read")
        )
    return layouts.bulk(name, bytes(data[: len(data) // size * size]), path=path)


def _readable_prefix(memory: Memory, addr: int, length: int) -> bytes:
    """The longest readable beginning, in pages."""
    out = bytearray()
    while len(out) < length:
        step = min(4096 - (addr + len(out)) % 4096, length - len(out))
        try:
            out += memory.read(addr + len(out), step)
        except MemoryReadError:
            break
    return bytes(out)
