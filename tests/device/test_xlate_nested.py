# SPDX-License-Identifier: GPL-2.0-or-later
"""Stage 2, nested translation and VMID (hardware text 8; case V22)."""

from __future__ import annotations

import itertools

import pytest
from cache_lab import CacheLab
from ummulab.model import Access
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import AF, AP_RO, DBM, LEAF, Matt, address_field
from ummulab.qtest.ummu import SPEC
from xlate_lab import S2_LEAF, TECTE, VA, Lab

DEVICES = ("ummu,id=ummu0,strict=on",)
S1, S2, NESTED = 5, 6, 7
S2_READ, S2_WRITE = 1 << 6, 1 << 7
IPA = 0x12_3456_7000


def guest_tables(lab: CacheLab) -> Matt:
    """A stage 2 table with all RAM one to one by blocks of 2 MiB."""
    table, arch = Matt(lab.arena, 12, 40), lab.core.machine.arch
    table.map(arch.ram_base, arch.ram_base, lab.core.machine.ram_size, level=2, attributes=S2_LEAF)
    return table


def stage2_fields(table: Matt, vmid: int) -> dict[str, int]:
    return {
        "NS_S2_TSZ": 64 - table.va_bits, "S2_PAS": 5, "NS_S2_SL": {2: 0, 1: 1, 0: 2}[table.start_level], "S2_AA64": 1,
        "S2_FBR": 1, "S2_VMID": vmid, "NS_S2_MATT": address_field(TECTE, "NS_S2_MATT", table.root),
    }  # fmt: skip


# ---- two guests with the same addresses ------------------------------------------------------------------------------


class Guests:
    """Tags 1 and 2, VMID 5 and 6: same ASID, same addresses, IPA in memory of their own."""

    def __init__(self, lab: CacheLab, mode: int = NESTED) -> None:
        self.lab = lab
        lab.matt.map(VA, IPA, PAGE)
        self.tables: dict[int, Matt] = {}
        for tag, vmid in ((1, 5), (2, 6)):
            self.tables[tag] = guest_tables(lab)
            self.tables[tag].map(IPA, lab.page(), PAGE, attributes=S2_LEAF)
            lab.entity(tag, ST_MODE=mode, **stage2_fields(self.tables[tag], vmid))
            lab.context(tag, 1, ASID=7)

    def prime(self, va: int = VA) -> None:
        for tag in self.tables:
            assert self.lab.ask(va, tag=tag)
        assert self.lab.used("tlb") == 2

    def left(self) -> set[int]:
        """Tags whose entry is still there; primes again."""
        return {tag for tag in self.tables if self.lab.hits("tlb", VA, tag=tag)}


@pytest.fixture
def guests(machine: QtestMachine) -> Guests:
    return Guests(CacheLab(machine))


@pytest.mark.parametrize(("name", "fields", "left"), [
    ("CMD_TLBI_OS_ASID_U", {"ASID": 7, "VMID": 5}, {2}), ("CMD_TLBI_OS_ASID_U", {"ASID": 7, "VMID": 6}, {1}),
    ("CMD_TLBI_OS_ASID_U", {"ASID": 7, "VMID": 7}, {1, 2}), ("CMD_TLBI_OS_ALL_U", {"VMID": 5}, {2}),
    ("CMD_TLBI_OS_VA_U", {"ASID": 7, "VMID": 5, "ADDR": VA >> 12, "GS": 1}, {2}),
    ("CMD_TLBI_OS_VAA_U", {"VMID": 5, "ADDR": VA >> 12, "GS": 1}, {2}),
    ("CMD_TLBI_OS_VAA_U", {"VMID": 5, "ADDR": (VA >> 12) + 1, "GS": 1}, {1, 2}),
    ("CMD_TLBI_S1S2_VMALL_U", {"VMID": 5}, {2}), ("CMD_TLBI_S1S2_VMALL", {"TECTE_TAG": 2}, {1}),
    ("CMD_TLBI_S2_IPA_U", {"VMID": 6, "ADDR": IPA >> 12, "GS": 1}, {1}),
    ("CMD_TLBI_S2_IPA", {"TECTE_TAG": 1, "ADDR": IPA >> 12, "GS": 1}, {2}),
    ("CMD_TLBI_OS_TID", {"TECTE_TAG": 1, "TID": 1}, {2}), ("CMD_TLBI_HYP_ALL", {}, {1, 2}),
    ("CMD_TLBI_NS_OS_ALL", {}, set()),
])  # fmt: skip
def test_v22_only_the_named_machine_loses_entries(
    guests: Guests, name: str, fields: dict[str, int], left: set[int]
) -> None:
    """ASID_U and VA_U also go for the stage 2 of their VMID (driver: shared contexts over stage 2)."""
    guests.prime()
    guests.lab.command(name, **fields)
    assert guests.left() == left


