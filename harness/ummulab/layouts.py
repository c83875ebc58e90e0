# SPDX-License-Identifier: GPL-2.0-or-later
"""Parsing and building of every UMMU and accelerator structure, derived from the layout facts.

Three readers over the same fields, each for its own use:

* :class:`Entry`, one object with its guest address and raw words (walks, printing);
* :func:`construct_of`, a ``construct.Struct`` of plain words with computed fields (building, trying out);
* :func:`bulk` and :func:`column`, numpy over whole tables (10^6 entries in well under a second).

There is no bit-struct: measured, it is an order of magnitude slower than shifts on whole words.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import construct
import numpy as np
import numpy.typing as npt

from ummulab.spec import Command, Field, Layout, SpecError, load, load_accel

Words = npt.NDArray[np.unsignedinteger[Any]]


class LayoutError(SpecError):
    """Bytes that do not make a structure: says which, where and at which offset.

    ``path`` names the object ("TCT[5].TCTE"), ``offset`` is the byte offset in the data given.
    """

    def __init__(self, path: str, offset: int, message: str) -> None:
        super().__init__(f"{path}: at offset {offset:#x}: {message}")
        self.path = path
        self.offset = offset


@dataclass(frozen=True)
class Entry:
    """One decoded object: where it was read, its raw words, and its fields by name (``entry["V"]``)."""

    layout: Layout
    addr: int
    words: tuple[int, ...]

    def __getitem__(self, name: str) -> int:
        f = self.layout.by_name[name]
        return f.get(self.words[f.word])

    @property
    def name(self) -> str:
        """Name of the structure."""
        return self.layout.name

    @property
    def fields(self) -> dict[str, int]:
        """All fields by name, overlays included."""
        return {f.name: f.get(self.words[f.word]) for f in self.layout.fields}

    @property
    def raw(self) -> bytes:
        """The bytes as they are in memory."""
        return self.layout.join(self.words)

    def hex_words(self) -> list[str]:
        """Raw words as fixed-width hexadecimal text."""
        digits = self.layout.unit_bits // 4
        return [f"{w:0{digits}x}" for w in self.words]

    def join(self, low: str, high: str) -> int:
        """One value from a pair of fields, e.g. BASE_LO and BASE_HI."""
        return self[low] | self[high] << self.layout.by_name[low].width


@functools.cache
def layouts() -> Mapping[str, Layout]:
    """Every structure, queue command (``CMD_*``), event record (``EVT``), accelerator structure by name."""
    out: dict[str, Layout] = {}
    for spec in (load(), load_accel()):
        out.update(spec.structures)
        out.update(spec.commands)
        if spec.event_layout is not None:
            out["EVT"] = spec.event_layout
    return out


def layout(name: str) -> Layout:
    """A layout by name; SpecError with the known names if there is none."""
    try:
        return layouts()[name]
    except KeyError:
        raise SpecError(f"no structure {name}; known: {', '.join(sorted(layouts()))}") from None


@functools.cache
def _packer(words: int, unit_bits: int) -> struct.Struct:
    return struct.Struct(f"<{words}{'Q' if unit_bits == 64 else 'I'}")


def parse(name: str, data: bytes, addr: int = 0, *, path: str = "", offset: int = 0) -> Entry:
    """One structure out of ``data`` at ``offset``; LayoutError (path, offset) if it is cut short."""
    spec = layout(name)
    packer = _packer(spec.words, spec.unit_bits)
    if offset < 0 or len(data) - offset < spec.size:
        have = max(0, len(data) - max(offset, 0))
        raise LayoutError(path or name, offset, f"{name} needs {spec.size} bytes, {have} left")
    return Entry(spec, addr, packer.unpack_from(data, offset))


def build(name: str, **values: int) -> bytes:
    """Bytes of a structure from field values (others 0); SpecError for unknown or too wide ones."""
    return layout(name).pack(**values)


def replace(entry: Entry, **values: int) -> bytes:
    """Bytes of ``entry`` with some fields changed; reserved bits are kept."""
    words = list(entry.words)
    for name, value in values.items():
        f = entry.layout.by_name.get(name)
        if f is None:
            raise SpecError(f"{entry.name} has no field {name}")
        words[f.word] = f.put(words[f.word], value)
    return entry.layout.join(words)


def command_name(opcode: int) -> str | None:
    """Name of the MCMDQ command with this code, or None."""
    return _commands_by_code().get(opcode)


@functools.cache
def _commands_by_code() -> dict[int, str]:
    return {c.opcode: name for name, c in load().commands.items()}


def parse_command(data: bytes, addr: int = 0, *, path: str = "", offset: int = 0) -> Entry:
    """A 32-byte MCMDQ entry with the layout its opcode names (CMD_SYNC's for an unknown opcode)."""
    if len(data) <= offset:
        raise LayoutError(path or "MCMDQ entry", offset, "no data left")
    return parse(command_name(data[offset]) or "CMD_SYNC", data, addr, path=path, offset=offset)


# ------------------------------------------------------------------ construct
def _computed(f: Field) -> Any:
    # Arithmetic only: construct's code generator turns "&" of two expressions into a logical "and".
    word = construct.this[f"w{f.word}"]
    return construct.Computed((word // (1 << f.lsb)) % (1 << f.width))


@functools.cache
def construct_of(name: str) -> Any:
    """The ``construct.Struct`` of a layout: words ``w0``.. and every field computed from them.

    Building takes the words; ``build(parse(x)) == x`` for every x.  To build from field values use
    :func:`build`.  Not compiled: the compiled form drops the path from its errors.
    """
    spec = layout(name)
    unit = construct.Int64ul if spec.unit_bits == 64 else construct.Int32ul
    members = [f"w{i}" / unit for i in range(spec.words)]
    members += [f.name / _computed(f) for f in spec.fields]
    return construct.Struct(*members)


@functools.cache
def construct_compiled(name: str) -> Any:
    """The compiled form of :func:`construct_of`, made once: for bulk work on data known to be whole."""
    return construct_of(name).compile()


# ------------------------------------------------------------------ numpy
def bulk(name: str, data: bytes | memoryview, *, path: str = "") -> Words:
    """A whole table as an array of shape (entries, words); LayoutError if the last entry is cut."""
    spec = layout(name)
    if len(data) % spec.size:
        whole = len(data) // spec.size * spec.size
        raise LayoutError(
            path or f"{name}[{whole // spec.size}]",
            whole,
            f"{name} needs {spec.size} bytes, {len(data) - whole} left",
        )
    kind = np.dtype("<u8" if spec.unit_bits == 64 else "<u4")
    return np.frombuffer(data, dtype=kind).reshape(-1, spec.words)


def column(name: str, words: Words, field: str) -> npt.NDArray[np.uint64]:
    """One field of every entry of a :func:`bulk` array."""
    f = layout(name).by_name[field]
    mask = np.uint64((1 << f.width) - 1)
    return (words[..., f.word].astype(np.uint64) >> np.uint64(f.lsb)) & mask


def records(name: str, data: bytes) -> npt.NDArray[np.void]:
    """A whole table as a structured array with one 64-bit column per field (up to some 10^5 entries)."""
    words = bulk(name, data)
    spec = layout(name)
    out = np.zeros(len(words), dtype=[(f.name, "<u8") for f in spec.fields])
    for f in spec.fields:
        out[f.name] = column(name, words, f.name)
    return out


def valid_indices(name: str, words: Words) -> npt.NDArray[np.intp]:
    """Indices of the entries whose V field is 1."""
    f = layout(name).by_name["V"]
    mask = words.dtype.type(f.mask)
    return np.nonzero(words[:, f.word] & mask)[0]


def entries(name: str, words: Words, base: int) -> Iterator[Entry]:
    """The valid entries of a bulk array as :class:`Entry` objects; ``base`` is the table's address."""
    spec = layout(name)
    for i in valid_indices(name, words):
        yield Entry(spec, base + int(i) * spec.size, tuple(int(w) for w in words[i]))


def is_command(spec: Layout) -> bool:
    """True for a queue command, whose OPCODE field is fixed."""
    return isinstance(spec, Command)
