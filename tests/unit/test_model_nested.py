# SPDX-License-Identifier: GPL-2.0-or-later
"""Reference model, stage 2 and nested (V22): geometry, rights, which fetch failed, IPA in the event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ummulab import layouts
from ummulab.fuzz.image import RAM_BASE, S1_RW, S2_R, S2_RW, Builder, Mapt, PageTable
from ummulab.model import Access, Outcome, Request, Verdict, resolve

EID, TAG, TID, VA = 0x100, 1, 7, 0x1234_5000
AF, DBM = 1 << 10, 1 << 51
SL = {2: 0, 1: 1, 0: 2, 3: 3}  # 4 KiB: start level to SL0 code


def stage2_fields(pt: PageTable) -> dict[str, int]:
    """TECTE fields of a stage 2 table."""
    code = SL[pt.start_level] if pt.granule == 0 else 3 - pt.start_level
    return {
        "NS_S2_TSZ": 64 - pt.input_bits,
        "NS_S2_TG": pt.granule,
        "NS_S2_SL": code,
        "S2_PAS": 5,
        "NS_S2_MATT": pt.root >> 4,
    }


class World:
    """A nested entity: the IPA space maps the image's RAM 1:1 with 2 MiB blocks, and one data page apart."""

    def __init__(self, mode: int = 7, **fields: int) -> None:
        self.b = Builder(tid_bits=6, tct_fmt=0)
        self.image = self.b.image
        self.s2 = PageTable(self.image, 0, 40)
        for at in range(0, self.image.size, 2 << 20):
            self.s2.map(RAM_BASE + at, RAM_BASE + at, S2_RW, 2)
        self.ipa = 0x9_0000_0000
        self.pa = RAM_BASE + 0x10_0000
        self.leaf2 = self.s2.map(self.ipa, self.pa, S2_RW)
        self.tecte = self.b.entity(TAG, EID, ST_MODE=mode, S2_VMID=5, **{**stage2_fields(self.s2), **fields})
        self.pt = PageTable(self.image)
        self.pt.map(VA, self.ipa, S1_RW)
        self.mapt = Mapt(self.image)
        self.mapt.grant(VA, VA + 0xFFF, PERMISSION=7)
        self.tcte = self.b.context(TAG, TID, self.pt, self.mapt)

    def set(self, name: str, addr: int, **fields: int) -> None:
        """Change fields of a structure in memory."""
        entry = layouts.parse(name, self.image.read(addr, layouts.layout(name).size), addr)
        self.image.write(addr, layouts.replace(entry, **fields))

    def unmap(self, addr: int) -> None:
        """Split the 2 MiB block of ``addr`` into pages and leave the page of ``addr`` out."""
        slot = self.s2.slot(addr, 2)
        self.image.write(slot, bytes(8))
        base = addr & -(2 << 20)
        for at in range(base, base + (2 << 20), 4096):
            self.s2.map(at, at, S2_RW)
        self.image.write(self.s2.slot(addr), bytes(8))

    def ask(self, uba: int = VA, **changes: Any) -> Verdict:
        """Resolve a request."""
        return resolve(self.image, self.b.state, replace(Request(EID, TID, uba), **changes))


def stage2_fault(v: Verdict, code: int, cls: int, ipa: int) -> None:
    """Assert a recorded stage 2 fault with its class and IPA."""
    assert v.event is not None
    assert (v.event["CODE"], v.event["S2"], v.event["CLS"], v.event["IPA"]) == (code, 1, cls, ipa >> 12)


def test_both_stages_and_the_permission_table() -> None:
    v = World().ask(VA + 0x10, length=8)
    assert v.outcome is Outcome.OK
    assert v.extents[0].pa == World().pa + 0x10


def test_the_weaker_right_wins() -> None:
    world = World()
    world.s2.map(world.ipa, world.pa, S2_R)
    assert world.ask().outcome is Outcome.OK
    stage2_fault(world.ask(access=Access.WRITE), 0x0D, 2, world.ipa)
    stage2_fault(world.ask(access=Access.ATOMIC), 0x0D, 2, world.ipa)
    world.s2.map(world.ipa, world.pa, S2_RW & ~(1 << 6))
    stage2_fault(world.ask(), 0x0D, 2, world.ipa)
    assert world.ask(access=Access.WRITE).outcome is Outcome.OK


def test_unmapped_context_table() -> None:
    world = World()
    world.unmap(world.tcte)
    stage2_fault(world.ask(), 0x0A, 0, world.tcte)


def test_unmapped_stage_1_table() -> None:
    world = World()
    slot = world.pt.slot(VA, 2)
    world.unmap(slot)
    stage2_fault(world.ask(), 0x0A, 1, slot)


def test_unmapped_permission_block() -> None:
    world = World()
    world.unmap(world.mapt.root)
    stage2_fault(world.ask(), 0x0A, 1, world.mapt.root)


def test_unmapped_data() -> None:
    world = World()
    world.image.write(world.leaf2, bytes(8))
    stage2_fault(world.ask(), 0x0A, 2, world.ipa)


def test_ipa_beyond_the_input_size() -> None:
    world = World()
    world.pt.map(VA, 1 << 40, S1_RW)
    stage2_fault(world.ask(), 0x0A, 2, 1 << 40)


@pytest.mark.parametrize(
    ("fbr", "fbs", "outcome", "recorded"),
    [
        (1, 0, Outcome.FAULT, True),
        (0, 0, Outcome.FAULT, False),
        (1, 1, Outcome.STALL, True),
    ],
)
def test_stage_2_has_its_own_policy(fbr: int, fbs: int, outcome: Outcome, recorded: bool) -> None:
    world = World(S2_FBR=fbr, S2_FBS=fbs)
    world.set("TCTE", world.tcte, FBR=1 - fbr, FBA=0)
    world.image.write(world.leaf2, bytes(8))
    v = world.ask()
    assert (v.outcome, v.event is not None) == (outcome, recorded)


