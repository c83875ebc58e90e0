# SPDX-License-Identifier: GPL-2.0-or-later
"""V20: every event code that a request can raise, its 64-byte record compared as a whole.

Requests are real ones of the look-up benchmark (one each): tag 0xFFFE, TID 0xABCDE, an address with sub-page bits and
bits above 32, read, write and atomic, user and privileged.  0x0E and 0x0F need a cache with two lines of one key,
which the model cannot have; 0x60 and 0x61 are in test_ummu_eventq.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from core_helper import EVENTQ_EN, MAPT_EN, UMMU_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import AF, AP_RO, LEAF, MAPTE, UMAPTE, Mapt, Matt, address_field
from ummulab.qtest.ummu import EVENT, SPEC, register_address
from xlate_lab import S2_LEAF

DEVICES = ("ummu,id=ummu0",)
TECTE, TCTE = SPEC.structures["TECTE"], SPEC.structures["TCTE"]
TAG, TID, UBA = 0xFFFE, 0xABCDE, 0x0000_7FFF_DEAD_B123
EID_HI, EID_LO = 0x1122334455667788, 0x99AABBCCDDEEFF00
HOLE = 0x3F800000000
CTRL1 = 0x3D75  # the EID is the tag; an unknown one is recorded
L1_INDEX, L2_INDEX = TID >> 10, TID & 1023
ACCESS_KINDS = ("read", "write", "atomic")


class World:
    """A context that allows everything, for one test to break."""

    def __init__(self, core: Core) -> None:
        self.core = core
        arena = core.arena
        self.tect = arena.take(64 << 16)
        self.l1, self.l2 = arena.take(8 << 10), arena.take(64 << 10, 64 << 10)
        self.matt, self.mapt = Matt(arena), Mapt(arena)
        self.page = arena.take(PAGE)
        self.matt.map(UBA & ~0xFFF, self.page, PAGE)
        (self.node,) = self.mapt.grant(UBA & ~0xFFF, PAGE, 7)
        arena.write_word(self.l1 + 8 * L1_INDEX, self.l2 | 1)
        self.entity()
        self.context()
        self.extra: dict[str, int] = {}
        core.regs.write("CTRL0", 0)
        core.regs.write("CTRL1", CTRL1)
        self.place(self.tect)

    def place(self, tect: int) -> None:
        """Where the TECT is; the unit is off for the write and on again."""
        self.core.regs.write("CTRL0", 0)
        self.core.regs.write("TECT_BASE", register_address("TECT_BASE", "ADDR", tect))
        self.core.regs.write("TECT_BASE_CFG", 16)
        self.core.regs.write("CTRL0", UMMU_EN | EVENTQ_EN | MAPT_EN)

    def entity(self, **changes: int) -> None:
        fields = {"V": 1, "ST_MODE": 5, "MAPT_EN": 1, "TCT_NUM": 20, "TCT_FMT": 2,
                  "TCT_PTR": address_field(TECTE, "TCT_PTR", self.l1)}  # fmt: skip
        self.core.arena.write(self.tect + 64 * TAG, TECTE.pack(**(fields | changes)))

    def context(self, **changes: int) -> None:
        fields = {"V": 1, "AA64": 1, "GPAS": 5, "SZ": 16, "FBR": 1, "FBA": 1, "ASH": 1, "MAPT_EN": 1, "MAPT_MODE": 1,
                  "RTGS": 1, "MAPT_BB_SZ": 4, "MATTBA": address_field(TCTE, "MATTBA", self.matt.root),
                  "MAPT_BBA": address_field(TCTE, "MAPT_BBA", self.mapt.root),
                  "MAPT_BTA": address_field(TCTE, "MAPT_BTA", self.mapt.table)}  # fmt: skip
        self.core.arena.write(self.l2 + 64 * L2_INDEX, TCTE.pack(**(fields | changes)))

    def stage2(self) -> Matt:
        """Nested mode: RAM one to one, by blocks of 2 MiB."""
        table, arch = Matt(self.core.arena, 12, 40), self.core.machine.arch
        table.map(arch.ram_base, arch.ram_base, self.core.machine.ram_size, level=2, attributes=S2_LEAF)
        self.extra = {
            "ST_MODE": 7, "NS_S2_TSZ": 24, "S2_PAS": 5, "NS_S2_SL": 1 if table.start_level == 1 else 2, "S2_AA64": 1,
            "S2_FBR": 1, "NS_S2_MATT": address_field(TECTE, "NS_S2_MATT", table.root),
        }  # fmt: skip
        self.entity(**self.extra)
        return table


@dataclass(frozen=True)
class Case:
    """``spoil`` breaks the world and returns the fields that only this case has."""

    code: int
    spoil: Callable[[World], dict[str, int]]
    request: str = ""
    access: tuple[str, ...] = ACCESS_KINDS
    constant: dict[str, int] = field(default_factory=dict)


def no_eid(_world: World) -> dict[str, int]:
    return {"EID_LOW": EID_LO, "EID_HIGH": EID_HI}


def tect_in_a_hole(world: World) -> dict[str, int]:
    world.place(HOLE)
    return {"FTADDR": HOLE + 64 * TAG}


def tecte_invalid(world: World) -> dict[str, int]:
    world.entity(V=0)
    return {}


def tid_too_large(world: World) -> dict[str, int]:
    world.entity(TCT_NUM=19)
    return {}


def tct_in_a_hole(world: World) -> dict[str, int]:
    world.core.arena.write_word(world.l1 + 8 * L1_INDEX, HOLE | 1)
    return {"FTADDR": HOLE + 64 * L2_INDEX}


def tcte_invalid(world: World) -> dict[str, int]:
    world.context(V=0)
    return {}


def walk_into_a_hole(world: World) -> dict[str, int]:
    world.core.arena.write_word(world.matt.entry(UBA, 1), HOLE | 3)
    return {"FTADDR": HOLE + 8 * (UBA >> 21 & 511), "CLS": 1}


def no_page(world: World) -> dict[str, int]:
    world.matt.unmap(UBA & ~0xFFF, PAGE)
    return {"CLS": 2}


def page_too_high(world: World) -> dict[str, int]:
    world.context(GPAS=1)
    world.matt.map(UBA & ~0xFFF, 1 << 40, PAGE)
    return {"CLS": 2}


def no_access_flag(world: World) -> dict[str, int]:
    world.matt.map(UBA & ~0xFFF, world.page, PAGE, attributes=LEAF & ~AF)
    return {"CLS": 2}


def read_only(world: World) -> dict[str, int]:
    world.matt.map(UBA & ~0xFFF, world.page, PAGE, attributes=LEAF | AP_RO)
    return {"CLS": 2}


def mtmc_in_a_hole(world: World) -> dict[str, int]:
    world.stage2()
    world.entity(**world.extra, TCT_MTM_EN=1, MTMC_PTR=address_field(TECTE, "MTMC_PTR", HOLE))
    world.context(MTM_ID=5)
    return {"FTADDR": HOLE + 10 & ~7}


def mapt_in_a_hole(world: World) -> dict[str, int]:
    world.context(MAPT_BBA=address_field(TCTE, "MAPT_BBA", HOLE))
    return {"FTADDR": HOLE + 32 * (UBA >> 39)}


def bad_block(world: World) -> dict[str, int]:
    world.context(MAPT_BB_SZ=1)
    return {}


def no_node(world: World) -> dict[str, int]:
    world.mapt.revoke([world.node])
    return {}


def wrong_type(world: World) -> dict[str, int]:
    world.mapt.write(world.node, **world.mapt.read(world.node) | {"PERMISSION": 0})
    return {}


def node_e_bit(world: World) -> dict[str, int]:
    world.mapt.write(world.node, **world.mapt.read(world.node) | {"E_BIT": 1})
    return {}


def context_e_bit(world: World) -> dict[str, int]:
    world.context(E_BIT=1)
    return {}


def single_entry(world: World) -> dict[str, int]:
    at = world.core.arena.take(64)
    world.core.arena.write(at, UMAPTE.pack(V=1, PERMISSION=7, LIMIT_LO=0xFFF))
    world.context(MAPT_MODE=0, MAPT_BBA=address_field(TCTE, "MAPT_BBA", at))
    return {}


def s2_no_page(world: World) -> dict[str, int]:
    table, ipa = world.stage2(), 0x12_3456_7000
    world.matt.map(UBA & ~0xFFF, ipa, PAGE)
    assert table.va_bits == 40
    return {"CLS": 2, "S2": 1, "NSIPA": 1, "IPA": ipa >> 12}


def s2_no_context(world: World) -> dict[str, int]:
    """The context table itself has no stage 2 mapping: CLS says so, IPA is the entry's."""
    world.stage2()
    ipa = 0x20_0000_0000
    world.core.arena.write_word(world.l1 + 8 * L1_INDEX, ipa | 1)
    return {"CLS": 0, "S2": 1, "NSIPA": 1, "IPA": ipa + 64 * L2_INDEX >> 12}


