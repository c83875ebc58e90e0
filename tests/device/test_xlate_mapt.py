# SPDX-License-Identifier: GPL-2.0-or-later
"""Permission tables: V01, V03, V04 (b), V05 and every row of section 6, from a device's point of view."""

from __future__ import annotations

import itertools

import pytest
from ummulab.model import Access
from ummulab.qtest.bench import CANARY_VA, TCTE, Bench
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import BLOCK_DESC, UMAPTE, address_field, block_desc_fields
from xlate_lab import TID, VA, Lab

BITS = {Access.WRITE: 1, Access.READ: 2, Access.ATOMIC: 4}
TOKENS = ((None, "none"), (7, "right"), (9, "second"), (8, "wrong"))
TOP = 1 << 48


@pytest.fixture
def lab(machine: QtestMachine) -> Lab:
    """A context with a permission table over 16 pages at VA."""
    lab = Lab(machine)
    for n in range(16):
        lab.map(VA + n * PAGE, lab.page(n))
    lab.tcte(mapt=lab.mapt)
    return lab


def expected(
    permission: int, access: Access, checked: bool, token: int | None, node_e: int, request_e: int
) -> str:
    """Section 6.3 in one expression: E_bit, then type, then token; nothing implies anything."""
    if node_e and not request_e:
        return "EBIT_DENY"
    if not permission & BITS[access]:
        return "P_PERMISSION"
    return "P_PERMISSION" if checked and token not in (7, 9) else ""


@pytest.mark.parametrize("permission", range(8))
def test_v01_permission_matrix(lab: Lab, permission: int) -> None:
    """The whole product, with the context's E_BIT on top."""
    state = lab.state()
    node = lab.mapt.node(VA, 3)
    for node_e, checked in itertools.product((0, 1), (False, True)):
        how = {"TOKEN_CHK": 1, "TOKEN_VAL_0": 7, "TOKEN_VAL_1": 9} if checked else {"TOKEN_VAL_0": 7}
        lab.mapt.write(node, V=1, T=1, PERMISSION=permission, E_BIT=node_e, LIMIT_LO=0xFFF, **how)
        for context_e in (0, 1):
            lab.tcte(mapt=lab.mapt, E_BIT=context_e)
            for access, (token, _), request_e in itertools.product(Access, TOKENS, (0, 1)):
                want = expected(permission, access, checked, token, node_e, request_e)
                if context_e and not request_e:
                    want = "EBIT_DENY"
                got = lab.agree(state, VA + 8, 8, access, token=token, e=request_e)
                assert got.event == want and got.ok == (not want), (
                    access,
                    token,
                    node_e,
                    context_e,
                    request_e,
                    got,
                )


@pytest.mark.parametrize("value", [0, 1, 0xFFFFFFFF, 0x80000000])
def test_v01_no_token_value_is_special(lab: Lab, value: int) -> None:
    lab.mapt.grant(VA, PAGE, 2, token=value)
    assert lab.ask(VA, token=value).ok
    assert lab.ask(VA, token=value ^ 1).event == "P_PERMISSION"
    assert lab.ask(VA, token=None).event == "P_PERMISSION"


def test_v01_nonce_is_not_looked_at(lab: Lab) -> None:
    node = lab.mapt.node(VA, 3)
    for nonce in range(4):
        lab.mapt.write(node, V=1, T=1, PERMISSION=2, LIMIT_LO=0xFFF, TOKEN_CHK=1, TOKEN_VAL_0=7, TOKEN_VAL_1=9,
                       NONCE=nonce)  # fmt: skip
        assert [lab.ask(VA, token=t).ok for t in (7, 9, 8)] == [True, True, False]


def test_v01_reserved_permission_bits_grant_nothing(lab: Lab) -> None:
    lab.mapt.write(lab.mapt.node(VA, 3), V=1, T=1, PERMISSION=0x38, LIMIT_LO=0xFFF)
    assert {lab.ask(VA, access=a).event for a in Access} == {"P_PERMISSION"}


def test_v01_the_context_refuses_before_any_table_is_read(bench: Bench) -> None:
    bench.write_tcte(TID, E_BIT=1)
    bench.cfgi()
    bench.grant(CANARY_VA, PAGE, 7)
    bench.dma("read", CANARY_VA, 8, e=1)  # the context is cached now
    bench.cmd("CMD_PLBI_OS_EIDTID", TID=TID)
    bench.sync()
    steps = bench.qom("counters")["walk-steps-mapt"]
    assert bench.dma("read", CANARY_VA, 8, e=0).event == 0x15
    assert bench.qom("counters")["walk-steps-mapt"] == steps