def test_v22_el2_entries_have_no_vmid(machine: QtestMachine) -> None:
    lab = CacheLab(machine)
    lab.matt.map(VA, lab.page(), PAGE)
    lab.entity(1, TCRC_SEL=2, S2_VMID=5)
    lab.context(1, 1, ASID=7)
    assert lab.ask(VA, tag=1)
    lab.command("CMD_TLBI_OS_ALL_U", VMID=5)
    lab.command("CMD_TLBI_OS_ASID_U", ASID=7, VMID=5)
    assert lab.hits("tlb", VA, tag=1)
    lab.command("CMD_TLBI_HYP_ASID_U", ASID=7)
    assert not lab.hits("tlb", VA, tag=1)


def test_v22_change_of_a_guest_page(guests: Guests) -> None:
    """After the stage 2 descriptor changed and its IPA was invalidated the new page is used, the other's stays."""
    guests.prime()
    lab, before = guests.lab, {tag: guests.lab.where(VA, tag=tag) for tag in (1, 2)}
    fresh = lab.page()
    guests.tables[1].map(IPA, fresh, PAGE, attributes=S2_LEAF)
    assert lab.where(VA, tag=1) == before[1], "the stale entry is legal until the command"
    lab.command("CMD_TLBI_S2_IPA", TECTE_TAG=1, ADDR=IPA >> 12, GS=1)
    assert (lab.where(VA, tag=1), lab.where(VA, tag=2)) == (fresh, before[2])


def test_v22_stage_2_only_domain_by_os_va(machine: QtestMachine) -> None:
    """The driver sends OS_VA with the IPA for a domain that has only stage 2."""
    lab = CacheLab(machine)
    table = guest_tables(lab)
    for n in range(3):
        table.map(IPA + n * PAGE, lab.page(), PAGE, attributes=S2_LEAF)
    lab.entity(1, ST_MODE=S2, **stage2_fields(table, 5))
    for n in range(3):
        assert lab.ask(IPA + n * PAGE, tag=1)
    lab.command("CMD_TLBI_OS_VA", TECTE_TAG=2, ADDR=IPA >> 12, GS=1)
    assert lab.used("tlb") == 3
    lab.command("CMD_TLBI_OS_VA", TECTE_TAG=1, TID=0, ADDR=(IPA >> 12) + 1, GS=1)
    assert [lab.hits("tlb", IPA + n * PAGE, tag=1) for n in range(3)] == [True, False, True]
    lab.command("CMD_TLBI_S1S2_VMALL", TECTE_TAG=1)
    assert lab.used("tlb") == 0


# ---- rights and sizes ------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(machine: QtestMachine) -> Lab:
    return Lab(machine)


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.product(("rw", "ro"), ("rw", "ro", "wo", "none")))
)
def test_v22_the_weaker_right_wins(lab: Lab, first: str, second: str) -> None:
    s2 = lab.stage2()
    bits = {"rw": S2_READ | S2_WRITE, "ro": S2_READ, "wo": S2_WRITE, "none": 0}[second]
    s2.map(IPA, lab.page(1), PAGE, attributes=S2_LEAF & ~(S2_READ | S2_WRITE) | bits)
    lab.map(VA, IPA, attributes=LEAF | (AP_RO if first == "ro" else 0))
    lab.tecte(**lab.stage2_fields(s2) | {"ST_MODE": NESTED})
    state = lab.state()
    readable, writable = bool(bits & S2_READ), bool(bits & S2_WRITE) and first == "rw"
    for access, ok in (
        (Access.READ, readable),
        (Access.WRITE, writable),
        (Access.ATOMIC, readable and writable),
    ):
        got = lab.agree(state, VA, 8, access)
        assert got.ok == ok and (ok or got.event == "A_PERMISSION")


def test_v22_mode_6_checks_no_permission(lab: Lab) -> None:
    """Stage 2 only: no context is read, so a MAPT that forbids everything is not looked at."""
    s2 = lab.stage2()
    s2.map(IPA, lab.page(1), PAGE, attributes=S2_LEAF)
    lab.tcte(mapt=lab.mapt)
    lab.tecte(**lab.stage2_fields(s2) | {"ST_MODE": S2})
    state = lab.state()
    assert lab.agree(state, IPA + 5, 8, Access.WRITE).pa == lab.page(1) + 5
    assert lab.agree(state, IPA, 8, e=0, tid=0xFFFFF).ok
    lab.tecte(**lab.stage2_fields(s2) | {"ST_MODE": NESTED})
    assert lab.agree(state, IPA).event == "P_PERMISSION"


