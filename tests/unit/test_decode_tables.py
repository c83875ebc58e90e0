# SPDX-License-Identifier: GPL-2.0-or-later
"""Decoders against tables with known contents: nothing lost, nothing invented (V33)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ummulab import layouts
from ummulab.decode import mapt, matt, queues, tables
from ummulab.decode.view import Problem, View
from ummulab.fuzz.image import RAM_BASE, S1_RO, S1_RW, S2_RW, Builder, Mapt, PageTable
from ummulab.memory import MemoryReadError
from ummulab.model import State, stage1


def view_of(b: Builder) -> View:
    """What a decoder gets of a builder's set-up."""
    return View(b.image, b.registers, b.kv)


def tcte_of(b: Builder, tag: int, tid: int) -> layouts.Entry:
    """A context as decoded from memory."""
    where = b.tcte_addr(tag, tid)
    return layouts.parse("TCTE", b.image.read(where, 64), where)


# ------------------------------------------------------------------ TECT, TCT
@pytest.mark.parametrize("fmt", [0, 1, 2])
def test_every_context_is_found_with_its_address(fmt: int) -> None:
    b = Builder(tid_bits=12, tct_fmt=fmt)
    pt = PageTable(b.image)
    want = {}
    for tag in (0, 3, 15):
        b.entity(tag, 0x100 + tag)
        for tid in (1, 63, 64, 1023, 1024, 4095):
            want[tag, tid] = b.context(tag, tid, pt, ASID=tid)
    problems: list[Problem] = []
    view = view_of(b)
    found = [c for e in tables.entities(view, problems) for c in tables.contexts(view, e, problems)]
    assert {(c.tag, c.tid): c.entry.addr for c in found} == want
    assert all(c.entry["ASID"] == c.tid for c in found)
    assert problems == []
    (entity,) = tables.entities(view, problems, tag=3)
    (one,) = tables.contexts(view, entity, problems, tid=1024)
    assert (one.tid, one.entry.addr) == (1024, want[3, 1024])


def test_two_level_tect() -> None:
    b = Builder()
    l1, l2 = b.image.take(4096), b.image.take(4096)
    b.registers.update(TECT_BASE=l1, TECT_BASE_CFG=16 | 8 << 6 | 1 << 11)
    b.image.write(l1 + 5 * 8, layouts.build("TECT_L1_DESC", V=1, L2TECTE_NUM=4, L2PTR=l2 >> 6))
    for index in (3, 15, 16):
        b.image.write(l2 + index * 64, layouts.build("TECTE", V=1, S2_VMID=index))
    problems: list[Problem] = []
    found = [(e.tag, e.entry.addr) for e in tables.entities(view_of(b), problems)]
    assert found == [(5 << 8 | 3, l2 + 192), (5 << 8 | 15, l2 + 960)], "entry 16 lies behind the table"


def test_tables_outside_memory_are_problems() -> None:
    b = Builder(tid_bits=12)
    b.entity(0, 1, TCT_PTR=1 << 41)
    b.entity(1, 2, TCT_FMT=3)
    problems: list[Problem] = []
    view = view_of(b)
    for entity in tables.entities(view, problems):
        assert list(tables.contexts(view, entity, problems)) == []
    assert [(p.path, p.addr) for p in problems][0] == ("TECT[0x0].TCT", 1 << 47)
    assert "TCT_FMT 3" in problems[1].text
    b.registers["TECT_BASE"] = 1 << 45
    problems.clear()
    assert list(tables.entities(view_of(b), problems)) == []
    assert "0 of 16 entries read" in problems[0].text


def test_a_table_cut_by_the_end_of_memory_gives_its_beginning() -> None:
    b = Builder(tid_bits=8, tct_fmt=0)
    end = RAM_BASE + b.image.size
    b.entity(0, 1, TCT_PTR=(end - 8192) >> 6)
    b.image.write(end - 8192 + 100 * 64, layouts.build("TCTE", V=1))
    problems: list[Problem] = []
    view = view_of(b)
    (entity,) = tables.entities(view, problems)
    assert [c.tid for c in tables.contexts(view, entity, problems)] == [100]
    assert "128 of 256 entries read" in problems[0].text