# ---- V03: ranges and level boundaries ------------------------------------------------------------

LENGTHS = (
    1,
    0xFFF,
    0x1000,
    0x1001,
    (2 << 20) - PAGE,
    (2 << 20) + PAGE,
    (1 << 30) + 0x2001,
    (512 << 30) + PAGE,
)
BOUNDARIES = (2 << 20, 1 << 30, 512 << 30)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("length", LENGTHS)
def test_v03_edges_are_byte_exact(lab: Lab, boundary: int, length: int) -> None:
    """A range before, at and behind a boundary: the bytes around its ends."""
    state = lab.state()
    base = 4 << 39
    for start in (base + boundary - PAGE, base + boundary, base + boundary + PAGE):
        nodes = lab.mapt.grant(start, length, 7)
        for at, inside in (
            (start - 1, False),
            (start, True),
            (start + length - 1, True),
            (start + length, False),
        ):
            got = lab.agree(state, at, 1)
            # No page lies there: an allowed byte ends in the page tables, a refused one before them.
            assert got.event == ("A_TRANSLATION" if inside else "P_PERMISSION"), (hex(start), hex(at), got)
        lab.mapt.revoke(nodes)
        assert lab.agree(state, start, 1).event == "P_PERMISSION"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_v03_three_neighbours_in_every_order(lab: Lab, order: tuple[int, int, int]) -> None:
    """Granting and revoking one neighbour never touches another one's bytes."""
    state = lab.state()
    edge = (2 << 20) + VA - VA % (2 << 20)
    ranges = [(edge - 3 * PAGE, 3 * PAGE), (edge, (2 << 20) + 0x123), (edge + (2 << 20) + PAGE, PAGE)]
    held: dict[int, list[int]] = {}

    def check() -> None:
        for n, (start, length) in enumerate(ranges):
            want = "P_PERMISSION" if n not in held else None
            for at in (start, start + length - 1):
                event = lab.agree(state, at, 1).event
                assert (event == "P_PERMISSION") == (want is not None), (n, order, sorted(held), event)
        assert lab.agree(state, edge + (2 << 20) + 0x123, 1).event == "P_PERMISSION"

    for n in order:
        held[n] = lab.mapt.grant(*ranges[n], 2)
        check()
    for n in order:
        lab.mapt.revoke(held.pop(n))
        check()


def test_v03_own_range_and_children_of_one_node(lab: Lab) -> None:
    """6.2: the own range wins, outside it the walk goes down; a freed own range grants nothing, not even 0xFFF."""
    state = lab.state()
    lab.mapt.grant(VA + 2 * PAGE, PAGE, 2)  # a child
    parent = lab.mapt.node(VA, 2)
    lab.mapt.set_range(parent, 0, 2 * PAGE - 1, V=1, PERMISSION=1)
    assert lab.agree(state, VA, access=Access.WRITE).ok
    assert lab.agree(state, VA).event == "P_PERMISSION"  # the own range refuses, no look at the child
    assert lab.agree(state, VA + 2 * PAGE).ok
    lab.mapt.grant(VA, PAGE, 2)  # a child below the own range: hidden
    assert lab.agree(state, VA).event == "P_PERMISSION"
    lab.mapt.revoke([parent])
    assert lab.agree(state, VA).ok
    assert lab.agree(state, VA + 0xFFF, 1).ok
    assert lab.agree(state, VA + PAGE).event == "P_PERMISSION"
    lab.mapt.revoke([lab.mapt.node(VA, 3)])
    assert lab.agree(state, VA + 0xFFF, 1).event == "P_PERMISSION"


def test_v03_one_access_over_head_middle_and_tail(bench: Bench) -> None:
    start, length = CANARY_VA + (2 << 20) - PAGE, (2 << 20) + 2 * PAGE
    bench.grant(start, length, 3)
    done = bench.dma("write", start, length)
    assert done.ok and done.bytes_done == length
    bench.fill_canary()
    # The job stops exactly where the right ends.
    bench.refused(0x13, "write", start, length + 8, done=length)


def test_v03_pieces_with_different_rights_pass_one_by_one(bench: Bench) -> None:
    bench.grant(CANARY_VA, PAGE, 2)
    bench.grant(CANARY_VA + PAGE, PAGE, 2, token=5)
    bench.refused(0x13, "read", CANARY_VA, 2 * PAGE, done=PAGE)
    assert bench.dma("read", CANARY_VA, 2 * PAGE, token=5).ok