def s2_no_table(world: World) -> dict[str, int]:
    world.stage2()
    ipa = 0x20_0000_0000
    world.core.arena.write_word(world.matt.entry(UBA, 2), ipa | 3)
    return {"CLS": 1, "S2": 1, "NSIPA": 1, "IPA": ipa + 8 * (UBA >> 12 & 511) >> 12}


def s2_no_permission_block(world: World) -> dict[str, int]:
    world.stage2()
    ipa = 0x20_0000_0000
    world.context(MAPT_BBA=address_field(TCTE, "MAPT_BBA", ipa))
    return {"CLS": 1, "S2": 1, "NSIPA": 1, "IPA": ipa + 32 * (UBA >> 39) >> 12}


def s2_hole(world: World) -> dict[str, int]:
    table = world.stage2()
    world.core.arena.write_word(table.entry(world.core.machine.arch.ram_base, 1), HOLE & (1 << 48) - 1 | 3)
    at = HOLE + 8 * (world.l1 + 8 * L1_INDEX >> 21 & 511)
    return {"CLS": 1, "S2": 1, "NSIPA": 1, "IPA": world.l1 + 8 * L1_INDEX >> 12, "FTADDR": at}


WRITES = ("write", "atomic")
CASES = [
    Case(0x01, lambda world: {}, "inst=1", WRITES, {"IND": 1}),
    Case(0x02, no_eid, f"eid={EID_LO:#x},eid-hi={EID_HI:#x}"),
    Case(0x03, tect_in_a_hole),
    Case(0x04, tecte_invalid),
    Case(0x06, tid_too_large),
    Case(0x07, tct_in_a_hole),
    Case(0x08, tcte_invalid),
    Case(0x09, walk_into_a_hole),
    Case(0x09, s2_hole),
    Case(0x0A, no_page),
    Case(0x0A, s2_no_page),
    Case(0x0A, s2_no_context),
    Case(0x0A, s2_no_table),
    Case(0x0A, s2_no_permission_block),
    Case(0x0B, page_too_high),
    Case(0x0C, no_access_flag),
    Case(0x0D, read_only, access=WRITES),
    Case(0x0D, lambda world: {"CLS": 2, "IND": 1}, "inst=1", ("read",)),
    Case(0x10, mtmc_in_a_hole),
    Case(0x11, mapt_in_a_hole),
    Case(0x12, bad_block),
    Case(0x13, no_node),
    Case(0x13, wrong_type),
    Case(0x13, single_entry),
    Case(0x15, node_e_bit, "e-bit=0"),
    Case(0x15, context_e_bit, "e-bit=0"),
]
#: A user access to a page for the kernel only, and the like, would be other refusals: these worlds have user pages.
FILLED = {e.code: e.filled for e in SPEC.events.values()}