# ------------------------------------------------------------------ MAPT
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, (1 << 36) - 1), st.integers(1, 1 << 31)), min_size=1, max_size=12))
def test_dumped_ranges_cover_exactly_what_was_granted(pieces: list[tuple[int, int]]) -> None:
    b = Builder()
    table = Mapt(b.image)
    at = 0
    granted = []
    for gap, length in pieces:
        first = (at + gap) & -4096
        first = max(first, at)
        last = first + length - 1
        granted.append((first, last))
        table.grant(first, last, PERMISSION=3)
        at = (last | 0xFFF) + 1
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), table)
    dump = mapt.dump(b.image, tcte_of(b, 0, 5))
    assert dump.problems == []
    merged: list[list[int]] = []
    for r in dump.ranges():
        assert r.entry["PERMISSION"] == 3
        if merged and merged[-1][1] + 1 == r.first:
            merged[-1][1] = r.last
        else:
            merged.append([r.first, r.last])
    want: list[list[int]] = []
    for first, last in granted:
        if want and want[-1][1] + 1 == first:
            want[-1][1] = last
        else:
            want.append([first, last])
    assert merged == want


def test_entries_keep_address_and_words() -> None:
    b = Builder()
    table = Mapt(b.image)
    table.grant(0x1000, 0x1FFF, PERMISSION=2, TOKEN_CHK=1, TOKEN_VAL_0=7)
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), table)
    (r,) = mapt.dump(b.image, tcte_of(b, 0, 5)).ranges()
    assert b.image.read(r.entry.addr, 32) == r.entry.raw
    assert (r.level, r.entry["TOKEN_VAL_0"]) == (3, 7)


def test_single_entry_mode() -> None:
    b = Builder()
    b.entity(0, 1)
    where = b.image.take(32)
    b.context(0, 5, PageTable(b.image), entry=where)
    assert len(mapt.dump(b.image, tcte_of(b, 0, 5))) == 0
    b.image.write(
        where, layouts.build("UMAPTE", V=1, BASE_LO=0x1234, LIMIT_LO=0x12AA, LIMIT_HI=1, PERMISSION=2)
    )
    (r,) = mapt.dump(b.image, tcte_of(b, 0, 5)).ranges()
    assert (r.first, r.last, r.entry.addr) == (0x1234, 0x1_0000_12AA, where)


def test_freed_ranges_are_not_shown() -> None:
    b = Builder()
    table = Mapt(b.image)
    table.grant(0x1000, 0x1FFF, PERMISSION=3)
    where = table.node_addr(table.root, 0, 0)
    node = layouts.parse("MAPTE", b.image.read(where, 32), where)
    b.image.write(where, layouts.replace(node, BASE_LO=0, LIMIT_LO=0xFFFFF, PERMISSION=3, F_BIT=1))
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), table)
    tcte = tcte_of(b, 0, 5)
    assert len(mapt.dump(b.image, tcte, free_bit=True)) == 1
    assert len(mapt.dump(b.image, tcte, free_bit=False)) == 2


def test_cycles_and_wild_pointers_end_as_problems() -> None:
    b = Builder()
    table = Mapt(b.image)
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), table)
    hostile = [
        ({"NEXT_LV_INDEX": 0}, "reached twice", 1),
        ({"NEXT_LV_INDEX": 0}, "reached twice", 2),
        ({"N": 1, "NEXT_LV_INDEX": 9}, "block descriptor 9: V 0", 3),
        ({"N": 1, "NEXT_LV_INDEX": 0xFFFF}, "block index 65535", 4),
        ({"NEXT_LV_OFFSET_LO": 0xFFE00}, "does not fit a block", 5),
        ({"NEXT_LV_OFFSET_LO": 7}, "does not fit a block", 6),
    ]
    for fields, _, index in hostile:
        where = table.root + index * 32
        b.image.write(where, layouts.build("MAPTE", V=1, T=0, BASE_LO=0xFFF, LIMIT_LO=0xFFF, **fields))
    dump = mapt.dump(b.image, tcte_of(b, 0, 5), path="MAPT")
    texts = [str(p) for p in dump.problems]
    for _, text, index in hostile[2:]:
        assert any(text in t and f"L0[{index}]" in t for t in texts), (text, texts)
    assert any("reached twice" in t for t in texts)
    assert dump.tables <= 4, "each table is read once per level"


def test_no_table_memory() -> None:
    b = Builder()
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), Mapt(b.image), MAPT_BBA=1 << 41)
    dump = mapt.dump(b.image, tcte_of(b, 0, 5))
    assert len(dump) == 0 and "not in this memory" in dump.problems[0].text


def test_near() -> None:
    b = Builder()
    table = Mapt(b.image)
    for at in (0x10000, 0x20000, 0x90000):
        table.grant(at, at + 0xFFF, PERMISSION=3)
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), table)
    dump = mapt.dump(b.image, tcte_of(b, 0, 5))
    assert [r.first for r in dump.near(0x21000)] == [0x20000, 0x10000]
    assert [r.first for r in dump.near(0x8F000, 1)] == [0x90000]
    assert mapt.Dump().near(0) == []


