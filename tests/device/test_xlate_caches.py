# SPDX-License-Identifier: GPL-2.0-or-later
"""What the caches keep and what each command drops (hardware text 9; cases V15, V21)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from cache_lab import EL2, CacheLab
from core_helper import SOAK
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import AP_RO, CONTIGUOUS, LEAF
from ummulab.qtest.ummu import SPEC

DEVICES = ("ummu,id=ummu0,strict=on",)
TAG, TID = 1, 1
BASE = 0xFF38_0000
ODD = 0xFF39_5000


@pytest.fixture
def lab(machine: QtestMachine) -> CacheLab:
    made = CacheLab(machine)
    made.entity(TAG)
    made.context(TAG, TID)
    return made


def with_ummu(options: str) -> Iterator[CacheLab]:
    with QtestMachine([f"ummu,id=ummu0,{options}"]) as machine:
        made = CacheLab(machine, ctrl2=1 << 7 if "pplb=on" in options else None)
        made.entity(TAG)
        made.context(TAG, TID, mapt=made.mapt)
        yield made


def tlbi_address(addr: int) -> int:
    """ADDR field of a TLBI command: address bits from 12 upwards."""
    return addr >> SPEC.commands["CMD_TLBI_OS_VA"].by_name["ADDR"].lsb


# ---- V21: TLB invalidation hits exactly what it names --------------------------------------------------------------


class Pages:
    """Neighbouring pages, primed; after a command each is either the old target or the new one."""

    def __init__(self, lab: CacheLab, first: int, count: int) -> None:
        self.lab, self.first, self.count = lab, first, count
        self.old = lab.arena.take(2 * count * PAGE)
        for n in range(count):
            # Never neighbours in memory, so that each page is a line of its own.
            lab.matt.map(first + n * PAGE, self.old + 2 * n * PAGE, PAGE)
            assert lab.ask(first + n * PAGE, tag=TAG, tid=TID)
        assert lab.used("tlb") >= count

    def move(self) -> None:
        """Change all descriptors: the other page of each pair."""
        for n in range(self.count):
            self.lab.matt.map(self.first + n * PAGE, self.old + (2 * n + 1) * PAGE, PAGE)

    def dropped(self) -> set[int]:
        """Numbers of the pages that follow the descriptors now."""
        out = set()
        for n in range(self.count):
            pa = self.lab.where(self.first + n * PAGE, tag=TAG, tid=TID)
            assert pa in (self.old + 2 * n * PAGE, self.old + (2 * n + 1) * PAGE)
            if pa == self.old + (2 * n + 1) * PAGE:
                out.add(n)
        return out


@pytest.mark.parametrize(("fields", "first", "last"), [
    ({"NUM": 31, "SCALE": 0, "GS": 1}, 1, 32), ({"NUM": 2, "SCALE": 1, "GS": 1}, 1, 6), ({"NUM": 0, "GS": 1}, 1, 1),
    ({}, 1, 1), ({"NUM": 31, "SCALE": 31}, 1, 1), ({"NUM": 0, "SCALE": 3, "GS": 1}, 1, 8),
    ({"NUM": 0, "GS": 2}, 0, 3), ({"NUM": 1, "GS": 2}, 0, 7), ({"NUM": 0, "GS": 3}, 0, 11),
    ({"NUM": 31, "SCALE": 31, "GS": 3}, 0, 33),
])  # fmt: skip
def test_v21_range(lab: CacheLab, fields: dict[str, int], first: int, last: int) -> None:
    """34 pages around 0xff395000; what is named follows the new descriptors, all else still hits."""
    pages = Pages(lab, ODD - PAGE, 34)
    pages.move()
    lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(ODD), **fields)
    assert pages.dropped() == set(range(first, last + 1))


def test_v21_range_that_ends_at_the_top(lab: CacheLab) -> None:
    top = (1 << 48) - 34 * PAGE
    pages = Pages(lab, top, 34)
    pages.move()
    lab.command(
        "CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(top + 2 * PAGE), NUM=31, SCALE=4, GS=1
    )
    assert pages.dropped() == set(range(2, 34))


def test_v21_kernel_addresses_are_compared_in_the_input_size(lab: CacheLab) -> None:
    """The driver passes full kernel addresses; the entry holds the low bits."""
    pages = Pages(lab, 0xFFFF_8000_0000 - PAGE, 3)
    pages.move()
    lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(0xFFFF_FFFF_8000_0000), GS=1)
    assert pages.dropped() == {1}


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("inside", [0, 0x7000])
def test_v21_small_invalidation_inside_a_large_leaf(lab: CacheLab, level: int, inside: int) -> None:
    size = 1 << lab.matt.level_shift(level)
    va = 4 * size
    lab.matt.map(va, 0x40000000, size, level=level)
    assert lab.ask(va + 0x123, tag=TAG) and lab.ask(va + 0x7123, tag=TAG) and lab.used("tlb") == 1
    lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(va - PAGE), GS=1)
    lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(va + size), GS=1)
    assert lab.used("tlb") == 1
    lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(va + inside), GS=1)
    assert lab.used("tlb") == 0


def test_v21_contiguous_group_goes_as_a_whole(lab: CacheLab) -> None:
    pa = lab.arena.take(16 * PAGE, 16 * PAGE)
    va = 0x1234_0000
    lab.matt.map(va, pa, 16 * PAGE, attributes=LEAF | CONTIGUOUS)
    assert lab.ask(va, tag=TAG) and lab.hits("tlb", va + 15 * PAGE, tag=TAG) and lab.used("tlb") == 1
    lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(va + 9 * PAGE), GS=1)
    assert lab.used("tlb") == 0


#: (tag, TID, ASID, TCRC_SEL, VMID): any two differ in few bits, some only above bit 7 or bit 15.
SPACES = (
    (0x001, 0x00001, 0x0001, 0, 5), (0x101, 0x00001, 0x0001, 0, 5), (0x001, 0x10001, 0x0101, 0, 5),
    (0x002, 0x00001, 0x0001, 0, 6), (0x002, 0x00101, 0x8001, 0, 6), (0x003, 0x00001, 0x0001, EL2, 5),
    (0x003, 0x10001, 0x0001, EL2, 5), (0x103, 0x00001, 0x0101, EL2, 6),
)  # fmt: skip
ADDRESSES = (0x1000_0000, 0x1000_1000, 0x1000_4000, 0x1_0000_1000)
#: which parts of a key each command names
NAMED = {
    "CMD_TLBI_OS_ALL": "el1 tag", "CMD_TLBI_OS_TID": "el1 tag tid", "CMD_TLBI_OS_VA": "el1 tag tid va",
    "CMD_TLBI_OS_VAA": "el1 tag va", "CMD_TLBI_HYP_ALL": "el2", "CMD_TLBI_HYP_TID": "el2 tid",
    "CMD_TLBI_HYP_VA": "el2 tid va", "CMD_TLBI_HYP_VAA": "el2 va", "CMD_TLBI_S1S2_VMALL": "tag",
    "CMD_TLBI_S2_IPA": "none", "CMD_TLBI_NS_OS_ALL": "el1", "CMD_TLBI_OS_ALL_U": "el1 vmid",
    "CMD_TLBI_OS_ASID_U": "el1 vmid asid", "CMD_TLBI_OS_VA_U": "el1 vmid asid va", "CMD_TLBI_OS_VAA_U": "el1 vmid va",
    "CMD_TLBI_HYP_ASID_U": "el2 asid", "CMD_TLBI_HYP_VA_U": "el2 asid va", "CMD_TLBI_S1S2_VMALL_U": "el1 vmid",
    "CMD_TLBI_S2_IPA_U": "none",
}  # fmt: skip


def named(words: str, space: tuple[int, ...], va: int, who: dict[str, int], pages: int) -> bool:
    """The set model: is this entry named by the command?"""
    tag, tid, asid, regime, vmid = space
    checks = {
        "el1": regime != EL2, "el2": regime == EL2, "none": False, "tag": tag == who["TECTE_TAG"],
        "tid": tid == who["TID"], "asid": asid == who["ASID"], "vmid": vmid == who["VMID"] and regime != EL2,
        "va": who["ADDR"] <= va < who["ADDR"] + pages * PAGE,
    }  # fmt: skip
    return all(checks[word] for word in words.split())


def test_v21_every_command_against_a_set_model(lab: CacheLab) -> None:
    """Random TLBI of every kind: exactly the entries the set model names are gone."""
    rng = random.Random(21)
    for va in ADDRESSES:
        lab.matt.map(va, lab.page(), PAGE)
    for tag, tid, asid, regime, vmid in SPACES:
        lab.entity(tag, TCRC_SEL=regime, S2_VMID=vmid)
        lab.context(tag, tid, ASID=asid)
    everything = list(itertools.product(SPACES, ADDRESSES))
    for space, va in everything:
        assert lab.ask(va, tag=space[0], tid=space[1])
    assert set(NAMED) == {name for name in SPEC.commands if "TLBI" in name}
    names = list(NAMED) * (500 if SOAK else 3)
    rng.shuffle(names)
    for name in names:
        tag, tid, asid, _, vmid = rng.choice(SPACES)
        pages = rng.choice([1, 1, 2, 4, 32])
        who = {
            "TECTE_TAG": tag,
            "TID": tid,
            "ASID": asid,
            "VMID": vmid,
            "ADDR": rng.choice(ADDRESSES) - PAGE * rng.choice([0, 0, 1]),
        }
        gone = [e for e in everything if named(NAMED[name], e[0], e[1], who, pages)]
        layout = SPEC.commands[name].by_name
        fields = {k: v for k, v in who.items() if k in layout}
        if "ADDR" in layout:
            fields |= {"ADDR": tlbi_address(who["ADDR"]), "NUM": pages - 1, "GS": 1}
        lab.command(name, **fields)
        assert lab.used("tlb") == len(everything) - len(gone), (name, who, pages)
        misses = lab.count("tlb-misses")
        for space, va in gone:
            assert lab.ask(va, tag=space[0], tid=space[1])
        assert lab.count("tlb-misses") == misses + len(gone), (name, who, pages)


# ---- PLBI ----------------------------------------------------------------------------------------------------------


def test_plbi_names_tag_and_tid_exactly(lab: CacheLab) -> None:
    who = [(1, 1), (1, 0x10001), (0x101, 1), (2, 1)]
    va = BASE
    lab.matt.map(va, lab.page(), PAGE)
    lab.mapt.grant(va, PAGE, 2)
    for tag, tid in who:
        lab.entity(tag)
        lab.context(tag, tid, mapt=lab.mapt)

    def prime() -> None:
        for tag, tid in who:
            assert lab.ask(va, tag=tag, tid=tid)

    for name, fields, gone in (
        ("CMD_PLBI_OS_EID", {"TECTE_TAG": 1}, {(1, 1), (1, 0x10001)}),
        ("CMD_PLBI_OS_EIDTID", {"TECTE_TAG": 1, "TID": 1}, {(1, 1)}),
        ("CMD_PLBI_OS_EIDTID", {"TECTE_TAG": 3, "TID": 1}, set()),
        ("CMD_PLBI_OS_VA", {"TECTE_TAG": 0x101, "TID": 1, "ADDR": va, "RANGE": 12}, {(0x101, 1)}),
        ("CMD_PLBI_OS_VA", {"TECTE_TAG": 0x101, "TID": 1, "ADDR": va + PAGE, "RANGE": 12}, set()),
        ("CMD_PLBI_OS_VA", {"TECTE_TAG": 2, "TID": 1, "ADDR": 0, "RANGE": 63}, {(2, 1)}),
    ):
        prime()
        lab.command(name, **fields)
        assert lab.used("plb") == len(who) - len(gone), (name, fields)
        for tag, tid in who:
            assert lab.hits("plb", va, tag=tag, tid=tid) == ((tag, tid) not in gone), (name, fields, tag, tid)


@pytest.mark.parametrize(("start", "log2", "gone"), [
    (0x2000, 12, {2}), (0x2FFF, 0, {2}), (0x1FFF, 1, {1, 2}), (0x1800, 12, {1, 2}), (0x1000, 13, {0, 1, 2}),
    (0x2000, 14, {0, 1, 2, 3, 4, 5}), (0x8000, 15, set()), (0x7FFF, 0, {7}), (0, 48, set(range(8))),
])  # fmt: skip
def test_plbi_range_is_the_union_of_both_readings(
    lab: CacheLab, start: int, log2: int, gone: set[int]
) -> None:
    """Software does not align ADDR: [ADDR, ADDR + 2^RANGE) and the aligned block around ADDR (choice 17)."""
    lab.context(TAG, TID, mapt=lab.mapt)
    for n in range(8):
        lab.matt.map(BASE + n * PAGE, lab.page(), PAGE)
        lab.mapt.grant(BASE + n * PAGE, PAGE, 2)
        assert lab.ask(BASE + n * PAGE, tag=TAG)
    lab.command("CMD_PLBI_OS_VA", TECTE_TAG=TAG, TID=TID, ADDR=BASE + start, RANGE=log2)
    assert {n for n in range(8) if not lab.hits("plb", BASE + n * PAGE, tag=TAG)} == gone


def test_plbi_of_a_node_above_the_pages(lab: CacheLab) -> None:
    """A freed own range of a non-terminal node: its own range is named, its children stay."""
    lab.context(TAG, TID, mapt=lab.mapt)
    va = BASE & ~((2 << 20) - 1)
    for n in (0, 8):
        lab.matt.map(va + n * PAGE, lab.page(), PAGE)
    lab.mapt.grant(va + 8 * PAGE, PAGE, 2)
    lab.mapt.set_range(lab.mapt.node(va, 2), 0, PAGE - 1, V=1, PERMISSION=2)
    assert lab.ask(va, tag=TAG) and lab.ask(va + 8 * PAGE, tag=TAG)
    lab.command("CMD_PLBI_OS_VA", TECTE_TAG=TAG, TID=TID, ADDR=va, RANGE=12)
    assert not lab.hits("plb", va, tag=TAG) and lab.hits("plb", va + 8 * PAGE, tag=TAG)


def test_plbi_by_next_level_table() -> None:
    for lab in with_ummu("free-bit=on,strict=on"):
        places = [BASE, BASE + (2 << 20), 5 << 39]
        for va in places:
            lab.matt.map(va, lab.page(), PAGE)
            lab.mapt.grant(va, PAGE, 2)
            assert lab.ask(va, tag=TAG)
        parent = lab.mapt.read(lab.mapt.node(BASE, 2))
        lab.command("CMD_PLBI_OS_N", TECTE_TAG=TAG, TID=TID, NEXT_LVL_INDEX=parent["NEXT_LV_INDEX"],
                    NEXT_LVL_OFFSET=parent["NEXT_LV_OFFSET_LO"])  # fmt: skip
        assert [lab.hits("plb", va, tag=TAG) for va in places] == [False, True, True]


def test_tlbi_leaves_permissions_and_plbi_leaves_translations(lab: CacheLab) -> None:
    lab.context(TAG, TID, mapt=lab.mapt)
    lab.matt.map(BASE, lab.page(), PAGE)
    lab.mapt.grant(BASE, PAGE, 2)
    assert lab.ask(BASE, tag=TAG)
    lab.command("CMD_TLBI_NS_OS_ALL")
    lab.command("CMD_TLBI_HYP_ALL")
    assert (lab.used("tlb"), lab.used("plb")) == (0, 1)
    assert lab.ask(BASE, tag=TAG)
    lab.command("CMD_PLBI_OS_EID", TECTE_TAG=TAG)
    assert (lab.used("tlb"), lab.used("plb")) == (1, 0)


# ---- CFGI ----------------------------------------------------------------------------------------------------------

TAGS = (0, 1, 2, 3, 4, 5, 7, 8, 0x101)


@pytest.mark.parametrize(("name", "fields", "entities", "contexts"), [
    ("CMD_CFGI_TECT", {"DEID_LO": 2}, {2}, set()),
    ("CMD_CFGI_TECT", {"DEID_LO": 0x10002}, set(), set()),
    ("CMD_CFGI_TECT_RANGE", {"DEID_LO": 2, "RANGE": 0}, {2, 3}, set()),
    ("CMD_CFGI_TECT_RANGE", {"DEID_LO": 3, "RANGE": 0}, {2, 3}, set()),
    ("CMD_CFGI_TECT_RANGE", {"DEID_LO": 5, "RANGE": 1}, {4, 5, 7}, set()),
    ("CMD_CFGI_TECT_RANGE", {"DEID_LO": 0, "RANGE": 29}, set(TAGS), set()),
    ("CMD_CFGI_TECT_RANGE", {"RANGE": 30}, set(TAGS), set(TAGS)),
    ("CMD_CFGI_TECT_RANGE", {"RANGE": 31}, set(TAGS), set(TAGS)),
    ("CMD_CFGI_TCT", {"DEID_LO": 1, "TID": TID}, set(), {1}),
    ("CMD_CFGI_TCT", {"DEID_LO": 1, "TID": 2}, set(), set()),
    ("CMD_CFGI_TCT", {"DEID_LO": 1, "TID": 0x10001}, set(), set()),
    ("CMD_CFGI_TCT_ALL", {"DEID_LO": 0x101}, set(), {0x101}),
])  # fmt: skip
def test_v15_cfgi_in_strict_mode_drops_what_it_names(
    lab: CacheLab, name: str, fields: dict[str, int], entities: set[int], contexts: set[int]
) -> None:
    lab.matt.map(BASE, lab.page(), PAGE)
    for tag in TAGS:
        lab.entity(tag)
        lab.context(tag, TID)
        assert lab.ask(BASE, tag=tag)
    lab.command(name, **fields)
    assert lab.used("cfg") == 2 * len(TAGS) - len(entities) - len(contexts)
    assert lab.used("tlb") == len(TAGS), "strict: translations stay until a TLBI"
    for tag in TAGS:
        before = lab.count("cfg-misses")
        assert lab.ask(BASE, tag=tag)
        assert lab.count("cfg-misses") == before + (tag in entities) + (tag in contexts), tag


def test_cfgi_drops_dependents_unless_strict() -> None:
    for lab in with_ummu("strict=off"):
        lab.entity(2)
        lab.context(2, TID, mapt=lab.mapt)
        lab.matt.map(BASE, lab.page(), PAGE)
        lab.mapt.grant(BASE, PAGE, 2)
        for tag in (TAG, 2):
            assert lab.ask(BASE, tag=tag)
        lab.command("CMD_CFGI_TCT", DEID_LO=TAG, TID=TID)
        assert (lab.used("tlb"), lab.used("plb")) == (1, 1)
        assert lab.hits("tlb", BASE, tag=2) and lab.hits("plb", BASE, tag=2)


# ---- what is kept --------------------------------------------------------------------------------------------------


def test_refusals_are_never_cached(lab: CacheLab) -> None:
    """A new entity, context, mapping or grant needs no invalidation at all."""
    tag = 7
    assert not lab.ask(BASE, tag=tag)
    lab.entity(tag)
    assert not lab.ask(BASE, tag=tag)
    at = lab.context(tag, TID, mapt=lab.mapt, V=0)
    assert not lab.ask(BASE, tag=tag)
    assert at == lab.context(tag, TID, mapt=lab.mapt)
    assert not lab.ask(BASE, tag=tag)
    lab.mapt.grant(BASE, PAGE, 2)
    assert not lab.ask(BASE, tag=tag)
    lab.matt.map(BASE, lab.page(), PAGE)
    assert lab.ask(BASE, tag=tag)
    assert [e.code for e in lab.core.events()] == [0x04, 0x06, 0x08, 0x13, 0x0A]
    assert not lab.ask(BASE, tag=tag, access="write")
    lab.mapt.grant(BASE, PAGE, 3)
    lab.command("CMD_PLBI_OS_EIDTID", TECTE_TAG=tag, TID=TID)  # a changed node does need one
    assert lab.ask(BASE, tag=tag, access="write")


@pytest.mark.parametrize(
    "options", ["strict=on", "strict=off", "tlb-entries=0,plb-entries=0,cfg-cache-entries=0"]
)
def test_access_without_invalidation(options: str) -> None:
    """A stale hit is allowed; without caches there is none; after the invalidation there never is."""
    for lab in with_ummu(options):
        cached = "=0" not in options
        lab.matt.map(BASE, lab.page(), PAGE)
        nodes = lab.mapt.grant(BASE, PAGE, 2)
        assert lab.ask(BASE, tag=TAG)
        lab.mapt.revoke(nodes)
        assert lab.ask(BASE, tag=TAG) == cached
        lab.command("CMD_PLBI_OS_VA", TECTE_TAG=TAG, TID=TID, ADDR=BASE, RANGE=12)
        assert not lab.ask(BASE, tag=TAG)
        lab.mapt.grant(BASE, PAGE, 2)
        lab.matt.unmap(BASE, PAGE)
        assert lab.ask(BASE, tag=TAG) == cached
        lab.command("CMD_TLBI_OS_TID", TECTE_TAG=TAG, TID=TID)
        assert not lab.ask(BASE, tag=TAG)


def test_full_cache_loses_one_line_not_all() -> None:
    for lab in with_ummu("tlb-entries=8,plb-entries=8,cfg-cache-entries=8"):
        for n in range(32):
            lab.matt.map(BASE + n * PAGE, lab.page(), PAGE)
            lab.mapt.grant(BASE + n * PAGE, PAGE, 2)
            assert lab.ask(BASE + n * PAGE, tag=TAG)
            counters = lab.counters()
            assert lab.used("tlb") == lab.used("plb") == min(n + 1, 8)
            assert counters["tlb-evictions"] == counters["plb-evictions"] == max(0, n - 7)


@pytest.mark.parametrize("entries", [1, 2, 3, 5])
def test_odd_sizes(entries: int) -> None:
    for lab in with_ummu(f"tlb-entries={entries},plb-entries={entries},cfg-cache-entries={entries}"):
        for n in range(8):
            lab.matt.map(BASE + n * PAGE, lab.page(), PAGE)
            lab.mapt.grant(BASE + n * PAGE, PAGE, 2)
        for n in [*range(8), *range(8)]:
            assert lab.ask(BASE + n * PAGE, tag=TAG)
            assert lab.used("tlb") <= entries and lab.used("plb") <= entries


def test_positive_plb_looks_again_for_a_token_only() -> None:
    """6.3: a token mismatch is decided on the node in memory; type and E_bit mismatches are final."""
    for lab in with_ummu("pplb=on,strict=on"):
        lab.matt.map(BASE, lab.page(), PAGE)
        (node,) = lab.mapt.grant(BASE, PAGE, 2, token=5)
        assert lab.ask(BASE, tag=TAG, token=5) and not lab.ask(BASE, tag=TAG, token=6)
        lab.mapt.write(node, **lab.mapt.read(node) | {"TOKEN_VAL_1": 6, "NONCE": 2, "PERMISSION": 3})
        assert not lab.ask(BASE, tag=TAG, token=7)
        assert lab.ask(BASE, tag=TAG, token=6) and lab.ask(BASE, tag=TAG, token=5)
        assert lab.count("plb-positive-rewalks") == 1, "what is not cached any more is simply walked"
        lab.mapt.write(node, **lab.mapt.read(node) | {"PERMISSION": 2})
        lab.command("CMD_PLBI_OS_EID", TECTE_TAG=TAG)
        assert lab.ask(BASE, tag=TAG, token=5)
        lab.mapt.write(node, **lab.mapt.read(node) | {"PERMISSION": 3})
        assert not lab.ask(BASE, tag=TAG, token=5, access="write"), "type mismatch is final"


def test_token_mismatch_is_final_without_positive_plb(lab: CacheLab) -> None:
    lab.context(TAG, TID, mapt=lab.mapt)
    lab.matt.map(BASE, lab.page(), PAGE)
    (node,) = lab.mapt.grant(BASE, PAGE, 2, token=5)
    assert lab.ask(BASE, tag=TAG, token=5)
    lab.mapt.write(node, **lab.mapt.read(node) | {"TOKEN_VAL_1": 6})
    assert not lab.ask(BASE, tag=TAG, token=6)
    lab.command("CMD_PLBI_OS_EID", TECTE_TAG=TAG)
    assert lab.ask(BASE, tag=TAG, token=6)


def test_v02_second_token_works_and_the_first_stays(lab: CacheLab) -> None:
    """V02, device half: two tokens of one node, in both slots, after each change and its PLBI."""
    lab.context(TAG, TID, mapt=lab.mapt)
    lab.matt.map(BASE, lab.page(), PAGE)
    (node,) = lab.mapt.grant(BASE, PAGE, 3, token=1)
    for slots, allowed in (((1, 1), {1}), ((1, 2), {1, 2}), ((2, 2), {2}), ((2, 1), {1, 2})):
        lab.mapt.write(node, **lab.mapt.read(node) | {"TOKEN_VAL_0": slots[0], "TOKEN_VAL_1": slots[1]})
        lab.command("CMD_PLBI_OS_VA", TECTE_TAG=TAG, TID=TID, ADDR=BASE, RANGE=12)
        assert {t for t in (0, 1, 2, 3) if lab.ask(BASE, tag=TAG, token=t)} == allowed


@pytest.mark.parametrize(("ash", "kept"), [(0, False), (1, True)])
def test_contexts_that_follow_broadcasts_are_not_cached(ash: int, kept: bool) -> None:
    """9.3: the model does not see the CPUs' TLBI."""
    for lab in with_ummu("tlb-broadcast=on"):
        lab.context(TAG, TID, ASH=ash)
        lab.matt.map(BASE, lab.page(), PAGE)
        assert lab.ask(BASE, tag=TAG)
        assert (lab.used("tlb") == 1) == kept
        lab.matt.unmap(BASE, PAGE)
        assert lab.ask(BASE, tag=TAG) == kept


