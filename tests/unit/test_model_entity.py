# SPDX-License-Identifier: GPL-2.0-or-later
"""Reference model, sections 4 and 5.1 to 5.3: entity, context, E_bit; each rule both ways (V15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ummulab import layouts
from ummulab.fuzz.image import PAGE, S1_RW, Builder, PageTable
from ummulab.model import Access, Outcome, Request, State, Verdict, resolve

EID, TAG, TID, VA = 0x1_0000_0000_0000_0100, 3, 0x123, 0x7F00_1234_5000


class World:
    """One entity with one context that maps one page; every part can be broken."""

    def __init__(self, **kwargs: Any) -> None:
        self.b = Builder(**kwargs)
        self.image = self.b.image
        self.tecte = self.b.entity(TAG, EID)
        self.pt = PageTable(self.image)
        self.pa = self.image.take(PAGE)
        self.leaf = self.pt.map(VA, self.pa, S1_RW)
        self.tcte = self.b.context(TAG, TID, self.pt)

    def set(self, name: str, addr: int, **fields: int) -> None:
        """Change fields of a structure in memory."""
        entry = layouts.parse(name, self.image.read(addr, layouts.layout(name).size), addr)
        self.image.write(addr, layouts.replace(entry, **fields))

    def ask(self, **changes: Any) -> Verdict:
        """Resolve a read of the mapped page, with changes."""
        return resolve(self.image, self.b.state, replace(Request(EID, TID, VA), **changes))


@pytest.fixture
def world() -> World:
    return World()


def refused(v: Verdict, code: int, reason: str) -> dict[str, int]:
    """Assert a recorded refusal and give its event."""
    assert v.outcome is Outcome.FAULT
    assert v.refusal is not None
    assert (v.code, v.refusal.reason) == (code, reason)
    assert v.extents == [] and v.refused_at == v.request.uba
    assert v.event is not None
    return v.event


def test_the_whole_chain_gives_the_physical_address(world: World) -> None:
    v = world.ask(uba=VA + 0x123, length=16)
    assert v.outcome is Outcome.OK
    assert [(e.uba, e.pa, e.length) for e in v.extents] == [(VA + 0x123, world.pa + 0x123, 16)]
    assert [s.entry.name for s in v.steps if s.entry] == ["TECTE", "TCT_L1_DESC", "TCTE"] + ["S1_DESC"] * 4
    assert all(s.section for s in v.steps)


def test_off_and_bypassing(world: World) -> None:
    state = State({**world.b.registers, "CTRL0": 0}, world.b.kv)
    v = resolve(world.image, state, Request(EID, TID, VA, 64))
    assert [(e.uba, e.pa, e.length) for e in v.extents] == [(VA, VA, 64)]


def test_off_and_aborting(world: World) -> None:
    state = State({**world.b.registers, "CTRL0": 0, "GBPA": 1 << 15}, world.b.kv)
    v = resolve(world.image, state, Request(EID, TID, VA))
    assert v.outcome is Outcome.FAULT and v.event is None


# ------------------------------------------------------------------ 5.1
def test_unknown_eid(world: World) -> None:
    event = refused(world.ask(eid=EID + (1 << 64)), 0x02, "eid-unknown")
    assert event == {"CODE": 2, "EID_LOW": EID & (1 << 64) - 1, "EID_HIGH": 2, "TID": TID, "IADDR": VA}


def test_unknown_eid_is_silent_unless_recording_is_on(world: World) -> None:
    world.b.registers["CTRL1"] &= ~(1 << 13)
    v = world.ask(eid=5)
    assert v.outcome is Outcome.FAULT and v.code == 0 and v.refusal is not None
    assert v.refusal.event == "EVT_BAD_DSTEID"


@pytest.mark.parametrize(("eid", "ok"), [(TAG, True), (TAG + (1 << 16), False), (1 << 127 | TAG, False)])
def test_direct_index_needs_zero_upper_bits(world: World, eid: int, ok: bool) -> None:
    world.b.registers["CTRL1"] &= ~(1 << 15)
    v = world.ask(eid=eid)
    assert (v.outcome is Outcome.OK) == ok
    if not ok:
        refused(v, 0x02, "eid-unknown")


@pytest.mark.parametrize("tag", [4, 5, 0xFFFF])
def test_tag_beyond_log2size_reads_nothing_behind_the_table(world: World, tag: int) -> None:
    world.b.registers["TECT_BASE_CFG"] = 2
    assert world.ask().outcome is Outcome.OK
    valid = world.image.read(world.tecte, 64)
    if tag < 16:
        world.image.write(world.b.tecte_addr(tag), valid)
    world.b.kv[77] = tag
    v = world.ask(eid=77)
    refused(v, 0x02, "tag-range")
    assert not [s for s in v.steps if s.entry]


@pytest.mark.parametrize("split", [6, 8, 10])
def test_two_level_tect(world: World, split: int) -> None:
    tag = (2 << split) + 3
    l1 = world.image.take(PAGE)
    l2 = world.image.take(64 << split)
    world.b.registers["TECT_BASE"] = l1
    world.b.registers["TECT_BASE_CFG"] = 16 | split << 6 | 1 << 11
    world.b.kv[EID] = tag
    world.image.write(l1 + 16, layouts.build("TECT_L1_DESC", V=1, L2TECTE_NUM=2, L2PTR=l2 >> 6))
    world.image.write(l2 + 3 * 64, world.image.read(world.tecte, 64))
    assert world.ask().outcome is Outcome.OK
    world.b.kv[EID] = tag + 1  # index 4 of 2^2 entries
    world.image.write(l2 + 4 * 64, world.image.read(world.tecte, 64))
    refused(world.ask(), 0x02, "tect-l2-range")
    world.b.kv[EID] = tag - (1 << split)  # level-1 descriptor is 0
    refused(world.ask(), 0x02, "tect-l1-invalid")


def test_tect_bus_error_reports_the_address(world: World) -> None:
    world.b.registers["TECT_BASE"] = 1 << 47
    event = refused(world.ask(), 0x03, "bus-error")
    assert event == {"CODE": 3, "TECTE_TAG": TAG, "TID": TID, "FTADDR": ((1 << 47) + TAG * 64) >> 3}


def test_tecte_invalid_with_all_else_valid(world: World) -> None:
    world.set("TECTE", world.tecte, V=0)
    assert refused(world.ask(), 0x04, "tecte-invalid")["TECTE_TAG"] == TAG


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_abort_modes_are_silent(world: World, mode: int) -> None:
    world.set("TECTE", world.tecte, ST_MODE=mode)
    v = world.ask()
    assert v.outcome is Outcome.FAULT and v.event is None and v.extents == []


def test_bypass_mode_looks_at_nothing_else(world: World) -> None:
    world.set("TECTE", world.tecte, ST_MODE=4)
    v = world.ask(tid=0xFFFFF, length=0x10000)
    assert [(e.pa, e.length) for e in v.extents] == [(VA, 0x10000)]


@pytest.mark.parametrize(("mode", "cap"), [(5, 1 << 12), (6, 1 << 11), (7, 1 << 11), (7, 1 << 12)])
def test_a_stage_the_capabilities_deny(world: World, mode: int, cap: int) -> None:
    world.set("TECTE", world.tecte, ST_MODE=mode)
    world.b.registers["CAP2"] = world.b.state.reg("CAP2") & ~cap
    refused(world.ask(), 0x04, "stage-unsupported")


@pytest.mark.parametrize(("field", "value", "privileged"), [("PRIV_SEL", 2, False), ("PRIV_SEL", 3, True)])
def test_privilege_override(world: World, field: str, value: int, privileged: bool) -> None:
    world.image.write(world.leaf, (world.pa | 1 << 10 | 3).to_bytes(8, "little"))  # privileged page
    world.set("TECTE", world.tecte, **{field: value})
    assert (world.ask(privileged=not privileged).outcome is Outcome.OK) == privileged


# ------------------------------------------------------------------ 5.2
@pytest.mark.parametrize(
    ("num", "tid", "ok"), [(6, 63, True), (6, 64, False), (6, 0xFFFFF, False), (0, 0, False)]
)
def test_tid_bound(num: int, tid: int, ok: bool) -> None:
    world = World(tct_fmt=0, tid_bits=10)
    world.image.write(world.b.tcte_addr(TAG, min(tid, 1023)), world.image.read(world.tcte, 64))
    world.set("TECTE", world.tecte, TCT_NUM=num)
    v = world.ask(tid=tid)
    assert (v.outcome is Outcome.OK) == ok
    if not ok:
        refused(v, 0x06, "tid-range")
        assert [s.entry.name for s in v.steps if s.entry] == ["TECTE"]


@pytest.mark.parametrize("fmt", [0, 1, 2])
def test_tct_formats(fmt: int) -> None:
    world = World(tct_fmt=fmt, tid_bits=12)
    assert world.ask().outcome is Outcome.OK
    refused(world.ask(tid=TID ^ 1), 0x08, "tcte-invalid")
    if fmt:
        refused(world.ask(tid=0xFFF), 0x06, "tct-l1-invalid")


def test_reserved_tct_format(world: World) -> None:
    world.set("TECTE", world.tecte, TCT_FMT=3)
    refused(world.ask(), 0x04, "tct-fmt")


def test_tct_bus_error(world: World) -> None:
    world.set("TECTE", world.tecte, TCT_PTR=1 << 40)
    assert refused(world.ask(), 0x07, "bus-error")["FTADDR"] == 1 << 43


ILLEGAL = [
    ({"MAPT_EN": 1, "MAPT_MODE": 1, "RTGS": 0}, "rtgs"),
    ({"MAPT_EN": 1, "MAPT_MODE": 1, "RTGS": 3}, "rtgs"),
    ({"HDF": 1, "HAF": 0}, "hdf-without-haf"),
    ({"MAC_EN": 1}, "mac-en"),
    ({"GPAS": 6}, "gpas"),
    ({"GPAS": 7}, "gpas"),
    ({"SZ": 0}, "sz"),
    ({"SZ": 15}, "sz"),
    ({"SZ": 49}, "sz"),
    ({"SZ": 63}, "sz"),
    ({"TGS": 3}, "granule"),
    ({"TGS": 1, "SZ": 48}, "sz"),
]


@pytest.mark.parametrize(("fields", "reason"), ILLEGAL)
def test_illegal_contexts(world: World, fields: dict[str, int], reason: str) -> None:
    world.set("TCTE", world.tcte, **fields)
    refused(world.ask(), 0x08, reason)


@pytest.mark.parametrize("fields", [{"HDF": 1, "HAF": 1}, {"MAPT_MODE": 1, "RTGS": 0}, {"AFFD": 1, "WXN": 1}])
def test_similar_contexts_that_are_legal(world: World, fields: dict[str, int]) -> None:
    world.set("TCTE", world.tcte, **fields)
    assert world.ask().outcome is Outcome.OK


def test_stall_request_while_stalls_are_forbidden(world: World) -> None:
    world.set("TCTE", world.tcte, FBS=1)
    assert world.ask().outcome is Outcome.OK
    world.set("TECTE", world.tecte, TCT_STALL_DISABLE=1)
    refused(world.ask(), 0x08, "fbs")
    world.set("TECTE", world.tecte, TCT_STALL_DISABLE=0)
    world.b.registers["CAP3"] = world.b.state.reg("CAP3") | 1 << 12  # STALL_MODEL 1
    refused(world.ask(), 0x08, "fbs")


# ------------------------------------------------------------------ 5.3
@pytest.mark.parametrize(
    ("table", "request_bit", "ok"), [(0, 0, True), (0, 1, True), (1, 0, False), (1, 1, True)]
)
def test_context_e_bit(world: World, table: int, request_bit: int, ok: bool) -> None:
    world.set("TCTE", world.tcte, E_BIT=table)
    v = world.ask(e_bit=request_bit, access=Access.WRITE)
    assert (v.outcome is Outcome.OK) == ok
    if not ok:
        event = refused(v, 0x15, "context-e-bit")
        assert event == {"CODE": 0x15, "TECTE_TAG": TAG, "TID": TID, "IADDR": VA, "RNW": 0}
        assert "S1_DESC" not in [s.entry.name for s in v.steps if s.entry]


def test_requests_that_do_not_exist_are_refused() -> None:
    for bad in ({"tid": 1 << 20}, {"e_bit": 2}, {"uba": 1 << 64}, {"length": -1}, {"token": 1 << 32}):
        with pytest.raises(ValueError, match="does not fit"):
            replace(Request(EID, TID, VA), **bad)