# ---- V04 (b): hostile contents -------------------------------------------------------------------


@pytest.mark.parametrize("change", [
    {"N": 1, "NEXT_LV_INDEX": 5}, {"N": 1, "NEXT_LV_INDEX": 511}, {"N": 1, "NEXT_LV_INDEX": 512},
    {"N": 1, "NEXT_LV_INDEX": 0xFFFF}, {"N": 0, "NEXT_LV_OFFSET_LO": 4 * 512}, {"N": 0, "NEXT_LV_OFFSET_LO": 1},
    {"N": 0, "NEXT_LV_OFFSET_LO": 511}, {"N": 0, "NEXT_LV_OFFSET_LO": 513}, {"N": 0, "NEXT_LV_OFFSET_HI": 0x3FF},
])  # fmt: skip
def test_v04_bad_next_level(lab: Lab, change: dict[str, int]) -> None:
    state = lab.state()
    lab.mapt.grant(VA, PAGE, 2)
    assert lab.agree(state, VA).ok
    at = lab.mapt.node(VA, 1)
    lab.mapt.write(at, **lab.mapt.read(at) | change)
    assert lab.agree(state, VA).event == "P_CFG_ERROR"


@pytest.mark.parametrize(("descriptor", "event"), [
    ({"V": 0}, "P_CFG_ERROR"), ({"BS": 10}, "P_CFG_ERROR"), ({"BS": 0}, "P_CFG_ERROR"), ({"BS": 1}, "P_CFG_ERROR"),
    ({"BA": (TOP - 0x8000) >> 5}, "P_CFG_ERROR"), ({"BA": (1 << 47) >> 5}, "P_PTW_EABT"), ({}, ""),
])  # fmt: skip
def test_v04_bad_block_descriptor(lab: Lab, descriptor: dict[str, int], event: str) -> None:
    state = lab.state()
    for n in range(4):  # enough tables to leave the first block
        lab.mapt.grant(VA + (n << 39), PAGE, 2)
    node = lab.mapt.node(VA + (3 << 39), 1)
    assert lab.mapt.read(node)["NEXT_LV_INDEX"]
    index = lab.mapt.read(node)["NEXT_LV_INDEX"]
    fields = block_desc_fields(lab.mapt.blocks[index], lab.mapt.block_bytes) | descriptor
    lab.arena.write(lab.mapt.table + 8 * index, BLOCK_DESC.pack(**fields))
    got = lab.agree(state, VA + (3 << 39))
    assert got.event == (event or "A_TRANSLATION")


def test_v04_limit_below_base_grants_nothing(lab: Lab) -> None:
    state = lab.state()
    lab.mapt.write(lab.mapt.node(VA, 3), V=1, T=1, PERMISSION=7, BASE_LO=0x800, LIMIT_LO=0x7FF)
    for at in (0, 0x7FF, 0x800, 0xFFF):
        assert lab.agree(state, VA + at, 1).event == "P_PERMISSION"


def test_v04_a_child_that_is_its_own_root_ends(lab: Lab) -> None:
    """At most four steps whatever the table says; every level then reads the root table."""
    root = lab.mapt.node(VA, 0)
    lab.mapt.write(root, V=1, T=0, BASE_LO=0xFFF, LIMIT_LO=0xFFF)
    for n in range(512):
        lab.mapt.write(lab.mapt.root + 32 * n, V=1, T=0, BASE_LO=0xFFF, LIMIT_LO=0xFFF)
    assert lab.agree(lab.state(), VA).event == "P_PERMISSION"


def test_v04_bits_beyond_the_span_count_for_nothing(lab: Lab) -> None:
    state = lab.state()
    lab.mapt.write(
        lab.mapt.node(VA, 3), V=1, T=1, PERMISSION=2, BASE_LO=0x1000, LIMIT_LO=0xFFFFFFFF, LIMIT_HI=0x7F
    )
    assert lab.agree(state, VA, 2 * PAGE).length == PAGE
    assert lab.agree(state, VA + PAGE).event == "P_PERMISSION"


