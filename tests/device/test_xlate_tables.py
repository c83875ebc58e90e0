# SPDX-License-Identifier: GPL-2.0-or-later
"""V15 and section 5: entity and context tables, their bounds, their legality, and what is behind their ends."""

from __future__ import annotations

import itertools

import pytest
from ummulab.model import Access
from ummulab.qtest.bench import PERIPHERAL, TCTE, TECTE
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import address_field
from ummulab.qtest.ummu import SPEC, register_address
from xlate_lab import TID, VA, Lab

DEVICES = ("ummu,id=ummu0",)
TECT_L1, TCT_L1 = SPEC.structures["TECT_L1_DESC"], SPEC.structures["TCT_L1_DESC"]


@pytest.fixture
def lab(machine: QtestMachine) -> Lab:
    """One context with one page, no permission table."""
    lab = Lab(machine)
    lab.map(VA, lab.page(0))
    return lab


# ---- 5.1 the entity --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tag", "event"), [(3, ""), (4, "BAD_DSTEID"), (0xFFFF, "BAD_DSTEID")])
def test_v15_tag_bound(machine: QtestMachine, tag: int, event: str) -> None:
    """LOG2SIZE 2: a perfect entry directly behind the table is never used."""
    lab = Lab(machine)
    lab.tect = lab.arena.take(64 << 4)
    lab.map(VA, lab.page(0))
    for at in range(16):
        lab.tecte(at)
    lab.regs.write("CTRL0", 0)
    lab.regs.write("TECT_BASE", lab.tect)
    lab.tect_config(log2size=2)
    assert lab.agree(lab.state(), VA, tag=tag).event == event


@pytest.mark.parametrize("split", [6, 8, 10])
def test_v15_two_level_entity_table(lab: Lab, split: int) -> None:
    level1 = lab.arena.take(PAGE)
    level2 = lab.arena.take(64 << 4, PAGE)
    lab.regs.write("CTRL0", 0)
    lab.regs.write("TECT_BASE", level1)
    lab.tect_config(log2size=16, split=split, fmt=1)
    for at in range(16):
        lab.arena.write(level2 + 64 * at, TECTE.pack(**lab.tecte_fields()))
    desc = {"V": 1, "L2TECTE_NUM": 3, "L2PTR": address_field(TECT_L1, "L2PTR", level2)}
    lab.arena.write(level1 + 8, TECT_L1.pack(**desc))
    first = 1 << split
    state = lab.state()
    assert lab.agree(state, VA, tag=first + 7).ok
    assert lab.agree(state, VA, tag=first + 8).event == "BAD_DSTEID"  # behind the level-2 table
    assert lab.agree(state, VA, tag=first - 1).event == "BAD_DSTEID"  # level-1 descriptor with V = 0
    lab.arena.write(level1 + 8, TECT_L1.pack(**desc | {"L2PTR": (1 << 45)}))
    assert lab.agree(state, VA, tag=first).event == "TECT_FETCH"
    lab.arena.write(level1 + 8, TECT_L1.pack(**desc | {"V": 0}))
    assert lab.agree(state, VA, tag=first).event == "BAD_DSTEID"


def test_v15_table_outside_memory(lab: Lab) -> None:
    lab.regs.write("CTRL0", 0)
    lab.regs.write("TECT_BASE", 1 << 45)
    lab.tect_config()
    assert lab.agree(lab.state(), VA).event == "TECT_FETCH"


@pytest.mark.parametrize("mode", range(8))
def test_stage_modes(lab: Lab, mode: int) -> None:
    lab.tecte(ST_MODE=mode, **lab.stage2_fields(lab.stage2()))
    got = lab.agree(lab.state(), VA)
    want = {4: "", 5: "", 6: "A_TRANSLATION", 7: ""}
    assert got.event == want.get(mode, "") and got.ok == (mode in (4, 5, 7))
    if mode == 4:
        assert got.pa == VA


@pytest.mark.parametrize("uba", [0, 0x1234, 1 << 47, (1 << 64) - 8])
def test_bypass_reads_no_context(lab: Lab, uba: int) -> None:
    lab.tecte(ST_MODE=4, TCT_NUM=0, TCT_PTR=(1 << 45))
    got = lab.agree(lab.state(), uba, 8, tid=0xFFFFF)
    assert got.ok and got.pa == uba


def test_an_entity_without_v_is_refused(lab: Lab) -> None:
    for mode in range(8):
        lab.tecte(V=0, ST_MODE=mode)
        assert lab.agree(lab.state(), VA).event == "BAD_TECT"


@pytest.mark.parametrize(("enable", "abort", "answer"), [(1, 1, "ok"), (0, 0, "identity"), (0, 1, "fault")])
def test_disabled_umm_follows_gbpa(lab: Lab, enable: int, abort: int, answer: str) -> None:
    lab.regs.write("GBPA", 1 << 31 | abort << 15)
    lab.regs.write("CTRL0", enable | 1 << 5)
    got = lab.agree(lab.state(), VA)
    if answer == "fault":
        assert (got.status, got.event) == ("fault", "")
    else:
        assert got.ok and got.pa == (VA if answer == "identity" else lab.page(0))


