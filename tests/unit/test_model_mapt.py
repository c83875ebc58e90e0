# SPDX-License-Identifier: GPL-2.0-or-later
"""Reference model, section 6: rights, ranges, level boundaries, hostile tables (V01, V03, V04, V05)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from ummulab import layouts
from ummulab.fuzz.image import PAGE, Builder, Mapt, PageTable
from ummulab.model import Access, Outcome, Request, Verdict, resolve
from ummulab.model.mapt import SHIFT

EID, TAG, TID = 0x100, 1, 7
RW = {"PERMISSION": 3}
#: A context that translates nothing: MATT_BYPASS keeps the page table out of MAPT tests.
BYPASS = {"MATT_BYPASS": 1}


class World:
    """One context with a MAPT."""

    def __init__(self, *, entry: bool = False, **fields: int) -> None:
        self.b = Builder()
        self.image = self.b.image
        self.tecte = self.b.entity(TAG, EID)
        self.mapt = Mapt(self.image)
        self.entry = self.image.take(32, 32) if entry else None
        matt = PageTable(self.image)
        self.tcte = self.b.context(
            TAG, TID, matt, None if entry else self.mapt, entry=self.entry, **{**BYPASS, **fields}
        )

    def single(self, first: int, last: int, **fields: int) -> None:
        """The one entry of single-entry mode."""
        assert self.entry is not None
        values = {
            "V": 1,
            "BASE_LO": first & 0xFFFFFFFF,
            "BASE_HI": first >> 32,
            "LIMIT_LO": last & 0xFFFFFFFF,
            "LIMIT_HI": last >> 32,
            "PERMISSION": 3,
            **fields,
        }
        self.image.write(self.entry, layouts.build("UMAPTE", **values))

    def node(self, addr: int, level: int) -> int:
        """Address of the node of ``addr`` at ``level``, following NEXT_LV_*."""
        table = self.mapt.root
        for at in range(level):
            where = self.mapt.node_addr(table, at, addr)
            n = layouts.parse("MAPTE", self.image.read(where, 32))
            table = (
                self.mapt.blocks[n["NEXT_LV_INDEX"]] + n.join("NEXT_LV_OFFSET_LO", "NEXT_LV_OFFSET_HI") * 32
            )
        return self.mapt.node_addr(table, level, addr)

    def set(self, name: str, addr: int, **fields: int) -> None:
        """Change fields of a structure in memory."""
        entry = layouts.parse(name, self.image.read(addr, layouts.layout(name).size), addr)
        self.image.write(addr, layouts.replace(entry, **fields))

    def ask(self, uba: int, length: int = 1, **changes: Any) -> Verdict:
        """Resolve a request."""
        return resolve(self.image, self.b.state, replace(Request(EID, TID, uba, length), **changes))

    def allowed(self, uba: int, length: int = 1, **changes: Any) -> bool:
        """True if the whole request is allowed."""
        return self.ask(uba, length, **changes).outcome is Outcome.OK


def refused(v: Verdict, code: int, reason: str) -> None:
    """Assert a recorded refusal."""
    assert v.refusal is not None and (v.code, v.refusal.reason) == (code, reason)


# ------------------------------------------------------------------ 6.3, V01
TOKENS = [(0, None), (0, 5), (1, None), (1, 0xAAAA), (1, 0xBBBB), (1, 0xCCCC), (1, 0), (1, 0xFFFFFFFF)]


@pytest.mark.parametrize("entry", [False, True], ids=["table", "single"])
def test_the_rights_matrix(entry: bool) -> None:
    world = World(entry=entry)
    va = 0x7000_0000_0000
    world.mapt.grant(va, va + PAGE - 1, **RW)
    bit = {Access.WRITE: 1, Access.READ: 2, Access.ATOMIC: 4}
    for permission, access, (check, token), node_e, ctx_e, req_e in itertools.product(
        range(8), Access, TOKENS, (0, 1), (0, 1), (0, 1)
    ):
        rights = {
            "PERMISSION": permission,
            "TOKEN_CHK": check,
            "E_BIT": node_e,
            "TOKEN_VAL_0": 0xAAAA,
            "TOKEN_VAL_1": 0xBBBB,
        }
        if entry:
            world.single(va, va + PAGE - 1, **rights)
        else:
            world.set("MAPTE", world.node(va, 3), **rights)
        world.set("TCTE", world.tcte, E_BIT=ctx_e)
        v = world.ask(va, access=access, token=token, e_bit=req_e)
        if ctx_e and not req_e:
            want, reads = 0x15, False
        elif node_e and not req_e:
            want, reads = 0x15, True
        else:
            token_ok = not check or token in (0xAAAA, 0xBBBB)
            want, reads = 0 if permission & bit[access] and token_ok else 0x13, True
        assert v.code == want, (permission, access, check, token, node_e, ctx_e, req_e)
        assert any(s.section.startswith("6.") for s in v.steps) == reads


@pytest.mark.parametrize("value", [0, 0xFFFFFFFF])
def test_extreme_tokens_are_ordinary_values(value: int) -> None:
    world = World(entry=True)
    world.single(0, 0xFFF, TOKEN_CHK=1, TOKEN_VAL_0=value, TOKEN_VAL_1=value)
    assert world.allowed(0, token=value)
    refused(world.ask(0, token=value ^ 1), 0x13, "token")
    refused(world.ask(0), 0x13, "token-missing")


@pytest.mark.parametrize("nonce", [0, 1, 2, 3])
def test_nonce_is_ignored(nonce: int) -> None:
    world = World(entry=True)
    world.single(0, 0xFFF, TOKEN_CHK=1, TOKEN_VAL_0=1, TOKEN_VAL_1=2, NONCE=nonce)
    assert world.allowed(0, token=1) and world.allowed(0, token=2)


def test_order_of_checks() -> None:
    world = World(entry=True)
    world.single(0, 0xFFF, E_BIT=1, PERMISSION=2, TOKEN_CHK=1, TOKEN_VAL_0=1, TOKEN_VAL_1=1)
    refused(world.ask(0, access=Access.WRITE, e_bit=0), 0x15, "node-e-bit")
    refused(world.ask(0, access=Access.WRITE), 0x13, "access-type")
    refused(world.ask(0), 0x13, "token-missing")


# ------------------------------------------------------------------ 5.4: switches
@pytest.mark.parametrize("off", ["register", "tecte", "tcte"])
def test_each_switch_turns_the_check_off(off: str) -> None:
    world = World()
    refused(world.ask(0x1000), 0x13, "no-grant")
    if off == "register":
        world.b.registers["CTRL0"] &= ~(1 << 5)
    else:
        where = world.tecte if off == "tecte" else world.tcte
        world.set(off.upper(), where, MAPT_EN=0)
    assert world.allowed(0x1000)


def test_length_zero_needs_no_permission() -> None:
    assert World().allowed(0x1000, 0)


# ------------------------------------------------------------------ 6.1, V05
def test_single_entry_limits_are_byte_exact() -> None:
    world = World(entry=True)
    world.single(0x1234, 0x12AA)
    assert world.allowed(0x1234, 0x77)
    assert world.allowed(0x12AA)
    refused(world.ask(0x1233), 0x13, "out-of-range")
    refused(world.ask(0x12AB), 0x13, "out-of-range")
    v = world.ask(0x1234, 0x78)
    assert (v.allowed_bytes, v.refused_at) == (0x77, 0x12AB)


def test_single_entry_at_the_end_of_the_address_space() -> None:
    world = World(entry=True)
    world.single((1 << 48) - 0x1000, (1 << 48) - 1)
    assert world.allowed((1 << 48) - 1)
    assert world.allowed((1 << 64) - 1), "upper bits are the translation's business"
    assert not world.allowed((1 << 48) - 0x1001)


def test_mode_bit_has_the_hardware_polarity() -> None:
    world = World(entry=True)
    world.single(0, 0xFFF)
    assert world.allowed(0)
    world.set("TCTE", world.tcte, MAPT_MODE=1, RTGS=1)
    assert not world.allowed(0)


# ------------------------------------------------------------------ 6.2, V03
@pytest.mark.parametrize("boundary", [1 << 21, 1 << 30, 1 << 39])
@pytest.mark.parametrize("delta", [-0x1000, 0, 0x1000])
@pytest.mark.parametrize(
    "length",
    [
        1,
        0xFFF,
        0x1000,
        0x1001,
        (2 << 20) - 0x1000,
        (2 << 20) + 0x1000,
        (1 << 30) + 0x2001,
        (2 << 30) + 0x2000,
        (512 << 30) + 0x1000,
    ],
)
def test_ranges_across_level_boundaries(boundary: int, delta: int, length: int) -> None:
    world = World()
    first = 4 * boundary + delta
    last = first + length - 1
    world.mapt.grant(first, last, **RW)
    for at, ok in ((first - 1, False), (first, True), (last, True), (last + 1, False)):
        assert world.allowed(at) == ok, hex(at)
    if length <= 1 << 30:
        assert world.allowed(first, length)
        v = world.ask(first, length + 1)
        assert (v.allowed_bytes, v.refused_at) == (length, last + 1)


def test_own_range_wins_over_the_level_below() -> None:
    world = World()
    world.mapt.grant(0x1000, 0x1FFF, PERMISSION=2)
    world.set("MAPTE", world.node(0x1000, 2), BASE_LO=0x3000, LIMIT_LO=0x4FFF, PERMISSION=1)
    assert world.allowed(0x1000)
    assert world.allowed(0x3000, access=Access.WRITE) and not world.allowed(0x3000)
    world.set("MAPTE", world.node(0x1000, 2), BASE_LO=0x1000, LIMIT_LO=0x4FFF)
    refused(world.ask(0x1000), 0x13, "access-type")


def test_freed_node_grants_nothing_itself_but_its_children_do() -> None:
    world = World()
    world.mapt.grant(0, 0x1FFF, PERMISSION=2)
    node = world.node(0, 2)
    assert world.allowed(0xFFF), "the 0xFFF marker is an empty range"
    world.set("MAPTE", node, PERMISSION=2, BASE_LO=0xFFF, LIMIT_LO=0xFFF)
    assert world.allowed(0xFFF), "a range of the single byte 0xFFF with rights is a range"
    world.set("MAPTE", node, PERMISSION=1)
    refused(world.ask(0xFFF), 0x13, "access-type")


@pytest.mark.parametrize("feature", [0, 1])
def test_free_bit(feature: int) -> None:
    world = World()
    world.b.registers["CAP5"] = world.b.state.reg("CAP5") | feature << 10
    world.mapt.grant(0, 0x1FFF, PERMISSION=2)
    world.set("MAPTE", world.node(0, 2), BASE_LO=0, LIMIT_LO=0x7FFF, PERMISSION=1, F_BIT=1)
    assert world.allowed(0x1000) == bool(feature)
    assert world.allowed(0x5000, access=Access.WRITE) != bool(feature)


def test_terminal_node_ends_the_walk() -> None:
    world = World()
    world.mapt.grant(0x1000, 0x1FFF, **RW)
    world.set("MAPTE", world.node(0, 2), T=1)
    refused(world.ask(0x1000), 0x13, "no-grant")


@pytest.mark.parametrize("last_level", [2, 3])
def test_granule_of_the_last_level(last_level: int) -> None:
    world = World()
    world.mapt.grant(0x1000, 0x1FFF, **RW)
    world.set("TCTE", world.tcte, RTGS=4 - last_level)
    assert world.allowed(0x1000) == (last_level == 3)


@pytest.mark.parametrize("level", range(4))
def test_only_the_bits_valid_at_a_level_count(level: int) -> None:
    world = World()
    addr = 5 << SHIFT[level]
    world.mapt.grant(addr, addr + 0xFFF, **RW)
    where = world.node(addr, level)
    if level < 3:
        world.set("MAPTE", where, T=1)
    high = 1 << SHIFT[level]
    world.set(
        "MAPTE", where, BASE_LO=high & 0xFFFFFFFF, BASE_HI=high >> 32 & 0x7F, LIMIT_LO=0xFFF, PERMISSION=3
    )
    assert world.allowed(addr) and world.allowed(addr + 0xFFF)
    if level < 3:
        assert not world.allowed(addr + 0x1000)


def test_reserved_permission_bits_grant_nothing() -> None:
    world = World(entry=True)
    world.single(0, 0xFFF, PERMISSION=0x38)
    assert not any(world.allowed(0, access=a) for a in Access)


# ------------------------------------------------------------------ V04: hostile tables
def two_blocks() -> tuple[World, int]:
    """A table whose level-1 node lives in block 1; returns the level-0 node's address."""
    world = World(MAPT_BT_SZ=0)
    world.mapt.used = 4
    world.mapt.grant(0x1000, 0x1FFF, **RW)
    assert world.allowed(0x1000)
    return world, world.node(0, 0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"NEXT_LV_INDEX": 5}, "block-invalid"),
        ({"NEXT_LV_INDEX": 511}, "block-invalid"),
        ({"NEXT_LV_INDEX": 512}, "block-index"),
        ({"NEXT_LV_INDEX": 0xFFFF}, "block-index"),
        ({"NEXT_LV_OFFSET_LO": 511}, "table-offset"),
        ({"NEXT_LV_OFFSET_LO": 2048}, "table-offset"),
        ({"NEXT_LV_OFFSET_HI": 0x3FF, "NEXT_LV_OFFSET_LO": 0xFFE00}, "table-offset"),
    ],
)
def test_bad_next_level(fields: dict[str, int], reason: str) -> None:
    world, node = two_blocks()
    world.set("MAPTE", node, **fields)
    refused(world.ask(0x1000), 0x12, reason)


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"V": 0}, 0x12, "block-invalid"),
        ({"BS": 10}, 0x12, "block-size"),
        ({"BS": 15}, 0x12, "block-size"),
        ({"BS": 1}, 0x12, "table-offset"),
        ({"BA": 1 << 40}, 0x11, "bus-error"),
    ],
)
def test_bad_block_descriptor(fields: dict[str, int], code: int, reason: str) -> None:
    world, _ = two_blocks()
    world.set("MAPT_BLOCK_DESC", world.mapt.table + 8, **fields)
    refused(world.ask(0x1000), code, reason)