# ------------------------------------------------------------------ MATT
@pytest.mark.parametrize("granule", [0, 1, 2])
def test_page_tables(granule: int) -> None:
    b = Builder()
    pt = PageTable(b.image, granule)
    page, block = 1 << pt.shift(3), 1 << pt.shift(2)
    want = {}
    for i in range(4):
        want[7 * block + i * page] = (0x5000_0000 + i * page, page)
    want[9 * block] = (0x4000_0000 & -block, block)
    for va, (pa, size) in want.items():
        pt.map(va, pa, S1_RW, 2 if size == block else 3)
    b.entity(0, 1)
    b.context(0, 5, pt)
    dump = matt.dump(b.image, stage1.geometry(State(b.registers), tcte_of(b, 0, 5)))
    assert {m.va: (m.pa, m.size) for m in dump.mappings()} == want
    runs = dump.runs()
    assert [(r.va, r.leaves) for r in runs] == [(7 * block, 4), (9 * block, 1)]
    for m in dump.mappings():
        assert b.image.read(m.entry.addr, 8) == m.entry.raw


def test_runs_end_where_attributes_change() -> None:
    b = Builder()
    pt = PageTable(b.image)
    for i in range(4):
        pt.map(i * 4096, 0x5000_0000 + i * 4096, S1_RW | (S1_RO if i >= 2 else 0))
    geo = stage1.geometry(
        State(b.registers),
        layouts.parse("TCTE", layouts.build("TCTE", V=1, SZ=16, GPAS=5, MATTBA=pt.root >> 4)),
    )
    assert [(r.va, r.leaves) for r in matt.dump(b.image, geo).runs()] == [(0, 2), (0x2000, 2)]


def test_damaged_page_tables() -> None:
    b = Builder()
    pt = PageTable(b.image)
    b.image.write(pt.root, (1 << 46 | 3).to_bytes(8, "little"))  # outside memory
    b.image.write(pt.root + 8, (pt.root | 3).to_bytes(8, "little"))  # itself, one level down
    b.image.write(pt.root + 16, (0x4000_0000 | 1).to_bytes(8, "little"))  # a block where none may be
    geo = stage1.geometry(
        State(b.registers),
        layouts.parse("TCTE", layouts.build("TCTE", V=1, SZ=16, GPAS=5, MATTBA=pt.root >> 4)),
    )
    dump = matt.dump(b.image, geo, path="MATT")
    texts = [str(p) for p in dump.problems]
    assert any("MATT.L0[0]" in t and "not in this memory" in t for t in texts)
    assert any("reserved descriptor" in t and "MATT.L0[2]" in t for t in texts)
    assert dump.tables <= 8, "two addresses, four levels"


def test_stage_2_memory_of_a_nested_entity() -> None:
    b = Builder(tid_bits=6, tct_fmt=0)
    s2 = PageTable(b.image, 0, 40)
    table = b.image.take(4096)
    s2.map(0x7000, table, S2_RW)
    b.image.write(table + 64, layouts.build("TCTE", V=1, ASID=9))
    b.entity(
        0, 1, ST_MODE=7, TCT_PTR=0x7000 >> 6, NS_S2_TSZ=24, NS_S2_SL=2, S2_PAS=5, NS_S2_MATT=s2.root >> 4
    )
    view = view_of(b)
    problems: list[Problem] = []
    (entity,) = tables.entities(view, problems)
    (context,) = tables.contexts(view, entity, problems)
    assert (context.tid, context.entry.addr, context.entry["ASID"]) == (1, 0x7040, 9)
    with pytest.raises(MemoryReadError, match="stage 2"):
        view.table_memory(entity.entry).read(0x8000, 8)


# ------------------------------------------------------------------ rings
@pytest.mark.parametrize(
    ("producer", "consumer", "pending"), [(0, 0, 0), (3, 0, 3), (16, 0, 16), (1, 30, 3), (14, 14, 0)]
)
def test_pending_entries_of_a_ring(producer: int, consumer: int, pending: int) -> None:
    b = Builder()
    base = b.image.take(16 * 64, 1024)
    for i in range(16):
        b.image.write(base + i * 64, layouts.build("EVT", CODE=0x0A, TID=i))
    b.registers.update(EVENT_QUE_BASE=base | 4, EVENT_QUE_PI=producer, EVENT_QUE_CI=consumer)
    problems: list[Problem] = []
    view = view_of(b)
    ring = queues.eventq(view)
    assert (ring.base, ring.entries, ring.pending) == (base, 16, pending)
    found = list(queues.slots(view, ring, problems, last=4))
    wait = [s for s in found if s.pending]
    assert [s.entry["TID"] for s in wait] == [(consumer + i) % 16 for i in range(pending)]
    assert len(found) == pending + min(4, 16 - pending)
    assert problems == []


