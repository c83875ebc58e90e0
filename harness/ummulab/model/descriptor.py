# SPDX-License-Identifier: GPL-2.0-or-later
"""VMSAv8-64 descriptors and the table walk that both stages share (section 8.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ummulab.layouts import Entry
from ummulab.model.fetch import Trace
from ummulab.model.verdict import Refusal, Update
from ummulab.spec import Field, Layout

GRANULE_BITS = {0: 12, 1: 16, 2: 14}  # TGS / TG codes
ADDR_BITS = 48
AF, DBM = 1 << 10, 1 << 51

#: Translates a table address of this walk: (address, for writing) to a physical address.
TableAccess = Callable[[int, bool], int]


def _layout(name: str, fields: tuple[Field, ...]) -> Layout:
    return Layout(name, 8, 64, fields, by_name={f.name: f for f in fields})


_COMMON = (
    Field("VALID", 0, 0, 1),
    Field("TYPE", 0, 1, 1),
    Field("ADDR", 0, 12, 36),
    Field("AF", 0, 10, 1),
    Field("SH", 0, 8, 2),
    Field("DBM", 0, 51, 1),
    Field("CONTIGUOUS", 0, 52, 1),
)
#: Leaf descriptors; the architecture defines them, not the YAML files.
S1_DESC = _layout(
    "S1_DESC",
    (
        *_COMMON,
        Field("ATTR_INDEX", 0, 2, 3),
        Field("NS", 0, 5, 1),
        Field("USER", 0, 6, 1),
        Field("READ_ONLY", 0, 7, 1),
        Field("NG", 0, 11, 1),
        Field("PXN", 0, 53, 1),
        Field("UXN", 0, 54, 1),
        Field("PXN_TABLE", 0, 59, 1),
        Field("XN_TABLE", 0, 60, 1),
        Field("AP_TABLE", 0, 61, 2),
    ),
)
S2_DESC = _layout(
    "S2_DESC",
    (
        *_COMMON,
        Field("MEM_ATTR", 0, 2, 4),
        Field("READ", 0, 6, 1),
        Field("WRITE", 0, 7, 1),
        Field("XN", 0, 53, 2),
    ),
)


@dataclass(frozen=True)
class Geometry:
    """Where a walk starts and what it may produce.

    ``first_bits`` index bits are used at the start level (more than a page's worth with concatenated tables).
    """

    base: int
    granule_bits: int
    input_bits: int
    start_level: int
    output_bits: int
    big: bool

    @property
    def stride(self) -> int:
        """Index bits of a full table."""
        return self.granule_bits - 3

    def shift(self, level: int) -> int:
        """Lowest input bit that ``level`` resolves."""
        return self.granule_bits + (3 - level) * self.stride

    def index_bits(self, level: int) -> int:
        """Index bits used at ``level``."""
        return self.input_bits - self.shift(level) if level == self.start_level else self.stride


@dataclass(frozen=True)
class Stage:
    """How faults of a walk are reported: stage, class (choice 24) and IPA."""

    s2: bool
    cls: int
    ipa: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return "stage 2" if self.s2 else "stage 1"

    def refuse(self, event: str, reason: str, text: str, **detail: object) -> Refusal:
        """The refusal of this stage; reasons of stage 2 start with ``s2-``."""
        return Refusal(
            event,
            ("s2-" if self.s2 else "") + reason,
            "8.3",
            f"{self.name}: {text}",
            cls=self.cls,
            s2=self.s2,
            ipa=self.ipa,
            detail=detail,
        )


@dataclass(frozen=True)
class Leaf:
    """The descriptor that maps an address: value, its (intermediate and physical) address and its page."""

    desc: int
    addr: int
    physical: int
    level: int
    shift: int
    base: int
    ap_table: int = 0
    pxn_table: bool = False
    xn_table: bool = False


def stage1_start_level(input_bits: int, granule_bits: int) -> int:
    """8.1: 4 - ceil((input - g) / (g - 3))."""
    stride = granule_bits - 3
    return 4 - (input_bits - granule_bits + stride - 1) // stride


def block_allowed(granule_bits: int, level: int) -> bool:
    """8.1 leaf sizes: blocks at level 2 (2M, 32M, 512M) and, with 4 KiB pages, level 1 (1G)."""
    return level == 2 or (level == 1 and granule_bits == 12)


def address_of(desc: int, shift: int) -> int:
    """Output or next-table address: descriptor bits 47:shift."""
    return desc & ((1 << ADDR_BITS) - (1 << shift))


def walk(trace: Trace, geo: Geometry, addr: int, stage: Stage, access: TableAccess) -> Leaf:
    """Find the leaf of ``addr`` (already reduced to the input size); Refusal if there is none."""
    table = geo.base
    ap_table, pxn, xn = 0, False, False
    for level in range(geo.start_level, 4):
        _check_size(geo, table, stage, "table")
        where = table + (addr >> geo.shift(level) & ((1 << geo.index_bits(level)) - 1)) * 8
        desc, physical = _read(trace, geo, where, level, stage, access)
        if level < 3 and desc & 3 == 3:
            table = address_of(desc, geo.granule_bits)
            ap_table |= desc >> 61 & 3
            xn, pxn = xn or bool(desc >> 60 & 1), pxn or bool(desc >> 59 & 1)
            continue
        page = level == 3 and desc & 3 == 3
        if not page and not (level < 3 and desc & 3 == 1 and block_allowed(geo.granule_bits, level)):
            raise stage.refuse(
                "EVT_A_TRANSLATION",
                "no-mapping",
                f"level {level} descriptor {desc:#018x} maps nothing",
                level=level,
            )
        base = address_of(desc, geo.shift(level))
        _check_size(geo, base, stage, "output")
        return Leaf(desc, where, physical, level, geo.shift(level), base, ap_table, pxn, xn)
    raise AssertionError("level 3 always ends the walk")


def _read(
    trace: Trace, geo: Geometry, where: int, level: int, stage: Stage, access: TableAccess
) -> tuple[int, int]:
    physical = access(where, False)
    what = f"{stage.name} level {level} descriptor"
    try:
        data = trace.read(physical, 8, "EVT_A_PTW_EABT", what, "8.3", cls=1)
    except Refusal as refusal:
        refusal.s2, refusal.ipa = stage.s2, stage.ipa
        raise
    desc = int.from_bytes(data, "big" if geo.big else "little")
    kind = (
        "invalid"
        if not desc & 1
        else "table"
        if level < 3 and desc & 2
        else "page"
        if level == 3
        else "block"
    )
    trace.note(what, "8.1", kind, Entry(S2_DESC if stage.s2 else S1_DESC, physical, (desc,)))
    return desc, physical


def _check_size(geo: Geometry, addr: int, stage: Stage, what: str) -> None:
    if addr >> geo.output_bits:
        raise stage.refuse(
            "EVT_A_ADDR_SIZE", "address-size", f"{what} address {addr:#x} is not below 2^{geo.output_bits}"
        )


@dataclass(frozen=True)
class FlagPolicy:
    """Access flag by hardware, access-flag faults off, dirty state by hardware (within CAP3.HTTU)."""

    hardware: bool
    ignore: bool
    dirty: bool

    @staticmethod
    def of(haf: int, affd: int, hdf: int, httu: int) -> FlagPolicy:
        """From the entry's bits and CAP3.HTTU_SUPPORT."""
        hardware = bool(haf) and httu >= 1
        return FlagPolicy(hardware, bool(affd), hardware and bool(hdf) and httu >= 2)


def check_access_flag(leaf: Leaf, stage: Stage, policy: FlagPolicy) -> int:
    """8.3: AF = 0 is set (HAF), ignored (AFFD) or an ACCESS fault.  Returns the descriptor to use."""
    if leaf.desc & AF:
        return leaf.desc
    if policy.hardware:
        return leaf.desc | AF
    if not policy.ignore:
        raise stage.refuse("EVT_ACCESS", "access-flag", "the access flag is 0", addr=leaf.physical)
    return leaf.desc


def store(trace: Trace, geo: Geometry, leaf: Leaf, new: int, access: TableAccess) -> None:
    """The hardware changes a descriptor; in a nested walk stage 2 must allow that write."""
    if new == leaf.desc:
        return
    access(leaf.addr, True)
    order: Literal["big", "little"] = "big" if geo.big else "little"
    old_raw, new_raw = (int.from_bytes(v.to_bytes(8, order), "little") for v in (leaf.desc, new))
    trace.updates.append(Update(leaf.physical, old_raw, new_raw))
    trace.note("hardware update", "8.3", f"descriptor at {leaf.physical:#x} becomes {new:#018x}")