def test_blocks_beyond_gpas() -> None:
    world, _ = two_blocks()
    world.set("TCTE", world.tcte, GPAS=0)
    assert world.allowed(0x1000)
    world.set("MAPT_BLOCK_DESC", world.mapt.table + 8, BA=1 << 27)
    refused(world.ask(0x1000), 0x12, "beyond-gpas")
    world.set("TCTE", world.tcte, MAPT_BBA=1 << 27)
    refused(world.ask(0x1000), 0x12, "beyond-gpas")


@pytest.mark.parametrize(
    ("code", "ok"), [(0, False), (1, False), (2, True), (9, True), (10, False), (15, False)]
)
def test_base_block_size(code: int, ok: bool) -> None:
    world = World()
    world.set("MAPTE", world.node(0, 0), V=1, T=1, LIMIT_LO=0xFFF, PERMISSION=3)
    world.set("TCTE", world.tcte, MAPT_BB_SZ=code)
    v = world.ask(0)
    assert (v.outcome is Outcome.OK) == ok
    assert v.code == (0 if ok else 0x12)


def test_a_table_that_points_to_its_own_root_ends_after_four_levels() -> None:
    world = World()
    world.set("MAPTE", world.node(0, 0), V=1, T=0, BASE_LO=0xFFF, LIMIT_LO=0xFFF)
    v = world.ask(0x10)
    refused(v, 0x13, "no-grant")
    assert sum(1 for s in v.steps if s.entry and s.entry.name == "MAPTE") == 4


def test_limit_below_base_grants_nothing() -> None:
    world = World()
    world.set("MAPTE", world.node(0, 0), V=1, T=1, BASE_LO=0x2000, LIMIT_LO=0x1000, PERMISSION=7)
    refused(world.ask(0x1800), 0x13, "out-of-range")


def test_bus_error_reports_the_node() -> None:
    world = World(entry=True, MAPT_BBA=1 << 41)
    v = world.ask(0x55)
    refused(v, 0x11, "bus-error")
    assert v.event is not None
    assert (v.event["FTADDR"], v.event["IADDR"], v.event["RNW"]) == ((1 << 46) >> 3, 0x55, 1)


def test_big_endian_nodes_follow_endi() -> None:
    world = World(entry=True, ENDI=1)
    world.single(0, 0xFFF)
    assert not world.allowed(0)
    assert world.entry is not None
    raw = world.image.read(world.entry, 32)
    world.image.write(world.entry, b"".join(raw[i : i + 4][::-1] for i in range(0, 32, 4)))
    assert world.allowed(0)