@pytest.mark.parametrize(("select", "privileged", "ok"), [
    (0, True, True), (0, False, False), (1, False, False), (1, True, True), (2, True, False), (2, False, False),
    (3, True, True), (3, False, True),
])  # fmt: skip
def test_privilege_selection(lab: Lab, select: int, privileged: bool, ok: bool) -> None:
    """A kernel-only page tells which privilege counted."""
    lab.map(VA, lab.page(0), attributes=1 << 10)
    lab.tecte(PRIV_SEL=select)
    assert lab.agree(lab.state(), VA, privileged=privileged).ok == ok


@pytest.mark.parametrize(("select", "instruction", "fetch"), [
    (0, False, False), (0, True, True), (1, True, True), (2, True, False), (3, False, True),
])  # fmt: skip
def test_instruction_selection(lab: Lab, select: int, instruction: bool, fetch: bool) -> None:
    """A page that must never be executed tells whether the access counted as a fetch."""
    lab.tecte(INST_SEL=select)
    assert lab.agree(lab.state(), VA, instruction=instruction).ok != fetch


def test_unsupported_translation_types(lab: Lab) -> None:
    """A secure entity, and an instruction fetch that writes, are types this part does not have: EVT_UT."""
    assert lab.ask(VA, access=Access.WRITE, instruction=True).event == "UT"
    assert lab.ask(VA, access=Access.ATOMIC, instruction=True).event == "UT"
    for select, event in ((0, ""), (1, ""), (2, "UT"), (3, "")):
        lab.tecte(SECURE_SEL=select)
        assert lab.ask(VA).event == event


# ---- 5.2 the context -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tid", "event"), [
    (63, ""), (64, "BAD_TOKENID"), (0xFFFFF, "BAD_TOKENID"), (1 << 6, "BAD_TOKENID"), (62, "BAD_TCT"),
])  # fmt: skip
def test_v15_tid_bound(machine: QtestMachine, tid: int, event: str) -> None:
    """TCT_NUM 6: perfect contexts directly behind the table are never used."""
    lab = Lab(machine)
    lab.tct = lab.arena.take(64 << 7)
    lab.map(VA, lab.page(0))
    lab.tecte()
    for at in (63, 64, 65):
        lab.tcte(at)
    assert lab.agree(lab.state(), VA, tid=tid).event == event


def test_v15_tct_num_zero(lab: Lab) -> None:
    lab.tecte(TCT_NUM=0)
    for tid in (0, 1, 5):
        assert lab.agree(lab.state(), VA, tid=tid).event == "BAD_TOKENID"


@pytest.mark.parametrize(("fmt", "split"), [(1, 6), (2, 10)])
def test_v15_two_level_context_table(lab: Lab, fmt: int, split: int) -> None:
    level1, level2 = lab.arena.take(PAGE), lab.arena.take(64 << split, PAGE)
    tid = (3 << split) + (1 << split) - 1
    lab.arena.write(level2 + 64 * ((1 << split) - 1), TCTE.pack(**lab.tcte_fields()))
    desc = {"V": 1, "L2TCT_PTR": address_field(TCT_L1, "L2TCT_PTR", level2)}
    lab.arena.write(level1 + 3 * 8, TCT_L1.pack(**desc))
    lab.tecte(TCT_FMT=fmt, TCT_NUM=split + 2, TCT_PTR=address_field(TECTE, "TCT_PTR", level1))
    state = lab.state()
    assert lab.agree(state, VA, tid=tid).ok
    assert lab.agree(state, VA, tid=tid - 1).event == "BAD_TCT"
    assert lab.agree(state, VA, tid=tid + 1).event == "BAD_TOKENID"
    assert lab.agree(state, VA, tid=1).event == "BAD_TOKENID"  # level-1 descriptor with V = 0
    lab.arena.write(level1 + 3 * 8, TCT_L1.pack(V=1, L2TCT_PTR=1 << 35))
    assert lab.agree(state, VA, tid=tid).event == "TCT_FETCH"
    lab.tecte(TCT_FMT=fmt, TCT_NUM=split + 2, TCT_PTR=1 << 41)
    assert lab.agree(state, VA, tid=tid).event == "TCT_FETCH"


def test_v15_reserved_context_table_format(lab: Lab) -> None:
    lab.tecte(TCT_FMT=3)
    state = lab.state()
    assert lab.agree(state, VA).event == "BAD_TECT"
    assert lab.agree(state, VA, tid=64).event == "BAD_TOKENID"  # the bound comes first


