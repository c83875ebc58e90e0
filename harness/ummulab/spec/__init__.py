# SPDX-License-Identifier: GPL-2.0-or-later
"""The layout facts of the UMMU and of the accelerator, loaded from the YAML beside this file.

Everything that knows a bit position (C headers, construct layouts, decoders, documentation) gets it from
:func:`load`.  All structures are little endian; a field lives in one *word* of ``unit_bits`` bits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - PyYAML built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


class SpecError(ValueError):
    """A value does not fit its field, or a name is unknown."""


@dataclass(frozen=True)
class Field:
    """One bit field: bits ``[lsb, lsb + width)`` of word number ``word`` of its structure."""

    name: str
    word: int
    lsb: int
    width: int
    meaning: str = ""
    alias: str = ""
    overlay: bool = False

    @property
    def mask(self) -> int:
        """The field's bits inside its word."""
        return ((1 << self.width) - 1) << self.lsb

    def get(self, word: int) -> int:
        """The field's value taken out of its word."""
        return (word & self.mask) >> self.lsb

    def put(self, word: int, value: int) -> int:
        """``word`` with the field replaced by ``value``; SpecError when the value is too wide."""
        if not 0 <= value < 1 << self.width:
            raise SpecError(f"{self.name}: {value:#x} does not fit {self.width} bits")
        return (word & ~self.mask) | (value << self.lsb)