def test_protected_walk() -> None:
    world = World(S2_PTW=1)
    assert world.ask().outcome is Outcome.OK
    base = world.pt.slot(VA, 2) & -(2 << 20)
    world.s2.map(base, base, S2_RW & ~(0xF << 2), 2)  # Device memory
    v = world.ask()
    assert v.refusal is not None and v.refusal.reason == "s2-protected-walk"
    world.set("TECTE", world.tecte, S2_PTW=0)
    assert world.ask().outcome is Outcome.OK


def test_access_flag_of_stage_1_needs_a_stage_2_write() -> None:
    world = World()
    world.set("TCTE", world.tcte, HAF=1)
    world.pt.map(VA, world.ipa, S1_RW & ~AF)
    assert len(world.ask().updates) == 1
    slot = world.pt.slot(VA)
    world.unmap(slot)
    world.s2.map(slot & -4096, slot & -4096, S2_R)
    stage2_fault(world.ask(), 0x0D, 1, slot)


@pytest.mark.parametrize(("haf", "affd", "ok"), [(0, 0, False), (0, 1, True), (1, 0, True)])
def test_access_flag_of_stage_2(haf: int, affd: int, ok: bool) -> None:
    world = World(S2_HAF=haf, S2_AFFD=affd)
    world.s2.map(world.ipa, world.pa, S2_RW & ~AF)
    v = world.ask()
    assert (v.outcome is Outcome.OK) == ok
    assert len(v.updates) == haf
    if not ok:
        stage2_fault(v, 0x0C, 2, world.ipa)


@pytest.mark.parametrize("hdf", [0, 1])
def test_dirty_state_of_stage_2(hdf: int) -> None:
    world = World(S2_HAF=1, S2_HDF=hdf)
    world.s2.map(world.ipa, world.pa, S2_R | DBM)
    v = world.ask(access=Access.WRITE)
    assert (v.outcome is Outcome.OK) == bool(hdf)
    if hdf:
        assert v.updates[0].old ^ v.updates[0].new == 1 << 7


def test_output_size_of_stage_2() -> None:
    world = World(S2_PAS=0)
    assert world.ask().outcome is Outcome.OK
    world.s2.map(world.ipa, 1 << 32, S2_RW)
    stage2_fault(world.ask(), 0x0B, 2, world.ipa)


@pytest.mark.parametrize("xnx", [0, 1])
@pytest.mark.parametrize(
    ("code", "privileged", "never"),
    [
        (0, True, (False, False)),
        (1, True, (False, True)),
        (1, False, (False, False)),
        (2, True, (True, True)),
        (3, True, (True, False)),
        (3, False, (True, True)),
    ],
)
def test_execute_never(xnx: int, code: int, privileged: bool, never: tuple[bool, bool]) -> None:
    world = World()
    world.b.registers["CAP3"] = world.b.state.reg("CAP3") & ~2 | xnx << 1
    world.s2.map(world.ipa, world.pa, S2_RW | code << 53)
    v = world.ask(instruction=True, privileged=privileged)
    assert (v.outcome is Outcome.OK) != never[xnx]


# ------------------------------------------------------------------ mode 6
def test_stage_2_only_never_consults_context_or_permissions() -> None:
    world = World(mode=6)
    world.image.write(world.tcte, bytes(64))
    v = world.ask(world.ipa + 5, e_bit=0, tid=0x3FFFF)
    assert v.extents[0].pa == world.pa + 5
    assert not [s for s in v.steps if s.entry and s.entry.name in ("TCTE", "MAPTE")]
    assert world.ask(VA).code == 0x0A


@pytest.mark.parametrize(
    ("granule", "bits", "level"),
    [
        (0, 43, 1),
        (0, 40, 1),
        (0, 34, 2),
        (0, 48, 0),
        (2, 40, 2),
        (2, 47, 1),
        (1, 46, 2),
        (1, 42, 2),
    ],
)
def test_start_levels_and_concatenation(granule: int, bits: int, level: int) -> None:
    world = World(mode=6)
    pt = PageTable(world.image, granule, bits, level)
    ipa = ((1 << bits) - 1) & -(1 << pt.shift(3))
    pt.map(ipa, 0x5000_0000, S2_RW)
    world.set("TECTE", world.tecte, **stage2_fields(pt))
    assert world.ask(ipa + 3).extents[0].pa == 0x5000_0003


@pytest.mark.parametrize(
    "fields",
    [
        {"NS_S2_TG": 3},
        {"NS_S2_TSZ": 15},
        {"NS_S2_TSZ": 49},
        {"S2_PAS": 6},
        {"S2_PAS": 7},
        {"S2_HDF": 1},
        {"NS_S2_SL": 0},
        {"NS_S2_SL": 3},
        {"NS_S2_SL": 2, "NS_S2_TSZ": 30},
        {"NS_S2_SL": 1, "NS_S2_TSZ": 20},
    ],
)
@pytest.mark.parametrize("mode", [6, 7])
def test_illegal_stage_2(mode: int, fields: dict[str, int]) -> None:
    v = World(mode=mode, **fields).ask()
    assert v.refusal is not None and (v.code, v.refusal.reason) == (0x04, "stage2-geometry")


def test_stage_2_fields_do_not_matter_without_stage_2() -> None:
    world = World(mode=5, NS_S2_TG=3, S2_PAS=7)
    assert world.ask().extents[0].pa == world.ipa