def expected(case: Case, own: dict[str, int], access: str, privileged: int) -> bytes:
    values = {
        "TID": TID, "TECTE_TAG": TAG, "IADDR": UBA, "RNW": int(access == "read"), "PNU": privileged, **case.constant,
        **own,
    }  # fmt: skip
    filled = {name: values[name] for name in (*FILLED[case.code], "NSIPA") if name in values}
    record = bytearray(
        EVENT.pack(CODE=case.code, **{k: v for k, v in filled.items() if k not in ("EID_LOW", "FTADDR")})
    )
    if "EID_LOW" in filled:
        record[32:40] = filled["EID_LOW"].to_bytes(8, "little")
    if "FTADDR" in filled:
        record[48:56] = filled["FTADDR"].to_bytes(8, "little")
    return bytes(record)


@pytest.fixture
def world(machine: QtestMachine) -> World:
    core = Core(machine)
    core.start()
    return World(core)


def ask(world: World, request: str, access: str, privileged: int) -> int:
    """One real request; 1 if it was allowed."""
    given = {"eid": hex(TAG), "e-bit": "1"} | dict(pair.split("=") for pair in request.split(",") if pair)
    keys = {"tid": hex(TID), "uba": hex(UBA), "len": "4", "access": access, "priv": str(privileged)} | given
    text = ",".join(f"{key}={value}" for key, value in keys.items())
    allowed: int = world.core.ask("benchmark-request", text, "benchmark-result")["ok"]
    return allowed


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code:02x}-{case.spoil.__name__}")
def test_v20_record(world: World, case: Case) -> None:
    assert ask(world, "", "atomic", 0) == 1 and world.core.events() == []
    own = case.spoil(world)
    for command in ("CMD_CFGI_TECT_RANGE", "CMD_TLBI_NS_OS_ALL"):
        world.core.cmd(command, **({"RANGE": 31} if "CFGI" in command else {}))
    world.core.interrupt(0)
    for access in case.access:
        for privileged in (0, 1):
            assert ask(world, case.request, access, privileged) == 0
            (record,) = world.core.events()
            assert record.raw == expected(case, own, access, privileged), (record, access, privileged)
            assert world.core.interrupt(0) == 0xE0
    assert world.core.qom("faults") == {record.name: 2 * len(case.access)}


def test_v20_all_codes_are_covered() -> None:
    """A code added to the layout file needs a case here."""
    elsewhere = {0x05, 0x14, 0x0E, 0x0F, 0x60, 0x61}
    assert {case.code for case in CASES} | elsewhere == set(FILLED)


def test_node_size_is_what_the_cases_use() -> None:
    assert MAPTE.size == 32