@pytest.mark.parametrize(("context", "event"), [
    ({"RTGS": 0}, "BAD_TCT"), ({"RTGS": 3}, "BAD_TCT"), ({"MAPT_BB_SZ": 1}, "P_CFG_ERROR"),
    ({"MAPT_BB_SZ": 10}, "P_CFG_ERROR"), ({"MAPT_BB_SZ": 15}, "P_CFG_ERROR"), ({"MAPT_BB_SZ": 2}, "P_CFG_ERROR"),
    ({"MAPT_BBA": (TOP - 0x1000) >> 5}, "P_CFG_ERROR"), ({"MAPT_BBA": (1 << 46) >> 5}, "P_PTW_EABT"),
    ({"GPAS": 0, "MAPT_BBA": (1 << 33) >> 5}, "P_CFG_ERROR"), ({"MAPT_EN": 0}, ""), ({}, ""),
])  # fmt: skip
def test_v04_bad_table_geometry(lab: Lab, context: dict[str, int], event: str) -> None:
    lab.mapt.grant(VA, PAGE, 2)
    lab.tcte(mapt=lab.mapt, **context)
    assert lab.agree(lab.state(), VA).event == event


def test_v04_block_index_is_bound_by_the_table_size(lab: Lab) -> None:
    """512 entries fit 4 KiB: index 512 is refused with BT_SZ 0 and read with BT_SZ 1."""
    lab.mapt.grant(VA, PAGE, 2)
    node = lab.mapt.node(VA, 1)
    lab.mapt.write(node, **lab.mapt.read(node) | {"N": 1, "NEXT_LV_INDEX": 512})
    table = lab.arena.take(2 * PAGE)
    lab.arena.write(
        table + 8 * 512, BLOCK_DESC.pack(**block_desc_fields(lab.mapt.blocks[0], lab.mapt.block_bytes))
    )
    state = lab.state()
    for size, event in ((0, "P_CFG_ERROR"), (1, "")):
        lab.tcte(mapt=lab.mapt, MAPT_BTA=address_field(TCTE, "MAPT_BTA", table), MAPT_BT_SZ=size)
        assert lab.agree(state, VA).event == event


def test_rtgs_2_ends_at_two_mebibytes(lab: Lab) -> None:
    lab.mapt.grant(VA, PAGE, 2)  # a level 3 node, out of reach now
    lab.tcte(mapt=lab.mapt, RTGS=2)
    state = lab.state()
    assert lab.agree(state, VA).event == "P_PERMISSION"
    lab.mapt.set_range(lab.mapt.node(VA, 2), VA % (2 << 20), VA % (2 << 20) + 2 * PAGE - 1, V=1, PERMISSION=2)
    assert lab.agree(state, VA, 3 * PAGE).length == 2 * PAGE


def test_big_endian_context_has_a_big_endian_table(lab: Lab) -> None:
    """TCTE.ENDI = 1 swaps MATT descriptors, MAPT words and block descriptors (choice 27)."""
    lab.mapt.grant(VA, PAGE, 2)
    descriptors = [lab.matt.entry(VA, level) for level in range(4)]
    nodes = [lab.mapt.node(VA, level) for level in range(4)]
    for at in descriptors:
        lab.arena.write(at, lab.arena.read(at, 8)[::-1])
    for node in nodes:
        for word in range(8):
            lab.arena.write(node + 4 * word, lab.arena.read(node + 4 * word, 4)[::-1])
    state = lab.state()
    lab.tcte(mapt=lab.mapt, ENDI=1)
    assert lab.agree(state, VA).ok
    lab.tcte(mapt=lab.mapt, ENDI=0)
    assert not lab.agree(state, VA).ok


# ---- V05: single entry, address limits -----------------------------------------------------------


def single(lab: Lab, first: int, last: int, **how: int) -> int:
    """Put the context into single-entry mode (MAPT_MODE 0) with one range; address of the entry."""
    at = lab.arena.take(64)
    fields = {"V": 1, "PERMISSION": 7, "BASE_LO": first & 0xFFFFFFFF, "BASE_HI": first >> 32,
              "LIMIT_LO": last & 0xFFFFFFFF, "LIMIT_HI": last >> 32} | how  # fmt: skip
    lab.arena.write(at, UMAPTE.pack(**fields))
    lab.tcte(MAPT_EN=1, MAPT_MODE=0, MAPT_BBA=address_field(TCTE, "MAPT_BBA", at))
    return at


