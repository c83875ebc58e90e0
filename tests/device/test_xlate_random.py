# SPDX-License-Identifier: GPL-2.0-or-later
"""Device and reference model give the same answer on random, half broken tables.

Worlds are built valid and then damaged a few bits at a time, so that every check is met by inputs that pass all
checks before it.  A failing seed is printed by pytest as the test's parameter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from core_helper import SOAK
from ummulab.model import Access
from ummulab.qtest.bench import PERIPHERAL
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import AP_EL0, AP_RO, CONTIGUOUS, DBM, LEAF, MAPTE, Matt
from ummulab.spec import Layout
from xlate_lab import LOG2_TIDS, S2_LEAF, TCTE, TECTE, TID, VA, Lab, request_text

DEVICES = ("ummu,id=ummu0",)
SEEDS = range(400 if SOAK else 16)
NODE_SEEDS = range(2500 if SOAK else 8)  # 40 x up to 4 nodes each
DESCRIPTOR_SEEDS = range(300 if SOAK else 6)
QUESTIONS = 40
NESTED = 7
STAGE2: tuple[dict[str, int], ...] = (
    {"shift": 12, "bits": 40}, {"shift": 12, "bits": 48}, {"shift": 16, "bits": 44}, {"shift": 14, "bits": 46},
)  # fmt: skip


def flip(rng: random.Random, lab: Lab, layout: Layout, at: int) -> None:
    """Give one field of an entry a random value, often an extreme one."""
    field = rng.choice(list(layout.fields))
    limit = (1 << field.width) - 1
    words = layout.unpack(lab.arena.read(at, layout.size))
    words[field.name] = rng.choice([0, 1 & limit, limit, limit >> 1, rng.randint(0, limit)])
    lab.arena.write(at, layout.pack(**words))


class World:
    """One context with three pages in different corners of the address space, damaged."""

    def __init__(self, lab: Lab, rng: random.Random) -> None:
        self.lab, self.rng = lab, rng
        self.addresses: list[int] = []
        shift = rng.choice([12, 12, 14, 16])
        self.matt = Matt(lab.arena, shift, rng.choice([40, 44, 47, 48]))
        self.tecte = lab.tecte_fields()
        self.nested = rng.random() < 0.4
        self.s2 = lab.stage2(**rng.choice(STAGE2)) if self.nested else None
        self._pages()
        self._entries()
        levels = range(self.matt.start_level, 4)
        self.entries = [self.matt.entry(va, level) for va in self.addresses for level in levels]
        self.s2_entries = [self.s2.entry(lab.pages, level) for level in (1, 2)] if self.s2 else []
        self.nodes = [lab.mapt.node(va, level) for va in self.addresses for level in range(4)]
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            self._damage()

    def _pages(self) -> None:
        rng, lab = self.rng, self.lab
        size = 1 << self.matt.shift
        for low in (VA, 3 << 30, rng.getrandbits(38) & ~(size - 1)):
            attributes = LEAF & ~AP_EL0
            attributes |= rng.choice([0, AP_EL0]) | rng.choice([0, AP_RO]) | rng.choice([0, 0, DBM])
            attributes &= ~rng.choice([0, 0, 0, 1 << 10])
            attributes &= ~rng.choice([0, 1 << 53, 1 << 54, 3 << 53])
            attributes |= rng.choice([0, 0, CONTIGUOUS])
            target = lab.pages & ~(size - 1)
            self.matt.map(low, target, size, attributes=attributes)
            self.matt.map(low + size, target + size * rng.choice([0, 1]), size, attributes=attributes)
            self.addresses += [low, low + size - 4, low + size]
            permission = rng.choice([7, 7, 3, 2, 1, 0, 5])
            token = rng.choice([None, None, 0, 7, 0xFFFFFFFF])
            lab.mapt.grant(low, rng.choice([size, 2 * size, 0x123, 3 << 20]), permission, token=token,
                           e_bit=rng.choice([0, 0, 1]))  # fmt: skip

    def _entries(self) -> None:
        rng, lab = self.rng, self.lab
        if self.s2:
            self.tecte |= lab.stage2_fields(self.s2) | {"ST_MODE": rng.choice([NESTED, NESTED, NESTED, 6])}
        lab.tecte(**self.tecte)
        for tid in (TID, TID + 1):
            lab.tcte(tid, matt=self.matt, mapt=rng.choice([None, lab.mapt, lab.mapt]),
                     **{name: rng.choice([0, 0, 1]) for name in ("WXN", "UWXN", "PAN", "AFFD", "HAF", "HAD")},
                     FBA=rng.choice([1, 1, 0]), FBR=rng.choice([1, 0]), E_BIT=rng.choice([0, 0, 0, 1]))  # fmt: skip

    def _flip_bit(self, at: int) -> None:
        self.lab.arena.write_word(at, self.lab.arena.read_word(at) ^ 1 << self.rng.randrange(64))

    def _damage(self) -> None:
        rng, lab = self.rng, self.lab
        kind = rng.randrange(6)
        if kind == 0:
            flip(rng, lab, TECTE, lab.tect)
        elif kind == 1:
            flip(rng, lab, TCTE, lab.tct + 64 * TID)
        elif kind == 2:
            self._flip_bit(self.entries[rng.randrange(len(self.entries))])
        elif kind == 3 and self.s2:
            self._flip_bit(rng.choice(self.s2_entries))
        else:
            flip(rng, lab, MAPTE, rng.choice(self.nodes))

    def question(self) -> dict[str, object]:
        """A random request near what is mapped."""
        rng = self.rng
        uba = rng.choice(self.addresses) + rng.choice([0, 0, 1, 0xFFF, -1, 0x1000, 1 << 21])
        uba ^= rng.choice([0] * 12 + [1 << 60, 1 << 48, 0xFFFF << 48, (1 << 64) - (1 << self.matt.va_bits)])
        return {
            "uba": uba & ((1 << 64) - 0x10000), "length": rng.choice([0, 1, 8, 0x800, PAGE, 3 * PAGE]),
            "access": rng.choice(list(Access)), "tid": rng.choice([TID] * 6 + [TID + 1, 0, 1 << LOG2_TIDS, 0xFFFFF]),
            "token": rng.choice([None, 0, 7, 8, 0xFFFFFFFF]), "e": rng.choice([1, 1, 0]),
            "privileged": rng.random() < 0.7, "instruction": rng.random() < 0.15,
        }  # fmt: skip


def harmless(question: dict[str, object]) -> bool:
    """An instruction fetch that writes is no access at all: only the device has a word for it (EVT_UT)."""
    return not question["instruction"] or question["access"] is Access.READ


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_worlds(machine: QtestMachine, seed: int) -> None:
    rng = random.Random(seed)
    lab = Lab(machine)
    world = World(lab, rng)
    state = lab.state()
    seen: Counter[str] = Counter()
    for question in filter(harmless, (world.question() for _ in range(QUESTIONS))):
        answer = lab.agree(state, **question)  # type: ignore[arg-type]
        seen[answer.status] += 1
    assert sum(seen.values()) > QUESTIONS // 2, seen


#: caches of usual size, strict ones so small that lines are lost all the time, and none at all
CACHES = (
    "tlb-entries=4096",
    "strict=on,tlb-entries=2,plb-entries=2,cfg-cache-entries=2",
    "tlb-entries=0,plb-entries=0,cfg-cache-entries=0",
)


@pytest.fixture(scope="module", params=CACHES, ids=["on", "strict", "off"])
def cached_machine(request: pytest.FixtureRequest) -> Iterator[QtestMachine]:
    with QtestMachine([f"ummu,id=ummu0,{request.param}"]) as made:
        yield made


@pytest.mark.parametrize("seed", range(1000, 1200 if SOAK else 1004))
def test_caches_change_no_answer(cached_machine: QtestMachine, seed: int) -> None:
    """Real requests fill the caches; whatever is in them, answers stay those of the reference model."""
    cached_machine.reset()
    rng = random.Random(seed)
    lab = Lab(cached_machine)
    world = World(lab, rng)
    state = lab.state()
    path = PERIPHERAL.format("ummu0")
    for question in filter(harmless, (world.question() for _ in range(QUESTIONS))):
        before = lab.agree(state, **question)  # type: ignore[arg-type]
        text = request_text(**question) + ",count=2"  # type: ignore[arg-type]
        allowed = cached_machine.qmp.qom_ask(path, "benchmark-request", text, "benchmark-result")["ok"]
        assert allowed == (2 if before.ok else 0), question
        assert lab.agree(state, **question) == before  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", NODE_SEEDS)
def test_v04_hostile_nodes(machine: QtestMachine, seed: int) -> None:
    """V04 (b): MAPT nodes of random bits at every level; answers agree, nothing outside the block is read."""
    rng = random.Random(seed)
    lab = Lab(machine)
    for page in range(4):
        lab.map(VA + page * PAGE, lab.page(page))
    lab.tcte(mapt=lab.mapt)
    state = lab.state()
    nodes = [lab.mapt.node(VA, level) for level in range(4)]
    good = [lab.mapt.read(node) for node in nodes]
    for _ in range(40):
        for level in range(rng.randint(1, 4)):
            raw = bytearray(rng.randbytes(MAPTE.size))
            raw[0] = raw[0] & 0xF0 | rng.choice([1, 1, 3, 5, 5, 7, 0]) | rng.choice([0, 8])
            lab.arena.write(nodes[level], bytes(raw))
            if rng.random() < 0.5:  # a next level that exists, the rest random
                fields = MAPTE.unpack(bytes(raw))
                fields |= {
                    k: good[level][k]
                    for k in ("N", "NEXT_LV_INDEX", "NEXT_LV_OFFSET_LO", "NEXT_LV_OFFSET_HI")
                }
                lab.mapt.write(nodes[level], **fields)
        for _ in range(3):
            lab.agree(state, VA + rng.randrange(4 * PAGE - 8), rng.choice([1, 8, PAGE]), rng.choice(list(Access)),
                      token=rng.choice([None, 0, 1]), e=rng.choice([0, 1]))  # fmt: skip
        for node, fields in zip(nodes, good, strict=True):
            lab.mapt.write(node, **fields)


@pytest.mark.parametrize("seed", DESCRIPTOR_SEEDS)
def test_random_descriptors(machine: QtestMachine, seed: int) -> None:
    """Stage 1 and stage 2 descriptors of random bits."""
    rng = random.Random(seed)
    lab = Lab(machine)
    lab.map(VA, lab.page(0))
    s2 = lab.stage2(level=2)
    lab.tecte(**lab.stage2_fields(s2) | {"ST_MODE": NESTED})
    lab.tcte(HAF=1, HDF=rng.choice([0, 1]))
    state = lab.state()
    places = [lab.matt.entry(VA, level) for level in range(4)] + [
        s2.entry(lab.pages, level) for level in (1, 2)
    ]
    good = [lab.arena.read_word(at) for at in places]
    for _ in range(60):
        at = rng.randrange(len(places))
        keep = rng.choice([0, 0x0000FFFFFFFFF000, 0x0000FFFFFFFFF003, 0xFFFFFFFFFFFFF003])
        noise = rng.getrandbits(64)
        if at >= 4:
            noise |= S2_LEAF & rng.choice([0, 0xFFF])
        lab.arena.write_word(places[at], good[at] & keep | noise & ~keep & (2**64 - 1))
        lab.agree(state, VA + rng.randrange(PAGE), 1, rng.choice(list(Access)), privileged=rng.random() < 0.7)
        lab.arena.write_word(places[at], good[at])