def test_changed_permission_needs_no_tlbi_when_it_was_raised(lab: CacheLab) -> None:
    """Software that raises a page's rights sends nothing; a cached leaf that refuses decides nothing."""
    pa = lab.page()
    lab.matt.map(BASE, pa, PAGE, attributes=LEAF | AP_RO)
    assert lab.ask(BASE, tag=TAG) and not lab.ask(BASE, tag=TAG, access="write")
    lab.matt.map(BASE, pa, PAGE)
    assert lab.ask(BASE, tag=TAG, access="write") and lab.hits("tlb", BASE, tag=TAG)


def test_disabling_empties_the_caches_unless_strict() -> None:
    for options, left in (("strict=off", 0), ("strict=on", 1)):
        for lab in with_ummu(options):
            lab.matt.map(BASE, lab.page(), PAGE)
            lab.mapt.grant(BASE, PAGE, 2)
            assert lab.ask(BASE, tag=TAG)
            lab.core.regs.write("CTRL0", 0)
            assert lab.used("tlb") == left


@pytest.mark.parametrize(
    ("pages", "missing", "kept"), [(1, None, 1), (5, None, 5), (8, None, 8), (12, None, 8), (8, 2, 2)]
)
def test_long_request_keeps_the_pages_it_asks_for(
    lab: CacheLab, pages: int, missing: int | None, kept: int
) -> None:
    """One read of the table gives up to eight descriptors; never more pages than were asked for, never a bad one."""
    targets = []
    for n in range(16):
        targets.append(lab.page())
        lab.page()  # never neighbours in memory
        lab.matt.map(BASE + n * PAGE, targets[n], PAGE, attributes=LEAF | (AP_RO if n == 1 else 0))
    if missing is not None:
        lab.matt.unmap(BASE + missing * PAGE, PAGE)
    assert lab.ask(BASE, tag=TAG, length=pages * PAGE)
    assert lab.used("tlb") == kept
    assert [lab.where(BASE + n * PAGE, tag=TAG) for n in range(kept)] == targets[:kept]
    if kept > 1:
        assert lab.hits("tlb", BASE + PAGE, tag=TAG)
        assert not lab.ask(BASE + PAGE, tag=TAG, access="write"), "rights are judged on use"
        lab.command("CMD_TLBI_OS_VA", TID=TID, TECTE_TAG=TAG, ADDR=tlbi_address(BASE + PAGE), GS=1)
        assert lab.used("tlb") == kept - 1


def test_pages_not_accessed_yet_are_not_kept_ahead(lab: CacheLab) -> None:
    lab.context(TAG, TID, HAF=1)
    for n in range(8):
        lab.matt.map(BASE + n * PAGE, lab.page(), PAGE, attributes=LEAF & ~(1 << 10 if n == 3 else 0))
        lab.page()
    assert lab.ask(BASE, tag=TAG, length=8 * PAGE)
    assert lab.used("tlb") == 3 and lab.count("access-flag-updates") == 0