@dataclass(frozen=True)
class Layout:
    """A structure in memory: ``size`` bytes of little-endian words of ``unit_bits`` bits."""

    name: str
    size: int
    unit_bits: int
    fields: tuple[Field, ...]
    long_name: str = ""
    by_name: Mapping[str, Field] = field(default_factory=dict, repr=False, compare=False)

    @property
    def words(self) -> int:
        """Number of words in the structure."""
        return self.size * 8 // self.unit_bits

    def split(self, data: bytes) -> tuple[int, ...]:
        """The words of ``data``; SpecError unless it is exactly ``size`` bytes."""
        if len(data) != self.size:
            raise SpecError(f"{self.name}: {len(data)} bytes, expected {self.size}")
        step = self.unit_bits // 8
        return tuple(int.from_bytes(data[i : i + step], "little") for i in range(0, self.size, step))

    def join(self, words: Iterable[int]) -> bytes:
        """The bytes of the given words."""
        return b"".join(w.to_bytes(self.unit_bits // 8, "little") for w in words)

    def pack(self, **values: int) -> bytes:
        """Build the structure from field values; fields not named are 0."""
        words = [0] * self.words
        for name, value in values.items():
            f = self.by_name.get(name)
            if f is None:
                raise SpecError(f"{self.name} has no field {name}")
            words[f.word] = f.put(words[f.word], value)
        return self.join(words)

    def unpack(self, data: bytes) -> dict[str, int]:
        """All fields of the structure (overlays included) by name."""
        words = self.split(data)
        return {f.name: f.get(words[f.word]) for f in self.fields}


@dataclass(frozen=True)
class Command(Layout):
    """A queue command: a layout whose OPCODE field has a fixed value."""

    opcode: int = 0
    meaning: str = ""
    own_fields: tuple[Field, ...] = ()
    groups: tuple[str, ...] = ()

    def pack(self, **values: int) -> bytes:
        """Build the command; OPCODE is filled in unless given."""
        return Layout.pack(self, **{"OPCODE": self.opcode, **values})


@dataclass(frozen=True)
class Register:
    """A register: its offset is relative to the frame, or to its bank instance."""

    name: str
    offset: int
    width: int
    access: str
    reset: int | None
    guard: str
    fields: tuple[Field, ...]
    note: str = ""

    @property
    def mask(self) -> int:
        """All bits that belong to a field."""
        m = 0
        for f in self.fields:
            m |= f.mask
        return m

    def pack(self, **values: int) -> int:
        """Register value from field values."""
        by_name = {f.name: f for f in self.fields}
        word = 0
        for name, value in values.items():
            if name not in by_name:
                raise SpecError(f"{self.name} has no field {name}")
            word = by_name[name].put(word, value)
        return word

    def unpack(self, value: int) -> dict[str, int]:
        """Field values of a register value."""
        return {f.name: f.get(value) for f in self.fields}


@dataclass(frozen=True)
class Bank:
    """A register group that repeats every ``stride`` bytes from ``base``."""

    name: str
    base: int
    stride: int
    registers: tuple[Register, ...]


@dataclass(frozen=True)
class Event:
    """An event code and the fields that a record of it fills."""

    name: str
    code: int
    when: str
    filled: tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """Everything in one set of layout files."""

    registers: Mapping[str, Register]
    banks: Mapping[str, Bank]
    structures: Mapping[str, Layout]
    commands: Mapping[str, Command]
    ucommands: Mapping[str, int]
    groups: Mapping[str, tuple[Field, ...]]
    event_layout: Layout | None
    events: Mapping[str, Event]
    enums: Mapping[str, Mapping[str, int]]
    pmu: Mapping[str, Any]

    def event_name(self, code: int) -> str:
        """Name of an event code, or ``EVT_<hex>`` for a code the specification does not know."""
        for e in self.events.values():
            if e.code == code:
                return e.name
        return f"EVT_{code:#04x}"

    def reg(self, name: str) -> Register:
        """A register by name, in the frame or in any bank; SpecError if unknown."""
        if name in self.registers:
            return self.registers[name]
        for bank in self.banks.values():
            for r in bank.registers:
                if r.name == name:
                    return r
        raise SpecError(f"no register {name}")


def _fields(rows: Iterable[Mapping[str, Any]], overlay: bool = False) -> tuple[Field, ...]:
    return tuple(
        Field(
            r["name"],
            int(r.get("word", 0)),
            int(r["lsb"]),
            int(r["width"]),
            r.get("meaning", ""),
            r.get("alias", ""),
            overlay,
        )
        for r in rows
    )


def _layout_args(name: str, size: int, unit: int, fields: tuple[Field, ...]) -> dict[str, Any]:
    for f in fields:
        if f.lsb + f.width > unit or (f.word + 1) * unit > size * 8:
            raise SpecError(f"{name}.{f.name} lies outside its structure")
    return {
        "name": name,
        "size": size,
        "unit_bits": unit,
        "fields": fields,
        "by_name": {f.name: f for f in fields},
    }


def _structure(row: Mapping[str, Any]) -> Layout:
    fields = _fields(row["fields"]) + _fields(row.get("overlay_fields", ()), overlay=True)
    extra = row.get("recommended_layout_for_unknown_part", {}).get("fields", ())
    fields += _fields(r for r in extra if "word" in r)
    args = _layout_args(row["name"], row["size_bytes"], row["unit_bits"], fields)
    return Layout(**args, long_name=row.get("long_name", ""))


def _register(row: Mapping[str, Any]) -> Register:
    reset = row.get("reset", 0)
    if not isinstance(reset, int):
        reset = row.get("recommended_reset", row.get("openeuler_qemu_value"))
    if isinstance(reset, str):
        # Prose in the source ("0x0000B9EC (as QEMU with ...)"): the value comes first, or is ours to choose.
        head = reset.split()[0]
        reset = int(head, 16) if head.startswith("0x") else None
    return Register(
        row["name"],
        row["offset"],
        row["width"],
        row["access"],
        reset,
        row.get("guard", "NONE"),
        _fields(row["fields"]),
        row.get("note", ""),
    )


def _banks(rows: Iterable[Mapping[str, Any]]) -> dict[str, Bank]:
    out = {}
    for b in rows:
        stride = b["stride"] if isinstance(b["stride"], int) else int(b["stride"].split()[0], 16)
        out[b["name"]] = Bank(b["name"], b["base"], stride, tuple(_register(r) for r in b["registers"]))
    return out


def _commands(data: Mapping[str, Any]) -> tuple[dict[str, Command], dict[str, tuple[Field, ...]]]:
    size, unit = data["entry_bytes"], data["unit_bits"]
    common = _fields(data["common_fields"])
    groups = {name: _fields(rows) for name, rows in data["shared_groups"].items()}
    out = {}
    for row in data["commands"]:
        own = _fields(r for r in row["fields"] if "group" not in r)
        used = tuple(r["group"] for r in row["fields"] if "group" in r)
        names = {f.name for f in own}
        fields = own + tuple(f for f in common if f.name not in names)
        for g in used:
            fields += tuple(f for f in groups[g] if f.name not in names)
        # SSV (bit 11) shares its bit with no field that software sets; keep it only where free.
        taken = [f for f in own if f.word == 0]
        fields = tuple(f for f in fields if f.name != "SSV" or not any(t.mask & f.mask for t in taken))
        out[row["name"]] = Command(
            **_layout_args(row["name"], size, unit, fields),
            opcode=row["opcode"],
            meaning=row["meaning"],
            own_fields=own,
            groups=used,
        )
    return out, groups


def _enum(values: Mapping[Any, Any]) -> dict[str, int]:
    """Enums come as name: value, or as value: description (the first word becomes the name)."""
    out = {}
    for k, v in values.items():
        if isinstance(k, int):
            out[str(v).split(":")[0].split(",")[0].strip().replace(" ", "_").replace("-", "_").upper()] = k
        else:
            out[str(k)] = int(v)
    return out


def _read(name: str) -> dict[str, Any]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    data = yaml.load(text, Loader=_Loader)
    if not isinstance(data, dict):
        raise SpecError(f"{name}: not a mapping")
    return data


_ST_MODE = {"ABORT": 0, "BYPASS": 4, "S1": 5, "S2": 6, "NESTED": 7}
_ENUM_NAMES: dict[str, dict[str, int]] = {
    # The YAML describes these by sentences; the names are ours.
    "ST_MODE": _ST_MODE,
    "TCT_FMT": {"LINEAR": 0, "L2_64": 1, "L2_1024": 2, "RESERVED": 3},
    "UCPL_STATUS": {"NONE": 0, "SUCCESS": 1, "BAD_COMMAND": 2, "ERROR": 3},
    "MCMDQ_ERR_REASON": {"NONE": 0, "ILLEGAL": 1, "FETCH_ABORT": 2},
    "SYNC_CM": {"NONE": 0, "USI": 1, "SEV": 2},
    "TLBI_GS": {"4K": 1, "16K": 2, "64K": 3},
}


@functools.cache
def load() -> Spec:
    """The UMMU: registers, tables, commands, events.  Source: ``ummu-registers.yaml``, ``ummu-tables.yaml``."""
    regs, tables = _read("ummu-registers.yaml"), _read("ummu-tables.yaml")
    commands, groups = _commands(tables["mcmdq_commands"])
    ev = tables["events"]
    ev_fields = _fields(ev["fields"]) + _fields(ev["overlay_fields"], overlay=True)
    pmu = next(b for b in regs["optional_blocks"] if b["name"] == "PMU")
    return Spec(
        registers={r["name"]: _register(r) for r in regs["registers"]},
        banks=_banks(regs["banks"]),
        structures={s["name"]: _structure(s) for s in tables["structures"]},
        commands=commands,
        ucommands={c["name"]: c["opcode"] for c in tables["ucmdq_commands"]["commands"]},
        groups=groups,
        event_layout=Layout(**_layout_args("EVT", ev["entry_bytes"], ev["unit_bits"], ev_fields)),
        events={
            e["name"]: Event(e["name"], e["code"], e["when"], tuple(e["fields_filled"])) for e in ev["codes"]
        },
        enums={n: _ENUM_NAMES.get(n) or _enum(v) for n, v in tables["enums"].items()},
        pmu=pmu,
    )


@functools.cache
def load_accel() -> Spec:
    """The accelerator: registers, descriptor, completion, enums.  Source: ``accel.yaml``."""
    data = _read("accel.yaml")
    return Spec(
        registers={r["name"]: _register(r) for r in data["registers"]},
        banks=_banks(data["banks"]),
        structures={s["name"]: _structure(s) for s in data["structures"]},
        commands={},
        ucommands={},
        groups={},
        event_layout=None,
        events={},
        enums={n: _enum(v) for n, v in data["enums"].items()},
        pmu={},
    )