@pytest.mark.parametrize("where", ["tct", "l2tct", "matt", "mapt", "blocks", "final"])
def test_v22_every_guest_address_goes_through_stage_2(lab: Lab, where: str) -> None:
    """Each table in turn is only reachable through a stage 2 page of its own; without it the fault is stage 2's."""
    s2 = lab.stage2()
    target, size = {
        "tct": (lab.tct, PAGE), "matt": (lab.matt.root, PAGE), "mapt": (lab.mapt.root, lab.mapt.block_bytes),
        "final": (lab.page(0), PAGE), "blocks": (lab.mapt.table, PAGE),
        "l2tct": (lab.arena.take(64 << 10, 64 << 10), 64 << 10),
    }[where]  # fmt: skip
    moved = IPA & ~0xFFFFF
    s2.map(moved, target, size, attributes=S2_LEAF)
    entity = {"ST_MODE": NESTED} | lab.stage2_fields(s2)
    context: dict[str, int] = {}
    lab.mapt.grant(VA, PAGE, 2)
    lab.map(VA, moved if where == "final" else lab.page(0))
    if where == "blocks":
        node = lab.mapt.node(VA, 1)
        lab.mapt.write(node, **lab.mapt.read(node) | {"N": 1})
    if where == "tct":
        entity["TCT_PTR"] = address_field(TECTE, "TCT_PTR", moved)
    elif where == "matt":
        context["MATTBA"] = address_field(SPEC.structures["TCTE"], "MATTBA", moved)
    elif where == "mapt":
        context["MAPT_BBA"] = address_field(SPEC.structures["TCTE"], "MAPT_BBA", moved)
    elif where == "blocks":
        context["MAPT_BTA"] = address_field(SPEC.structures["TCTE"], "MAPT_BTA", moved)
    lab.tcte(mapt=lab.mapt, **context)
    if where == "l2tct":
        l1 = lab.arena.take(PAGE)
        lab.arena.write_word(l1, moved | 1)
        lab.arena.write(target, lab.arena.read(lab.tct, 64 * 64))
        entity |= {"TCT_FMT": 2, "TCT_NUM": 12, "TCT_PTR": address_field(TECTE, "TCT_PTR", l1)}
    lab.tecte(**entity)
    state = lab.state()
    assert lab.agree(state, VA).ok
    s2.unmap(moved, size)
    assert lab.agree(state, VA).event == "A_TRANSLATION"


def test_v22_ipa_outside_the_input_size(lab: Lab) -> None:
    s2 = lab.stage2(bits=36, level=1)
    lab.tecte(**lab.stage2_fields(s2) | {"ST_MODE": NESTED})
    lab.map(VA, 1 << 36)
    state = lab.state()
    assert lab.agree(state, VA).event == "A_TRANSLATION"
    lab.map(VA, lab.page(0))
    assert lab.agree(state, VA).ok


@pytest.mark.parametrize(("shift", "bits"), [(12, 32), (12, 40), (12, 48), (14, 46), (16, 44), (16, 48)])
def test_stage_2_geometries(lab: Lab, shift: int, bits: int) -> None:
    s2 = lab.stage2(shift=shift, bits=bits, level=2)
    lab.tecte(**lab.stage2_fields(s2) | {"ST_MODE": NESTED})
    lab.map(VA, lab.page(2))
    state = lab.state()
    assert lab.agree(state, VA + 0x123, 8).pa == lab.page(2) + 0x123
    assert lab.agree(state, VA + PAGE, 8).event == "A_TRANSLATION"


def test_stage_2_flags_in_memory(machine: QtestMachine) -> None:
    """S2_HAF and S2_HDF: the stage 2 leaf of the final address and of the tables gets its flags."""
    lab = CacheLab(machine)
    table = guest_tables(lab)
    table.map(IPA, lab.page(), PAGE, attributes=(S2_LEAF | DBM) & ~(AF | S2_WRITE))
    lab.matt.map(VA, IPA, PAGE)
    lab.entity(1, ST_MODE=NESTED, **stage2_fields(table, 5), S2_HAF=1, S2_HDF=1)
    lab.context(1, 1)
    leaf = table.entry(IPA, 3)
    assert lab.ask(VA, tag=1)
    assert lab.arena.read_word(leaf) & AF and not lab.arena.read_word(leaf) & S2_WRITE
    assert lab.ask(VA, tag=1, access="write")
    assert lab.arena.read_word(leaf) & S2_WRITE


def test_stage_1_update_needs_a_writable_guest_page(machine: QtestMachine) -> None:
    """The flag update of a stage 1 descriptor is a write to its IPA: stage 2 may refuse it."""
    lab = CacheLab(machine)
    table = guest_tables(lab)
    lab.matt.map(VA, lab.page(), PAGE, attributes=LEAF & ~AF)
    at = lab.matt.entry(VA, 3)
    block = at & ~((2 << 20) - 1)
    table.unmap(block, 2 << 20, level=2)
    for n in range(512):
        page = block + n * PAGE
        readonly = page == at & ~0xFFF
        table.map(page, page, PAGE, attributes=S2_LEAF & ~(S2_WRITE if readonly else 0))
    lab.entity(1, ST_MODE=NESTED, **stage2_fields(table, 5))
    lab.context(1, 1, HAF=1)
    assert not lab.ask(VA, tag=1)
    (event,) = lab.core.events()
    assert (event.code, event["S2"], event["CLS"], event["IPA"]) == (0x0D, 1, 1, at >> 12)
    assert not lab.arena.read_word(at) & AF
