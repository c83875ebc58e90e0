# SPDX-License-Identifier: GPL-2.0-or-later
"""Page table walks: granules, block sizes, contiguous groups, flags in memory, sizes (hardware text 8).

Every question goes to the device and to the reference model; what a walk writes to memory is checked on real requests.
"""

from __future__ import annotations

import pytest
from cache_lab import CacheLab
from ummulab.model import Access
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import AF, AP_EL0, AP_RO, CONTIGUOUS, DBM, LEAF, PXN, UXN, Matt
from xlate_lab import VA, Lab

DEVICES = ("ummu,id=ummu0",)
GRANULES = {12: "4K", 14: "16K", 16: "64K"}
BLOCK_LEVELS = {12: (1, 2, 3), 14: (2, 3), 16: (2, 3)}
#: level at which the descriptor kind "block" is reserved
NO_BLOCK = {12: (0, 3), 14: (1, 3), 16: (1, 3)}
CONT_LOG2 = {(12, 3): 4, (12, 2): 4, (12, 1): 4, (14, 3): 7, (14, 2): 5, (16, 3): 5, (16, 2): 5}


@pytest.fixture
def lab(machine: QtestMachine) -> Lab:
    return Lab(machine)


@pytest.mark.parametrize("bits", [25, 32, 36, 39, 40, 42, 47, 48])
@pytest.mark.parametrize("shift", GRANULES, ids=GRANULES.get)
def test_every_level_and_size(lab: Lab, shift: int, bits: int) -> None:
    """Leaves of every level, at the first, a middle and the last address of the input space."""
    state = lab.state()
    for level in BLOCK_LEVELS[shift]:
        matt = Matt(lab.arena, shift, bits)
        size = 1 << matt.level_shift(level)
        if level < matt.start_level or size > 1 << bits:
            continue
        lab.tcte(matt=matt)
        target = 0x4000_0000 & ~(size - 1) | (0 if size > 1 << 30 else size)
        top = (1 << bits) - size
        for va in {0, (top // 2) & ~(size - 1), top}:
            matt.map(va, target, size, level=level)
            for at in (va, va + size // 2 + 0x123, va + size - 1):
                got = lab.agree(state, at, 1)
                assert got.ok and got.pa == target + at - va
            assert lab.agree(state, va, size).length == size
        outside = lab.agree(state, 1 << bits, 1)
        assert outside.event == "A_TRANSLATION"


@pytest.mark.parametrize("shift", GRANULES, ids=GRANULES.get)
def test_reserved_descriptors(lab: Lab, shift: int) -> None:
    """Kind 01 at levels that have no blocks; kind x0 anywhere; level 3 with kind 01."""
    state = lab.state()
    matt = Matt(lab.arena, shift, 48)
    matt.map(0, lab.page(0) & ~((1 << shift) - 1), 1 << shift)
    lab.tcte(matt=matt)
    assert lab.agree(state, 0, 1).ok
    for level in range(matt.start_level, 4):
        at = matt.entry(0, level)
        good = lab.arena.read_word(at)
        for kind in (0, 2):
            lab.arena.write_word(at, good & ~3 | kind)
            assert lab.agree(state, 0, 1).event == "A_TRANSLATION"
        if level in NO_BLOCK[shift]:
            lab.arena.write_word(at, good & ~3 | 1)
            assert lab.agree(state, 0, 1).event == "A_TRANSLATION"
        lab.arena.write_word(at, good)
    assert lab.agree(state, 0, 1).ok


@pytest.mark.parametrize(("shift", "level"), CONT_LOG2)
def test_contiguous_group_is_one_leaf(lab: Lab, shift: int, level: int) -> None:
    """A right group answers as one piece; one that does not hold its promise answers by what each entry says."""
    state = lab.state()
    matt = Matt(lab.arena, shift, 48)
    size, count = 1 << matt.level_shift(level), 1 << CONT_LOG2[shift, level]
    va, pa = 4 * size * count, size * count
    matt.map(va, pa, size * count, level=level, attributes=LEAF | CONTIGUOUS)
    lab.tcte(matt=matt)
    got = lab.agree(state, va + size, size)
    assert (got.pa, got.length) == (pa + size, size)
    last = matt.entry(va + size * (count - 1), level)
    lab.arena.write_word(last, lab.arena.read_word(last) ^ size)  # somewhere else
    assert lab.agree(state, va, 8).pa == pa
    got = lab.agree(state, va + size * (count - 1), 8)
    assert got.pa == (pa + size * (count - 1)) ^ size


# ---- access flag and dirty state -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("haf", "affd", "flag", "event"), [
    (0, 0, 0, "ACCESS"), (0, 1, 0, ""), (1, 0, 0, ""), (1, 1, 0, ""), (0, 0, 1, ""),
])  # fmt: skip
def test_access_flag(lab: Lab, haf: int, affd: int, flag: int, event: str) -> None:
    lab.map(VA, lab.page(0), attributes=LEAF & ~AF | flag * AF)
    lab.tcte(HAF=haf, AFFD=affd)
    assert lab.agree(lab.state(), VA).event == event
    assert lab.arena.read_word(lab.matt.entry(VA, 3)) & AF == flag * AF, "a question changes nothing"


@pytest.fixture
def real(machine: QtestMachine) -> CacheLab:
    made = CacheLab(machine)
    made.entity(1)
    return made


@pytest.mark.parametrize("big", [0, 1], ids=["little", "big"])
@pytest.mark.parametrize(("access", "hdf", "allowed", "writable"), [
    ("read", 1, True, False), ("write", 1, True, True), ("atomic", 1, True, True), ("write", 0, False, False),
    ("read", 0, True, False), ("atomic", 0, False, False),
])  # fmt: skip
def test_flags_in_memory(
    real: CacheLab, access: str, hdf: int, allowed: bool, writable: bool, big: int
) -> None:
    """The access sets AF; the first write to a clean page (DBM, read-only) makes it writable in memory."""
    real.context(1, 1, HAF=1, HDF=hdf, ENDI=big)
    real.matt.map(VA, real.page(), PAGE, attributes=(LEAF | AP_RO | DBM) & ~AF)
    places = [real.matt.entry(VA, level) for level in range(4)]
    if big:
        for at in places:
            real.arena.write(at, real.arena.read(at, 8)[::-1])
    assert real.ask(VA, tag=1, access=access) == allowed
    word = int.from_bytes(real.arena.read(places[3], 8), "big" if big else "little")
    assert bool(word & AF) == allowed and bool(word & AP_RO) == (not writable)
    counters = real.counters()
    assert (counters["access-flag-updates"], counters["dirty-updates"]) == (int(allowed), int(writable))
    assert real.ask(VA, tag=1, access=access) == allowed
    assert real.counters()["dirty-updates"] == int(writable), "once"


def test_read_then_write_of_a_clean_page(real: CacheLab) -> None:
    """The cached leaf of the read does not let the write pass without the update."""
    real.context(1, 1, HAF=1, HDF=1)
    real.matt.map(VA, real.page(), PAGE, attributes=LEAF | AP_RO | DBM)
    assert real.ask(VA, tag=1) and real.count("dirty-updates") == 0
    assert real.ask(VA, tag=1, access="write") and real.count("dirty-updates") == 1
    assert not real.arena.read_word(real.matt.entry(VA, 3)) & AP_RO
    assert real.hits("tlb", VA, tag=1)


def test_updates_of_one_group_member_only(real: CacheLab) -> None:
    """A contiguous group: only the page that was touched is marked, the others stay as they are."""
    real.context(1, 1, HAF=1, HDF=1)
    pa = real.arena.take(16 * PAGE, 16 * PAGE)
    real.matt.map(VA, pa, 16 * PAGE, attributes=(LEAF | AP_RO | DBM | CONTIGUOUS) & ~AF)
    assert real.ask(VA + 3 * PAGE, tag=1, access="write")
    words = [real.arena.read_word(real.matt.entry(VA + n * PAGE, 3)) for n in range(16)]
    assert [n for n, word in enumerate(words) if word & AF] == [3]
    assert [n for n, word in enumerate(words) if not word & AP_RO] == [3]


@pytest.mark.parametrize("httu", [0, 1, 2])
def test_updates_need_the_capability(httu: int) -> None:
    with QtestMachine([f"ummu,id=ummu0,httu={httu}"]) as machine:
        real = CacheLab(machine)
        real.entity(1)
        real.context(1, 1, HAF=1, HDF=1)
        real.matt.map(VA, real.page(), PAGE, attributes=LEAF & ~AF)
        real.matt.map(VA + PAGE, real.page(), PAGE, attributes=LEAF | AP_RO | DBM)
        assert real.ask(VA, tag=1) == (httu >= 1)
        assert real.ask(VA + PAGE, tag=1, access="write") == (httu >= 2)


# ---- permissions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pan", [0, 1])
@pytest.mark.parametrize(
    "attributes", [0, AP_EL0, AP_RO, AP_EL0 | AP_RO, AP_EL0 | PXN, AP_EL0 | UXN, PXN | UXN]
)
def test_permission_matrix(lab: Lab, attributes: int, pan: int) -> None:
    """Access kind x privilege x AP x XN x PAN x WXN: device and model agree, and the plain cases are known."""
    base = LEAF & ~(AP_EL0 | PXN | UXN)
    lab.map(VA, lab.page(0), attributes=base | attributes)
    state = lab.state()
    for wxn in (0, 1):
        lab.tcte(PAN=pan, WXN=wxn, UWXN=wxn)
        for privileged in (False, True):
            for access in Access:
                got = lab.agree(state, VA, 8, access, privileged=privileged)
                user = bool(attributes & AP_EL0)
                reachable = (user if not privileged else not (user and pan)) and (
                    access is Access.READ or not attributes & AP_RO
                )
                assert got.ok == reachable
            lab.agree(state, VA, 8, Access.READ, privileged=privileged, instruction=True)


@pytest.mark.parametrize("bit", [59, 60, 61, 62])
@pytest.mark.parametrize("had", [0, 1])
def test_hierarchical_bits(lab: Lab, bit: int, had: int) -> None:
    """Bits of a table descriptor hold for everything below it, unless HAD says to ignore them."""
    lab.map(VA, lab.page(0), attributes=LEAF & ~(PXN | UXN))
    at = lab.matt.entry(VA, 1)
    lab.arena.write_word(at, lab.arena.read_word(at) | 1 << bit)
    lab.tcte(HAD=had)
    state = lab.state()
    for privileged in (False, True):
        for access in Access:
            lab.agree(state, VA, 8, access, privileged=privileged)
        lab.agree(state, VA, 8, privileged=privileged, instruction=True)
    assert lab.ask(VA, access=Access.WRITE).ok == (had == 1 or bit != 62)


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "bits"), list(enumerate((32, 36, 40, 42, 44, 48))))
def test_output_size(lab: Lab, code: int, bits: int) -> None:
    """A leaf or a table behind GPAS: A_ADDR_SIZE; the last page before the limit is inside."""
    state = lab.state()
    lab.tcte(GPAS=code)
    lab.map(VA, (1 << bits) - PAGE)
    assert lab.agree(state, VA).pa == (1 << bits) - PAGE
    if bits < 48:
        lab.map(VA, 1 << bits)
        assert lab.agree(state, VA).event == "A_ADDR_SIZE"
        at = lab.matt.entry(VA, 2)
        lab.arena.write_word(at, 1 << bits | 3)
        assert lab.agree(state, VA).event == "A_ADDR_SIZE"