@pytest.mark.parametrize(("changes", "event"), [
    ({"V": 0}, "BAD_TCT"), ({"HDF": 1, "HAF": 0}, "BAD_TCT"), ({"HDF": 1, "HAF": 1}, ""), ({"HAF": 1}, ""),
    ({"MAC_EN": 1}, "BAD_TCT"), ({"GPAS": 6}, "BAD_TCT"), ({"GPAS": 7}, "BAD_TCT"), ({"TGS": 3}, "BAD_TCT"),
    ({"FBS": 1}, ""), ({"RTGS": 3}, ""), ({"RTGS": 0, "MAPT_MODE": 1}, ""),
    ({"MATT_BYPASS": 1, "SZ": 63, "TGS": 3}, ""), ({"AA64": 0}, ""),
])  # fmt: skip
def test_context_legality(lab: Lab, changes: dict[str, int], event: str) -> None:
    lab.tcte(**changes)
    assert lab.agree(lab.state(), VA).event == event


@pytest.mark.parametrize(("disabled", "event"), [(0, ""), (1, "BAD_TCT")])
def test_stall_forbidden_by_the_entity(lab: Lab, disabled: int, event: str) -> None:
    """Choice 1: TECTE bit 56 = 1 forbids stalls, and a context that asks for them is illegal."""
    lab.tecte(TCT_STALL_DISABLE=disabled)
    lab.tcte(FBS=1)
    assert lab.agree(lab.state(), VA).event == event
    lab.tcte(FBS=0)
    assert lab.agree(lab.state(), VA).ok


@pytest.mark.parametrize("size", range(64))
@pytest.mark.parametrize("granule", range(4))
def test_v15_every_input_size(lab: Lab, size: int, granule: int) -> None:
    """SZ and TGS: illegal ones are BAD_TCT, legal ones walk (and find what the bytes of the root say)."""
    lab.tcte(SZ=size, TGS=granule)
    legal = granule != 3 and 16 <= size <= (47 if granule == 1 else 48)
    got = lab.agree(lab.state(), 0x1000)
    assert (got.event == "BAD_TCT") == (not legal)


def test_v15_every_field_alone(lab: Lab) -> None:
    """One field of TECTE or TCTE changed at a time: all values of small fields, the edges of wide ones."""
    state = lab.state()
    skip = {"SECURE_SEL"}  # EVT_UT is the device's own word, see test_unsupported_translation_types
    for layout, write in ((TECTE, lab.tecte), (TCTE, lab.tcte)):
        for field in layout.fields:
            if field.name in skip:
                continue
            top = (1 << field.width) - 1
            values = range(top + 1) if field.width <= 4 else (0, 1, top >> 1, top - 1, top)
            for value in values:
                write(**{field.name: value})
                lab.agree(state, VA, 0x10, Access.WRITE)
        write()


def test_v15_all_ones(lab: Lab) -> None:
    state = lab.state()
    lab.arena.write(lab.tct + 64 * TID, b"\xff" * 64)
    assert lab.agree(state, VA).event == "BAD_TCT"
    lab.arena.write(lab.tect, b"\xff" * 64)
    assert lab.ask(VA).event == "BAD_TECT"


@pytest.mark.parametrize(("context", "request_e"), list(itertools.product((0, 1), (0, 1))))
def test_context_e_bit(lab: Lab, context: int, request_e: int) -> None:
    lab.tcte(E_BIT=context)
    assert lab.agree(lab.state(), VA, e=request_e).event == ("EBIT_DENY" if context and not request_e else "")


@pytest.mark.parametrize("log2size", [16, 17, 19, 31])
def test_v17_entity_table_exponent_above_the_capability(lab: Lab, log2size: int) -> None:
    """2^16 tags are all there are: the last one is read, and one guest-error line says what is wrong."""
    path = PERIPHERAL.format("ummu0")
    before = lab.machine.qmp.qom_get(path, "guest-errors")
    big = lab.arena.take(64 << 16)
    lab.arena.write(big + 64 * 0xFFFF, TECTE.pack(**lab.tecte_fields()))
    lab.regs.write("CTRL0", 0)
    lab.regs.write("TECT_BASE", register_address("TECT_BASE", "ADDR", big))
    lab.tect_config(log2size=log2size)
    assert lab.machine.qmp.qom_get(path, "guest-errors") == before + (log2size > 16)
    lab.map(VA, lab.page(0))
    state = lab.state()
    assert lab.agree(state, VA, tag=0xFFFF).ok
    assert lab.agree(state, VA, tag=0x10000).event == "BAD_DSTEID"


@pytest.mark.parametrize("number", [19, 20, 21, 31])
def test_v17_context_table_exponent_above_the_capability(lab: Lab, number: int) -> None:
    """TIDs have 20 bits however large TCT_NUM is."""
    lab.map(VA, lab.page(0))
    lab.tecte(TCT_NUM=number)
    state = lab.state()
    assert lab.agree(state, VA).ok
    # Far behind our 64 contexts: empty memory, or the end of it.
    assert lab.agree(state, VA, tid=0xFFFFF).event in ("BAD_TOKENID", "TCT_FETCH", "BAD_TCT")