def test_v05_single_entry_is_byte_exact(lab: Lab) -> None:
    single(lab, VA + 0x234, VA + 0x2AA)
    state = lab.state()
    assert [lab.agree(state, VA + at, 1).event for at in (0x233, 0x234, 0x2AA, 0x2AB)] == [
        "P_PERMISSION", "", "", "P_PERMISSION",
    ]  # fmt: skip
    assert lab.agree(state, VA + 0x234, 0x78).length == 0x77
    assert lab.agree(state, VA + 0x230, 0x10).event == "P_PERMISSION"


@pytest.mark.parametrize(("how", "request_fields", "event"), [
    ({"V": 0}, {}, "P_PERMISSION"), ({"PERMISSION": 5}, {}, "P_PERMISSION"), ({"PERMISSION": 2}, {}, ""),
    ({"E_BIT": 1}, {"e": 0}, "EBIT_DENY"), ({"E_BIT": 1}, {"e": 1}, ""), ({"E_BIT": 0}, {"e": 0}, ""),
    ({"TOKEN_CHK": 1, "TOKEN_VAL_0": 3, "TOKEN_VAL_1": 4}, {"token": 4}, ""),
    ({"TOKEN_CHK": 1, "TOKEN_VAL_0": 3, "TOKEN_VAL_1": 4}, {"token": 5}, "P_PERMISSION"),
    ({"TOKEN_CHK": 1}, {}, "P_PERMISSION"), ({"TOKEN_CHK": 0}, {"token": 5}, ""),
])  # fmt: skip
def test_v05_single_entry_checks(
    lab: Lab, how: dict[str, int], request_fields: dict[str, int], event: str
) -> None:
    single(lab, VA, VA + PAGE - 1, **how)
    assert lab.agree(lab.state(), VA, **request_fields).event == event


def test_v05_mode_polarity(lab: Lab) -> None:
    """MAPT_MODE 1 is the table: an entry at the same place is then the first node of a root table."""
    single(lab, 0, TOP - 1)
    assert lab.agree(lab.state(), VA).ok
    lab.tcte(mapt=lab.mapt)
    assert lab.agree(lab.state(), VA).event == "P_PERMISSION"


@pytest.mark.parametrize("mode", ["single", "table"])
def test_v05_upper_address_bits_do_not_alias(lab: Lab, mode: str) -> None:
    """The MAPT sees 48 bits; what is above them is the translation's business, which refuses with 0x0A."""
    if mode == "single":
        single(lab, VA, VA + PAGE - 1)
    else:
        lab.mapt.grant(VA, PAGE, 7)
    state = lab.state()
    assert lab.agree(state, VA).ok
    for bit in (48, 55, 60, 63):
        assert lab.agree(state, VA | 1 << bit).event == "A_TRANSLATION"
    assert lab.agree(state, VA | 0xFFFF << 48).ok
    assert lab.agree(state, VA | 0x7FFF << 48).event == "A_TRANSLATION"
    assert lab.agree(state, VA + PAGE | 1 << 60).event == "P_PERMISSION"


def test_v05_last_byte_of_the_address_space(lab: Lab) -> None:
    state = lab.state()
    lab.mapt.grant(TOP - PAGE, PAGE, 7)
    lab.map(TOP - PAGE, lab.page(0))
    assert lab.agree(state, TOP - 1, 1).ok
    assert lab.agree(state, TOP - 1, 2).length == 1
    assert lab.agree(state, TOP, 1).event == "P_PERMISSION"
    assert lab.agree(state, (1 << 64) - 1, 1).ok


def test_zero_length_needs_no_permission(lab: Lab) -> None:
    state = lab.state()
    assert lab.agree(state, VA, 0).ok
    assert lab.agree(state, VA, 1).event == "P_PERMISSION"
    assert lab.agree(state, VA + (1 << 30), 0).event == "A_TRANSLATION"


@pytest.mark.parametrize(("entity", "context", "register", "checked"), [
    (1, 1, 1, True), (0, 1, 1, False), (1, 0, 1, False), (1, 1, 0, False), (0, 0, 1, False),
])  # fmt: skip
def test_three_switches_of_the_check(
    lab: Lab, entity: int, context: int, register: int, checked: bool
) -> None:
    """5.4: CTRL0.MAPT_EN, TECTE.MAPT_EN and TCTE.MAPT_EN, all three."""
    lab.tecte(MAPT_EN=entity)
    lab.tcte(mapt=lab.mapt, MAPT_EN=context)
    lab.regs.write("CTRL0", 3 | register << 5)
    assert lab.agree(lab.state(), VA).event == ("P_PERMISSION" if checked else "")