def test_impossible_indexes_are_a_problem() -> None:
    b = Builder()
    base = b.image.take(1024, 1024)
    b.registers.update(EVENT_QUE_BASE=base | 4, EVENT_QUE_PI=20, EVENT_QUE_CI=1)
    problems: list[Problem] = []
    assert len(list(queues.slots(view_of(b), queues.eventq(view_of(b)), problems))) == 16
    assert "19 entries apart in a ring of 16" in problems[0].text


def test_command_queue_entries() -> None:
    b = Builder()
    base = b.image.take(1024, 1024)
    b.image.write(base, layouts.build("CMD_TLBI_OS_TID", OPCODE=0x11, TID=0x55))
    b.image.write(base + 32, layouts.build("CMD_SYNC", OPCODE=1, CM=1))
    banks = {("MCMDQ_BASE", 2): base | 5, ("MCMDQ_PI", 2): 1 << 31 | 2, ("MCMDQ_CI", 2): 1 << 31}
    view = View(b.image, b.registers, {}, banks)
    (ring,) = queues.mcmdqs(view)
    assert (ring.name, ring.entries, ring.pending) == ("MCMDQ2", 32, 2)
    assert [s.entry.name for s in queues.slots(view, ring, [])] == ["CMD_TLBI_OS_TID", "CMD_SYNC"]


def test_user_queue_contexts() -> None:
    b = Builder()
    base = b.image.take(4096)
    ring = b.image.take(4096)
    b.image.write(
        base + 3 * 64, layouts.build("MAPT_CMDQ_CTX", STATUS=1, TID=7, UCMDQ_BASE=ring >> 12, UCMDQ_QSIZE=8)
    )
    b.registers["MAPT_CMDQ_CTXT_BADDR"] = base | 6
    view = view_of(b)
    ((qid, entry),) = queues.user_contexts(view, [])
    assert (qid, entry.addr, entry["TID"]) == (3, base + 192, 7)
    b.image.write(ring, layouts.build("UCMD", OPCODE=0x11, RANGE=12))
    user = queues.user_ring(qid, entry, {"pi": 1, "ci": 0})
    (slot,) = queues.slots(view, user, [])
    assert slot.entry["RANGE"] == 12


def test_events_show_only_what_their_code_fills() -> None:
    entry = layouts.parse("EVT", layouts.build("EVT", CODE=0x15, TID=1, TECTE_TAG=2, IADDR=3, RNW=1, IPA=99))
    assert queues.event_fields(entry) == {"TECTE_TAG": 2, "TID": 1, "IADDR": 3, "RNW": 1}
    unknown = layouts.parse("EVT", layouts.build("EVT", CODE=0x77, IPA=99))
    assert queues.event_fields(unknown)["IPA"] == 99


# ------------------------------------------------------------------ bindings
def test_bindings_from_memory() -> None:
    b = Builder()
    kv, cam = b.image.take(65536), b.image.take(8192)
    eid = 0x1122_3344_5566_7788_99AA_BBCC_DDEE_FF00
    slot = bytearray(layouts.build("KV_ENTRY", V=1, TECTE_TAG=9))
    slot[16:] = eid.to_bytes(16, "little")
    b.image.write(kv + 77 * 32, bytes(slot))
    slot[16:] = (5).to_bytes(16, "little")
    b.image.write(cam + 255 * 32, bytes(slot))
    b.registers.update(
        DSTEID_KV_TABLE_BASE=kv,
        DSTEID_KV_TABLE_BASE_CFG=0x0100_0800,
        DSTEID_CAM_TABLE_BASE=cam,
        DSTEID_CAM_TABLE_BASE_CFG=0x0100_0000,
    )
    view = View(b.image, b.registers)
    assert view.kv == {eid: 9, 5: 9}
    assert view.eids_of(9) == [5, eid]
    assert view.eids_of(1) == []


def test_a_hundred_thousand_ranges() -> None:
    b = Builder()
    table = Mapt(b.image, block_code=9)
    count = 100_000
    node = layouts.build("MAPTE", V=1, T=1, LIMIT_LO=0xFFF, PERMISSION=3)
    full = node * 512
    for start in range(0, count << 12, 512 << 12):
        table.grant(start, start + 0xFFF, PERMISSION=3)
        leaf = table.blocks[-1] + (table.used - 1) * 16384
        b.image.write(leaf, full)
    b.entity(0, 1)
    b.context(0, 5, PageTable(b.image), table)
    dump = mapt.dump(b.image, tcte_of(b, 0, 5))
    assert len(dump) == -(-count // 512) * 512
    assert sum(1 for _ in itertools.islice(dump.ranges(), count)) == count
    assert dump.problems == []
