# SPDX-License-Identifier: GPL-2.0-or-later
"""Builders for the tables a UMMU reads: MATT (page tables) and MAPT (permissions).

They write what a well-behaved driver would, and give the addresses of entries so that a test can break them.
"""

from __future__ import annotations

from ummulab.qtest.errors import QtestError
from ummulab.qtest.memory import Arena
from ummulab.spec import Layout, load

_SPEC = load()
MAPTE = _SPEC.structures["MAPTE"]
UMAPTE = _SPEC.structures["UMAPTE"]
BLOCK_DESC = _SPEC.structures["MAPT_BLOCK_DESC"]

# VMSAv8-64 descriptor bits
VALID, TABLE = 1 << 0, 1 << 1
AP_EL0, AP_RO, SH_INNER, AF, CONTIGUOUS, DBM = 1 << 6, 1 << 7, 3 << 8, 1 << 10, 1 << 52, 1 << 51
PXN, UXN = 1 << 53, 1 << 54
LEAF = AP_EL0 | SH_INNER | AF | PXN | UXN


class Matt:
    """A stage-1 page table with one granule size (``shift`` 12, 14 or 16) and ``va_bits`` of input."""

    def __init__(self, arena: Arena, shift: int = 12, va_bits: int = 48) -> None:
        self._arena = arena
        self.shift = shift
        self.bits = shift - 3
        self.va_bits = va_bits
        self.start_level = 4 - -(-(va_bits - shift) // self.bits)
        self.root = self._new_table()

    def _new_table(self) -> int:
        return self._arena.take(1 << self.shift, 1 << self.shift)

    def level_shift(self, level: int) -> int:
        """log2 of the bytes one entry of ``level`` covers."""
        return self.shift + self.bits * (3 - level)

    def entry(self, va: int, level: int, *, create: bool = True) -> int:
        """Address of the descriptor of ``va`` at ``level``, making the tables above it if wanted."""
        table = self.root
        low = va & ((1 << self.va_bits) - 1)
        for at in range(self.start_level, level + 1):
            index = (low >> self.level_shift(at)) & ((1 << self.bits) - 1)
            slot = table + 8 * index
            if at == level:
                return slot
            descriptor = self._arena.read_word(slot)
            if not descriptor & VALID:
                if not create:
                    raise QtestError(f"MATT: no table above {va:#x} at level {at + 1}")
                descriptor = self._new_table() | VALID | TABLE
                self._arena.write_word(slot, descriptor)
            table = descriptor & 0x0000FFFFFFFFFFFF & ~((1 << self.shift) - 1)
        raise QtestError(f"MATT: level {level} is above the start level {self.start_level}")

    def map(self, va: int, pa: int, size: int, *, level: int = 3, attributes: int = LEAF) -> None:
        """Map a range with leaves of one level."""
        step = 1 << self.level_shift(level)
        kind = VALID | (TABLE if level == 3 else 0)
        for at in range(0, size, step):
            self._arena.write_word(self.entry(va + at, level), (pa + at) | attributes | kind)

    def unmap(self, va: int, size: int, *, level: int = 3) -> None:
        """Clear the leaves of a range."""
        for at in range(0, size, 1 << self.level_shift(level)):
            self._arena.write_word(self.entry(va + at, level), 0)


class Mapt:
    """A MAPT in table mode: level tables packed into blocks, block 0 being the base block."""

    SPAN = (39, 30, 21, 12)
    NODE, LEVEL_BYTES, LEVELS_PER_BLOCK = 32, 512 * 32, 4

    def __init__(self, arena: Arena, *, last_level: int = 3) -> None:
        self._arena = arena
        self.last_level = last_level
        self.block_bytes = self.LEVEL_BYTES * self.LEVELS_PER_BLOCK
        self.table = arena.take(4096)
        self.blocks: list[int] = []
        self._tables_used = 0
        self.root = self._new_table()[2]

    def _new_table(self) -> tuple[int, int, int]:
        """(block index, offset in nodes, address) of a fresh level table."""
        slot = self._tables_used % self.LEVELS_PER_BLOCK
        if slot == 0:
            self.blocks.append(self._arena.take(self.block_bytes, self.block_bytes))
            descriptor = BLOCK_DESC.pack(**block_desc_fields(self.blocks[-1], self.block_bytes))
            self._arena.write(self.table + 8 * (len(self.blocks) - 1), descriptor)
        self._tables_used += 1
        index = len(self.blocks) - 1
        offset = slot * self.LEVEL_BYTES
        return index, offset // self.NODE, self.blocks[index] + offset

    def node(self, va: int, level: int) -> int:
        """Address of the node of ``va`` at ``level``; tables and non-terminal nodes above it are made."""
        table = self.root
        for at in range(level + 1):
            slot = table + self.NODE * ((va >> self.SPAN[at]) & 511)
            if at == level:
                return slot
            fields = self.read(slot)
            if not fields["V"] or fields["T"]:
                block, offset, address = self._new_table()
                if not fields["V"]:  # an empty own range, as software marks it
                    fields.update(V=1, BASE_LO=0xFFF, LIMIT_LO=0xFFF)
                fields.update(T=0, N=int(block != 0), NEXT_LV_INDEX=block, NEXT_LV_OFFSET_LO=offset)
                self.write(slot, **fields)
                table = address
            else:
                offset = fields["NEXT_LV_OFFSET_LO"] | fields["NEXT_LV_OFFSET_HI"] << 20
                table = self.blocks[fields["NEXT_LV_INDEX"]] + offset * self.NODE
        raise AssertionError("unreachable: the loop returns at the wanted level")

    def read(self, node: int) -> dict[str, int]:
        """Fields of a node."""
        return MAPTE.unpack(self._arena.read(node, MAPTE.size))

    def write(self, node: int, **fields: int) -> None:
        """Replace a node."""
        self._arena.write(node, MAPTE.pack(**fields))

    def grant(
        self,
        va: int,
        length: int,
        permission: int,
        *,
        token: int | None = None,
        token2: int | None = None,
        e_bit: int = 0,
    ) -> list[int]:
        """Permit [va, va + length); returns the addresses of the nodes that hold the range."""
        rights = {"V": 1, "PERMISSION": permission, "E_BIT": e_bit}
        if token is not None:
            second = token if token2 is None else token2
            rights.update(
                TOKEN_CHK=1, TOKEN_VAL_0=token, TOKEN_VAL_1=second, NONCE=1 if token2 is None else 2
            )
        return self._grant(0, va, va + length - 1, rights)

    def _grant(self, level: int, first: int, last: int, rights: dict[str, int]) -> list[int]:
        span = 1 << self.SPAN[level]
        if first // span == last // span and level < self.last_level:
            return self._grant(level + 1, first, last, rights)
        nodes: list[int] = []
        for start in range(first - first % span, last + 1, span):
            low, high = max(first, start), min(last, start + span - 1)
            slot = self.node(low, level)
            if self._own_range(self.read(slot)) and level < self.last_level:
                nodes += self._grant(level + 1, low, high, rights)
                continue
            self.set_range(slot, low - start, high - start, **rights)
            nodes.append(slot)
        return nodes

    @staticmethod
    def _own_range(fields: dict[str, int]) -> bool:
        empty = fields["BASE_LO"] == fields["LIMIT_LO"] == 0xFFF and not fields["PERMISSION"]
        return bool(fields["V"]) and not empty

    def set_range(self, node: int, base: int, limit: int, **rights: int) -> None:
        """Give a node its own range and rights, keeping its next level if it has one."""
        old = self.read(node)
        keep = {k: old[k] for k in ("N", "NEXT_LV_INDEX", "NEXT_LV_OFFSET_LO", "NEXT_LV_OFFSET_HI")}
        terminal = old["T"] if old["V"] else 1
        self.write(
            node,
            T=terminal,
            **keep,
            BASE_LO=base & 0xFFFFFFFF,
            BASE_HI=base >> 32,
            LIMIT_LO=limit & 0xFFFFFFFF,
            LIMIT_HI=limit >> 32,
            **rights,
        )

    def revoke(self, nodes: list[int]) -> None:
        """Take the own range of the nodes away, as the driver does without FREE_BIT."""
        for node in nodes:
            fields = self.read(node)
            if fields["T"]:
                self.write(node)
            else:
                fields.update(BASE_LO=0xFFF, BASE_HI=0, LIMIT_LO=0xFFF, LIMIT_HI=0, PERMISSION=0, TOKEN_CHK=0)
                self.write(node, **fields)


def address_field(layout: Layout, name: str, address: int) -> int:
    """The value of an address field: the field's lsb is the address bit it starts at."""
    return address >> layout.by_name[name].lsb


def block_desc_fields(address: int, size: int) -> dict[str, int]:
    """Fields of a MAPT block table entry for a block."""
    order = (size >> 12).bit_length() - 1
    return {"V": 1, "BA": address_field(BLOCK_DESC, "BA", address), "BS": order}
