# SPDX-License-Identifier: GPL-2.0-or-later
"""Reference model, section 8: stage 1 walks, attributes, flags, fault policy; each rule both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ummulab import layouts
from ummulab.fuzz.image import S1_RO, S1_RW, Builder, PageTable
from ummulab.model import Access, Outcome, Request, Verdict, resolve

EID, TAG, TID = 0x100, 1, 0xABCDE
VA = 0x7FFF_DEAD_B000
AF, USER, DBM, PXN, UXN = 1 << 10, 1 << 6, 1 << 51, 1 << 53, 1 << 54


class World:
    """One context and its page table; no MAPT."""

    def __init__(self, granule: int = 0, input_bits: int = 48, **fields: int) -> None:
        self.b = Builder()
        self.image = self.b.image
        self.tecte = self.b.entity(TAG, EID)
        self.pt = PageTable(self.image, granule, input_bits)
        self.tcte = self.b.context(TAG, TID, self.pt, **fields)

    def set(self, name: str, addr: int, **fields: int) -> None:
        """Change fields of a structure in memory."""
        entry = layouts.parse(name, self.image.read(addr, layouts.layout(name).size), addr)
        self.image.write(addr, layouts.replace(entry, **fields))

    def put(self, addr: int, desc: int) -> None:
        """Write a raw descriptor."""
        self.image.write(addr, desc.to_bytes(8, "little"))

    def ask(self, uba: int = VA, length: int = 1, **changes: Any) -> Verdict:
        """Resolve a request."""
        return resolve(self.image, self.b.state, replace(Request(EID, TID, uba, length), **changes))

    def ok(self, **changes: Any) -> bool:
        """True if the request is allowed."""
        return self.ask(**changes).outcome is Outcome.OK


def refused(v: Verdict, code: int, reason: str) -> dict[str, int]:
    """Assert a recorded refusal."""
    assert v.refusal is not None and (v.code, v.refusal.reason) == (code, reason)
    assert v.event is not None
    return v.event


# ------------------------------------------------------------------ 8.1: geometry
LEAVES = [(0, 3, 12), (0, 2, 21), (0, 1, 30), (2, 3, 14), (2, 2, 25), (1, 3, 16), (1, 2, 29)]


@pytest.mark.parametrize(("granule", "level", "shift"), LEAVES)
@pytest.mark.parametrize("bits", [48, 42, 40, 36])
def test_leaf_sizes(granule: int, level: int, shift: int, bits: int) -> None:
    world = World(granule, bits)
    va = 5 << shift
    world.pt.map(va, 3 << shift, S1_RW, level)
    last = va + (1 << shift) - 1
    assert [(e.pa, e.length) for e in world.ask(va, 1 << shift).extents] == [(3 << shift, 1 << shift)]
    assert world.ask(last).extents[0].pa == (4 << shift) - 1
    refused(world.ask(last + 1), 0x0A, "no-mapping")


@pytest.mark.parametrize(
    ("granule", "bits", "level"),
    [
        (0, 48, 0),
        (0, 40, 0),
        (0, 39, 1),
        (0, 31, 1),
        (0, 30, 2),
        (0, 22, 2),
        (0, 21, 3),
        (0, 16, 3),
        (2, 48, 0),
        (2, 47, 1),
        (2, 37, 1),
        (2, 36, 2),
        (2, 25, 3),
        (1, 48, 1),
        (1, 43, 1),
        (1, 42, 2),
        (1, 29, 3),
    ],
)
def test_start_level(granule: int, bits: int, level: int) -> None:
    world = World(granule, bits)
    assert world.pt.start_level == level
    va = (1 << bits) - (1 << 12)
    world.pt.map(va & -(1 << world.pt.shift(3)), 0x5000_0000, S1_RW)
    v = world.ask(va)
    assert v.outcome is Outcome.OK
    assert sum(1 for s in v.steps if s.entry and s.entry.name == "S1_DESC") == 4 - level


@pytest.mark.parametrize(
    ("granule", "level", "desc"),
    [
        (0, 0, 1),
        (2, 1, 1),
        (1, 1, 1),
        (0, 3, 1),
        (0, 1, 0),
        (0, 2, 2),
    ],
)
def test_reserved_descriptors(granule: int, level: int, desc: int) -> None:
    world = World(granule)
    world.put(world.pt.slot(VA, level), 0x5000_0000 | AF | desc)
    refused(world.ask(), 0x0A, "no-mapping")


@pytest.mark.parametrize(("cap", "granule"), [(6, 0), (7, 2), (8, 1)])
def test_granule_needs_its_capability(cap: int, granule: int) -> None:
    world = World(granule)
    world.pt.map(VA & -65536, 0x5000_0000, S1_RW)
    assert world.ok(uba=VA & -65536)
    world.b.registers["CAP2"] = world.b.state.reg("CAP2") & ~(1 << cap)
    refused(world.ask(), 0x08, "granule")


# ------------------------------------------------------------------ 8.2: input
def test_upper_bits_all_zero_or_all_one() -> None:
    world = World(input_bits=40)
    low = 0x12_3456_7000
    world.pt.map(low, 0x5000_0000, S1_RW)
    assert world.ok(uba=low)
    assert world.ok(uba=(1 << 64) - (1 << 40) + low)
    for bit in (40, 47, 60, 63):
        event = refused(world.ask(low | 1 << bit), 0x0A, "input-size")
        assert event["IADDR"] == low | 1 << bit


# ------------------------------------------------------------------ 8.3: checks
def test_walk_disabled() -> None:
    world = World(MATTWD=1)
    world.pt.map(VA, 0x5000_0000, S1_RW)
    refused(world.ask(), 0x0A, "walk-disabled")


def test_bypass_of_stage_1() -> None:
    world = World(MATT_BYPASS=1)
    assert world.ask(0x1234).extents[0].pa == 0x1234


def test_bus_error_in_the_walk_terminates() -> None:
    world = World(FBS=1)
    world.put(world.pt.slot(VA, 2), 1 << 45 | 3)
    v = world.ask(access=Access.WRITE)
    event = refused(v, 0x09, "bus-error")
    assert v.outcome is Outcome.FAULT
    assert event["FTADDR"] == (1 << 45 | (VA >> 12 & 511) * 8) >> 3
    assert (event["RNW"], event["PNU"], event["S2"], event["IADDR"]) == (0, 1, 0, VA)


@pytest.mark.parametrize(("gpas", "bits"), [(0, 32), (1, 36), (2, 40), (3, 42), (4, 44)])
def test_output_size(gpas: int, bits: int) -> None:
    world = World(GPAS=gpas)
    world.pt.map(VA, (1 << bits) - 0x1000, S1_RW)
    assert world.ok()
    world.pt.map(VA, 1 << bits, S1_RW)
    refused(world.ask(), 0x0B, "address-size")
    world.put(world.pt.slot(VA, 2), 1 << bits | 3)
    refused(world.ask(), 0x0B, "address-size")


def test_table_base_beyond_the_output_size() -> None:
    world = World(GPAS=0, MATTBA=1 << 30)
    refused(world.ask(), 0x0B, "address-size")


def test_output_size_of_the_device_bounds_too() -> None:
    world = World()
    world.b.registers["CAP2"] = world.b.state.reg("CAP2") & ~(7 << 3)  # OA_SIZE: 32 bits
    world.pt.map(VA, 1 << 32, S1_RW)
    refused(world.ask(), 0x0B, "address-size")


@pytest.mark.parametrize(
    ("haf", "affd", "httu", "result"),
    [
        (0, 0, 2, "fault"),
        (0, 1, 2, "ok"),
        (1, 0, 2, "set"),
        (1, 1, 2, "set"),
        (1, 0, 1, "set"),
        (1, 0, 0, "fault"),
        (1, 1, 0, "ok"),
    ],
)
def test_access_flag(haf: int, affd: int, httu: int, result: str) -> None:
    world = World(HAF=haf, AFFD=affd)
    world.b.registers["CAP3"] = world.b.state.reg("CAP3") & ~(3 << 8) | httu << 8
    slot = world.pt.map(VA, 0x5000_0000, S1_RW & ~AF)
    v = world.ask()
    if result == "fault":
        refused(v, 0x0C, "access-flag")
        return
    assert v.outcome is Outcome.OK
    old = int.from_bytes(world.image.read(slot, 8), "little")
    assert [(u.addr, u.old, u.new) for u in v.updates] == ([(slot, old, old | AF)] if result == "set" else [])


@pytest.mark.parametrize("access", list(Access))
@pytest.mark.parametrize("read_only", [False, True])
def test_read_only_pages(access: Access, read_only: bool) -> None:
    world = World()
    world.pt.map(VA, 0x5000_0000, S1_RW | (S1_RO if read_only else 0))
    v = world.ask(access=access)
    if read_only and access.writes:
        assert refused(v, 0x0D, "read-only-page")["RNW"] == 0
    else:
        assert v.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("hdf", "dbm", "httu", "ok"), [(1, 1, 2, True), (0, 1, 2, False), (1, 0, 2, False), (1, 1, 1, False)]
)
def test_dirty_state(hdf: int, dbm: int, httu: int, ok: bool) -> None:
    world = World(HAF=1, HDF=hdf)
    world.b.registers["CAP3"] = world.b.state.reg("CAP3") & ~(3 << 8) | httu << 8
    slot = world.pt.map(VA, 0x5000_0000, S1_RW | S1_RO | (DBM if dbm else 0))
    assert world.ask().updates == []
    v = world.ask(access=Access.ATOMIC)
    if not ok:
        refused(v, 0x0D, "read-only-page")
        return
    (change,) = v.updates
    assert (change.addr, change.old ^ change.new) == (slot, S1_RO)


@pytest.mark.parametrize(
    ("user", "privileged", "pan", "reason"),
    [
        (1, True, 0, None),
        (1, True, 1, "pan"),
        (0, True, 1, None),
        (1, False, 1, None),
        (0, False, 0, "user"),
    ],
)
def test_privilege(user: int, privileged: bool, pan: int, reason: str | None) -> None:
    world = World(PAN=pan)
    world.pt.map(VA, 0x5000_0000, AF | user * USER)
    v = world.ask(privileged=privileged)
    if reason:
        assert refused(v, 0x0D, reason)["PNU"] == int(privileged)
    else:
        assert v.outcome is Outcome.OK


FETCH = [
    # privileged, descriptor bits, TCTE fields, allowed
    (True, 0, {}, True),
    (True, PXN, {}, False),
    (True, UXN, {}, True),
    (False, USER, {}, True),
    (False, USER | UXN, {}, False),
    (False, USER | PXN, {}, True),
    (False, 0, {}, False),
    (True, 0, {"WXN": 1}, False),
    (True, S1_RO, {"WXN": 1}, True),
    (True, USER, {"UWXN": 1}, False),
    (True, 0, {"UWXN": 1}, True),
    (True, USER, {"PAN": 1}, True),
]


@pytest.mark.parametrize(("privileged", "bits", "fields", "ok"), FETCH)
def test_instruction_fetch(privileged: bool, bits: int, fields: dict[str, int], ok: bool) -> None:
    world = World(**fields)
    world.pt.map(VA, 0x5000_0000, AF | bits)
    v = world.ask(privileged=privileged, instruction=True)
    assert (v.outcome is Outcome.OK) == ok
    if not ok:
        assert refused(v, 0x0D, "execute-never")["IND"] == 1


@pytest.mark.parametrize("had", [0, 1])
@pytest.mark.parametrize(
    ("bit", "changes"),
    [
        (62, {"access": Access.WRITE}),
        (61, {"privileged": False}),
        (59, {"instruction": True}),
        (60, {"instruction": True, "privileged": False}),
    ],
)
def test_hierarchical_attributes(had: int, bit: int, changes: dict[str, Any]) -> None:
    world = World(HAD=had)
    world.pt.map(VA, 0x5000_0000, S1_RW)
    assert world.ok(**changes)
    slot = world.pt.slot(VA, 1)
    world.put(slot, int.from_bytes(world.image.read(slot, 8), "little") | 1 << bit)
    assert world.ok(**changes) == bool(had)


def test_big_endian_tables() -> None:
    world = World(ENDI=1)
    world.pt.map(VA, 0x5000_0000, S1_RW & ~AF)
    slots = [world.pt.slot(VA, level) for level in range(4)]
    assert not world.ok()
    for slot in slots:
        world.image.write(slot, world.image.read(slot, 8)[::-1])
    refused(world.ask(), 0x0C, "access-flag")
    world.set("TCTE", world.tcte, HAF=1)
    (change,) = world.ask().updates
    assert change.old ^ change.new == int.from_bytes(AF.to_bytes(8, "big"), "little")


# ------------------------------------------------------------------ pieces
def test_a_request_across_pages_is_cut_at_the_first_refused_byte() -> None:
    world = World()
    world.pt.map(VA, 0x5000_0000, S1_RW)
    world.pt.map(VA + 0x1000, 0x5000_1000, S1_RW)
    world.pt.map(VA + 0x2000, 0x6000_0000, S1_RW)
    v = world.ask(VA + 0x10, 0x3000)
    assert [(e.uba - VA, e.pa, e.length) for e in v.extents] == [
        (0x10, 0x5000_0010, 0x1FF0),
        (0x2000, 0x6000_0000, 0x1000),
    ]
    assert v.refused_at == VA + 0x3000
    assert refused(v, 0x0A, "no-mapping")["IADDR"] == VA + 0x3000


# ------------------------------------------------------------------ 8.4, 10.3: policy
@pytest.mark.parametrize(
    ("fbr", "fbs", "fba", "outcome", "recorded"),
    [
        (1, 0, 1, Outcome.FAULT, True),
        (0, 0, 1, Outcome.FAULT, False),
        (0, 1, 1, Outcome.FAULT, False),
        (1, 1, 1, Outcome.STALL, True),
        (1, 1, 0, Outcome.STALL, True),
        (1, 0, 0, Outcome.RAZWI, True),
        (0, 0, 0, Outcome.RAZWI, False),
    ],
)
def test_fault_policy(fbr: int, fbs: int, fba: int, outcome: Outcome, recorded: bool) -> None:
    world = World(FBR=fbr, FBS=fbs, FBA=fba)
    v = world.ask()
    assert (v.outcome, v.event is not None) == (outcome, recorded)
    if v.event:
        assert (v.event["STALL"], v.event["CLS"], v.event["S2"]) == (int(outcome is Outcome.STALL), 2, 0)


def test_stalls_need_an_event_queue_and_a_client_that_waits() -> None:
    world = World(FBS=1)
    assert world.ask().outcome is Outcome.STALL
    assert world.ask(no_stall=True).outcome is Outcome.FAULT
    world.b.registers["CTRL0"] &= ~2
    assert world.ask().outcome is Outcome.FAULT


def test_forced_stalls() -> None:
    world = World(FBS=0)
    world.b.registers["CAP3"] = world.b.state.reg("CAP3") | 2 << 12
    assert world.ask().outcome is Outcome.STALL


def test_every_field_of_a_translation_event() -> None:
    world = World()
    v = world.ask(VA + 0x123, access=Access.WRITE, privileged=False)
    assert v.event == {
        "CODE": 0x0A,
        "TECTE_TAG": TAG,
        "TID": TID,
        "IADDR": VA + 0x123,
        "IPA": 0,
        "CLS": 2,
        "S2": 0,
        "STALL": 0,
        "STAG": 0,
        "RNW": 0,
        "PNU": 0,
        "IND": 0,
    }