@pytest.mark.parametrize("oas", [32, 36, 40, 44])
def test_output_size_of_the_device(oas: int) -> None:
    """GPAS larger than what the device has: the smaller one counts."""
    with QtestMachine([f"ummu,id=ummu0,oas={oas}"]) as machine:
        lab = Lab(machine)
        state = lab.state()
        lab.map(VA, 1 << oas)
        assert lab.agree(state, VA).event == "A_ADDR_SIZE"
        lab.map(VA, lab.page(0))
        assert lab.agree(state, VA).ok


@pytest.mark.parametrize("granule", ["gran-4k", "gran-16k", "gran-64k"])
def test_granule_that_is_not_there(granule: str) -> None:
    code = {"gran-4k": 0, "gran-64k": 1, "gran-16k": 2}[granule]
    with QtestMachine([f"ummu,id=ummu0,{granule}=off"]) as machine:
        lab = Lab(machine)
        state = lab.state()
        for tgs in range(4):
            lab.tcte(TGS=tgs)
            assert (lab.agree(state, VA).event == "BAD_TCT") == (tgs in (code, 3))


def test_walk_only_by_hits() -> None:
    """MATTWD = 1: what is cached goes on, what is not is refused without a walk."""
    with QtestMachine(["ummu,id=ummu0,strict=on"]) as machine:
        real = CacheLab(machine)
        real.entity(1)
        real.context(1, 1)
        for n in range(2):
            real.matt.map(VA + n * PAGE, real.page(), PAGE)
        assert real.ask(VA, tag=1)
        real.context(1, 1, MATTWD=1)
        real.command("CMD_CFGI_TCT", DEID_LO=1, TID=1)
        steps = real.count("walk-steps-s1")
        assert real.ask(VA, tag=1) and not real.ask(VA + PAGE, tag=1)
        assert real.count("walk-steps-s1") == steps
        assert [e.code for e in real.core.events()] == [0x0A]


@pytest.mark.parametrize("entity", [5, 7])
def test_bypass_of_the_page_table(lab: Lab, entity: int) -> None:
    """MATT_BYPASS: output = input, with stage 2 the input is the IPA."""
    if entity == 7:
        lab.tecte(**lab.stage2_fields(lab.stage2()) | {"ST_MODE": 7})
    lab.tcte(MATT_BYPASS=1)
    got = lab.agree(lab.state(), lab.page(3) + 5, 8)
    assert got.ok and got.pa == lab.page(3) + 5
