# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory images with UMMU tables in them: a sparse RAM window and builders for entities, contexts and grants.

Used by the model's tests, by the decoders' tests and by differential runs.  Builders write what the hardware
reads and nothing else; every structure can be broken afterwards through its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ummulab import layouts
from ummulab.memory import MemoryReadError
from ummulab.model import State
from ummulab.model.descriptor import GRANULE_BITS, stage1_start_level
from ummulab.model.mapt import FREED, LEVEL_BYTES, NODE_BYTES, SHIFT

PAGE = 4096
#: Where RAM starts and how much of it there is (the aarch64 machine with 256 MiB).
RAM_BASE, RAM_SIZE = 0x4000_0000, 256 << 20


class Image:
    """RAM of ``size`` bytes at ``base``: unwritten bytes are 0, everything outside is a bus error."""

    def __init__(self, base: int = RAM_BASE, size: int = RAM_SIZE) -> None:
        self.base = base
        self.size = size
        self._pages: dict[int, bytearray] = {}
        self._next = base + (16 << 20)

    def take(self, size: int, align: int = PAGE) -> int:
        """Address of ``size`` unused bytes."""
        addr = -(-self._next // align) * align
        self._next = addr + size
        if self._next > self.base + self.size:
            raise ValueError("the image's RAM is used up")
        return addr

    def write(self, addr: int, data: bytes) -> None:
        """Put bytes; MemoryReadError outside RAM."""
        self._check(addr, len(data))
        at = 0
        while at < len(data):
            page, offset = divmod(addr + at, PAGE)
            part = data[at : at + PAGE - offset]
            self._pages.setdefault(page, bytearray(PAGE))[offset : offset + len(part)] = part
            at += len(part)

    def read(self, addr: int, length: int) -> bytes:
        """Bytes of RAM; MemoryReadError outside."""
        self._check(addr, length)
        out = bytearray()
        while len(out) < length:
            page, offset = divmod(addr + len(out), PAGE)
            take = min(length - len(out), PAGE - offset)
            data = self._pages.get(page)
            out += data[offset : offset + take] if data else bytes(take)
        return bytes(out)

    def _check(self, addr: int, length: int) -> None:
        if not (self.base <= addr and addr + length <= self.base + self.size):
            raise MemoryReadError(addr, length)

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Every page that was written, as (address, bytes)."""
        for page in sorted(self._pages):
            yield page * PAGE, bytes(self._pages[page])

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """The non-zero 32-byte pieces: what a readable regression file lists."""
        for addr, data in self.pages():
            for at in range(0, PAGE, NODE_BYTES):
                piece = data[at : at + NODE_BYTES]
                if any(piece):
                    yield addr + at, piece


@dataclass
class PageTable:
    """A VMSAv8-64 table under construction (either stage)."""

    image: Image
    granule: int = 0
    input_bits: int = 48
    start_level: int = -1
    root: int = 0

    def __post_init__(self) -> None:
        bits = GRANULE_BITS[self.granule]
        if self.start_level < 0:
            self.start_level = stage1_start_level(self.input_bits, bits)
        index_bits = self.input_bits - self.shift(self.start_level)
        size = max(64, 8 << index_bits)
        self.root = self.image.take(size, size)

    def shift(self, level: int) -> int:
        """Lowest input bit resolved at ``level``."""
        bits = GRANULE_BITS[self.granule]
        return bits + (3 - level) * (bits - 3)

    def slot(self, va: int, level: int = 3) -> int:
        """Address of the descriptor of ``va`` at ``level``; tables above it are made as needed."""
        bits = GRANULE_BITS[self.granule]
        va &= (1 << self.input_bits) - 1
        table = self.root
        for at in range(self.start_level, level):
            addr = table + self._index(va, at) * 8
            desc = int.from_bytes(self.image.read(addr, 8), "little")
            if not desc & 1:
                desc = self.image.take(1 << bits, 1 << bits) | 3
                self.image.write(addr, desc.to_bytes(8, "little"))
            table = desc & ((1 << 48) - (1 << bits))
        return table + self._index(va, level) * 8

    def _index(self, va: int, level: int) -> int:
        width = (
            self.input_bits - self.shift(level)
            if level == self.start_level
            else GRANULE_BITS[self.granule] - 3
        )
        return va >> self.shift(level) & ((1 << width) - 1)

    def map(self, va: int, pa: int, attrs: int, level: int = 3) -> int:
        """One leaf; returns the address of its descriptor."""
        slot = self.slot(va, level)
        self.image.write(slot, (pa | attrs | (3 if level == 3 else 1)).to_bytes(8, "little"))
        return slot


#: Leaf attributes: access flag, user, inner shareable; add S1_RO for read-only.
S1_RW, S1_RO = 1 << 10 | 1 << 6 | 3 << 8, 1 << 7
S2_RW, S2_R = 1 << 10 | 3 << 6 | 0xF << 2, 1 << 10 | 1 << 6 | 0xF << 2


@dataclass
class Mapt:
    """A MAPT in table mode under construction: level tables packed into blocks."""

    image: Image
    block_code: int = 4  # 64 KiB: four level tables
    last_level: int = 3
    blocks: list[int] = field(default_factory=list)
    used: int = 0
    table: int = 0

    def __post_init__(self) -> None:
        self.table = self.image.take(PAGE)
        self._new_block()
        self.used = 1  # the root

    @property
    def root(self) -> int:
        """The base block (MAPT_BBA)."""
        return self.blocks[0]

    def _new_block(self) -> None:
        size = PAGE << self.block_code
        addr = self.image.take(size, size)
        desc = layouts.build("MAPT_BLOCK_DESC", V=1, BA=addr >> 5, BS=self.block_code)
        self.image.write(self.table + len(self.blocks) * 8, desc)
        self.blocks.append(addr)
        self.used = 0

    def new_level(self) -> tuple[int, int]:
        """(block index, offset in nodes) of a fresh level table."""
        if (self.used + 1) * LEVEL_BYTES > PAGE << self.block_code:
            self._new_block()
        self.used += 1
        return len(self.blocks) - 1, (self.used - 1) * LEVEL_BYTES // NODE_BYTES

    def node_addr(self, level_table: int, level: int, addr: int) -> int:
        """Address of the node of ``addr`` in a level table."""
        return level_table + (addr >> SHIFT[level] & 511) * NODE_BYTES

    def grant(self, first: int, last: int, **rights: int) -> None:
        """Grant [first, last] as software does: full spans as high as possible, partial ones further down."""
        self._place(self.root, 0, 0, first, last, rights)

    def _place(
        self, table: int, block: int, level: int, first: int, last: int, rights: dict[str, int]
    ) -> None:
        span = 1 << SHIFT[level]
        while first <= last:
            start = first & -span
            end = min(last, start + span - 1)
            where = self.node_addr(table, level, first)
            node = layouts.parse("MAPTE", self.image.read(where, NODE_BYTES), where)
            whole = first == start and end == start + span - 1
            if level == self.last_level or (whole and not node["V"]):
                self._own(where, node, first - start, end - start, rights)
            else:
                child_block, child = self._child(where, node, block)
                self._place(child, child_block, level + 1, first, end, rights)
            first = end + 1

    def _own(self, where: int, node: layouts.Entry, base: int, limit: int, rights: dict[str, int]) -> None:
        terminal = 1 if not node["V"] else node["T"]
        fields = {
            "V": 1,
            "T": terminal,
            "BASE_LO": base & 0xFFFFFFFF,
            "BASE_HI": base >> 32,
            "LIMIT_LO": limit & 0xFFFFFFFF,
            "LIMIT_HI": limit >> 32,
            **rights,
        }
        self.image.write(where, layouts.replace(node, **fields))

    def _child(self, where: int, node: layouts.Entry, block: int) -> tuple[int, int]:
        if node["V"] and not node["T"]:
            index = node["NEXT_LV_INDEX"]
            return index, self.blocks[index] + node.join(
                "NEXT_LV_OFFSET_LO", "NEXT_LV_OFFSET_HI"
            ) * NODE_BYTES
        index, offset = self.new_level()
        fields = {
            "V": 1,
            "T": 0,
            "N": int(index != block),
            "NEXT_LV_INDEX": index,
            "NEXT_LV_OFFSET_LO": offset & 0xFFFFF,
            "NEXT_LV_OFFSET_HI": offset >> 20,
        }
        if not node["V"]:
            fields.update(BASE_LO=FREED, LIMIT_LO=FREED, PERMISSION=0)
        self.image.write(where, layouts.replace(node, **fields))
        return index, self.blocks[index] + offset * NODE_BYTES


class Builder:
    """A whole UMMU set-up in an image: TECT, TCTs, contexts, and the registers that point to them."""

    def __init__(
        self, image: Image | None = None, *, tag_bits: int = 4, tid_bits: int = 20, tct_fmt: int = 2
    ) -> None:
        self.image = image or Image()
        self.tag_bits = tag_bits
        self.tid_bits = tid_bits
        self.tct_fmt = tct_fmt
        self.tect = self.image.take(64 << tag_bits)
        self.kv: dict[int, int] = {}
        self.registers: dict[str, int] = {
            "TECT_BASE": self.tect,
            "TECT_BASE_CFG": tag_bits,
            "CTRL0": 0x23,
            "CTRL1": 0x9D75 | 1 << 13,
        }

    @property
    def state(self) -> State:
        """Registers and bindings for the reference model."""
        return State(self.registers, self.kv)

    def tecte_addr(self, tag: int) -> int:
        """Address of a tag's TECTE."""
        return self.tect + tag * 64

    def entity(self, tag: int, eid: int | None = None, **fields: int) -> int:
        """A valid entity (stage 1, MAPT on) with its own TCT; returns the TECTE's address."""
        if eid is not None:
            self.kv[eid] = tag
        size = {0: 64 << self.tid_bits, 1: 8 << max(0, self.tid_bits - 6), 2: 8 << max(0, self.tid_bits - 10)}
        tct = self.image.take(max(64, size[self.tct_fmt]))
        values = {
            "V": 1,
            "ST_MODE": 5,
            "MAPT_EN": 1,
            "TCT_NUM": self.tid_bits,
            "TCT_FMT": self.tct_fmt,
            "TCT_PTR": tct >> 6,
            "S2_FBR": 1,
            **fields,
        }
        self.image.write(self.tecte_addr(tag), layouts.build("TECTE", **values))
        return self.tecte_addr(tag)

    def tcte_addr(self, tag: int, tid: int) -> int:
        """Address of a context, making its level-2 table if needed."""
        tecte = layouts.parse("TECTE", self.image.read(self.tecte_addr(tag), 64))
        base, fmt = tecte["TCT_PTR"] << 6, tecte["TCT_FMT"]
        if fmt == 0:
            return base + tid * 64
        split = 6 if fmt == 1 else 10
        slot = base + (tid >> split) * 8
        desc = layouts.parse("TCT_L1_DESC", self.image.read(slot, 8))
        if not desc["V"]:
            table = self.image.take(64 << split)
            self.image.write(slot, layouts.build("TCT_L1_DESC", V=1, L2TCT_PTR=table >> 12))
            desc = layouts.parse("TCT_L1_DESC", self.image.read(slot, 8))
        return (desc["L2TCT_PTR"] << 12) + (tid & ((1 << split) - 1)) * 64

    def context(
        self,
        tag: int,
        tid: int,
        matt: PageTable,
        mapt: Mapt | None = None,
        *,
        entry: int | None = None,
        **fields: int,
    ) -> int:
        """A valid context; ``mapt``: table mode, ``entry``: address of a single UMAPTE, neither: no MAPT."""
        values = {
            "V": 1,
            "AA64": 1,
            "GPAS": 5,
            "FBR": 1,
            "FBA": 1,
            "SZ": 64 - matt.input_bits,
            "TGS": matt.granule,
            "MATTBA": matt.root >> 4,
        }
        if mapt is not None:
            values.update(
                MAPT_EN=1,
                MAPT_MODE=1,
                RTGS=4 - mapt.last_level,
                MAPT_BBA=mapt.root >> 5,
                MAPT_BB_SZ=mapt.block_code,
                MAPT_BTA=mapt.table >> 5,
            )
        elif entry is not None:
            values.update(MAPT_EN=1, MAPT_BBA=entry >> 5)
        where = self.tcte_addr(tag, tid)
        self.image.write(where, layouts.build("TCTE", **{**values, **fields}))
        return where
