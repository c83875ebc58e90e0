# SPDX-License-Identifier: GPL-2.0-or-later
"""DstEID look-up: bindings, slots in memory, hash buckets (case V11).

The look-up itself is asked with the device's own translation without side effects: an EID that is bound leads to the
TECTE of its tag (V = 0 here: BAD_TECT), an unknown one to BAD_DSTEID.
"""

from __future__ import annotations

import pytest
from core_helper import UMMU_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.ummu import kv_hash

DEVICES = ("ummu,id=ummu0", "ummu,id=ummu1,strict=on")
CAM = 8 * 256
OK, DUPLICATE, BAD_INDEX, NOT_FOUND, SLOT_USED, ABORT = range(6)
E1 = 0x0123456789ABCDEF_FEDCBA9876543210
HOLE = 0x3F800000000


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    return ready(Core(machine))


def ready(core: Core) -> Core:
    core.start()
    core.regs.write("TECT_BASE", core.arena.take(64 << 4))
    core.regs.write("TECT_BASE_CFG", 4)
    return core


def tag_of(core: Core, eid: int) -> int | None:
    """The tag an EID is bound to, by the device's own map."""
    entry = core.qom("kv").get(f"{eid:032x}")
    return None if entry is None else entry["tag"]


def looked_up(core: Core, eid: int) -> str:
    """What a request with this EID meets."""
    core.regs.write("CTRL0", core.regs.read("CTRL0") | UMMU_EN)
    core.qom_set("translate-request", f"eid={eid & (2**64 - 1):#x},eid-hi={eid >> 64:#x},tid=1,uba=0x1000")
    result = core.qom("translate-result")
    assert result["status"] == "fault"
    return str(result["event"])


def reasons(core: Core) -> list[int]:
    return [e["REASON"] for e in core.events()]


def slot_valid(core: Core, index: int) -> int:
    return core.arena.read_word(core.kv.slot_address(index), 4) & 1


def same_hash(count: int, first: int = 0) -> list[int]:
    """EIDs that share the hash of the first."""
    found = [first]
    candidate = first
    while len(found) < count:
        candidate += 1
        if kv_hash(candidate) == kv_hash(first):
            found.append(candidate)
    return found


def test_v11_life_of_an_eid(core: Core) -> None:
    index = core.kv.free_slot(E1)
    assert looked_up(core, E1) == "EVT_BAD_DSTEID"
    core.create(E1, 1, evt=1)
    assert tag_of(core, E1) == 1 and slot_valid(core, index) == 1
    assert looked_up(core, E1) == "EVT_BAD_TECT", "found: the decision is up to the TECTE"
    core.delete(E1, 1, index, evt=1)
    assert tag_of(core, E1) is None and slot_valid(core, index) == 0
    assert looked_up(core, E1) == "EVT_BAD_DSTEID"
    core.create(E1, 2, evt=1)
    assert tag_of(core, E1) == 2
    assert reasons(core) == [OK, OK, OK]


def test_v11_duplicate_is_refused_and_the_first_binding_stays(core: Core) -> None:
    index = core.kv.free_slot(E1)
    core.create(E1, 1)
    core.create(E1, 2, evt=1)
    assert reasons(core) == [DUPLICATE]
    assert tag_of(core, E1) == 1 and slot_valid(core, index + 1) == 0


def test_v11_lookup_uses_all_128_bits(core: Core) -> None:
    core.create(E1, 1)
    for bit in range(128):
        assert tag_of(core, E1 ^ 1 << bit) is None
    other = E1 ^ (1 << 100)
    assert looked_up(core, other) == "EVT_BAD_DSTEID"
    core.create(other, 3)
    assert (tag_of(core, E1), tag_of(core, other)) == (1, 3)
    core.delete(other, 3, core.qom("kv")[f"{other:032x}"]["kv-index"])
    assert tag_of(core, E1) == 1


def test_v11_banks_of_one_hash_then_the_cam(core: Core) -> None:
    eids = same_hash(10, first=0x777)
    for tag, eid in enumerate(eids):
        core.create(eid, tag, evt=1)
    assert reasons(core) == [OK] * 10
    first = kv_hash(eids[0]) * 8
    indexes = [core.qom("kv")[f"{eid:032x}"]["kv-index"] for eid in eids]
    assert indexes == [*range(first, first + 8), CAM, CAM + 1]
    assert all(slot_valid(core, i) for i in indexes)
    assert [tag_of(core, eid) for eid in eids] == list(range(10))
    core.delete(eids[3], 3, indexes[3])
    assert core.kv.free_slot(eids[0]) == indexes[3], "the driver finds the freed slot by its V bit"


def test_v11_every_slot_of_the_cam(core: Core) -> None:
    for n in range(256):
        core.create(0x900000 + n, n, index=CAM + n)
    assert core.qom("guest-errors") == 0 and len(core.qom("kv")) == 256
    assert all(slot_valid(core, CAM + n) for n in range(256))


@pytest.mark.parametrize("index", [CAM + 256, CAM + 257, 0xFFFF, 0xFFFFFFFF])
def test_v11_index_beyond_the_last_slot_is_refused(core: Core, index: int) -> None:
    core.create(E1, 1, index=index, evt=1)
    assert reasons(core) == [BAD_INDEX]
    assert tag_of(core, E1) is None


def test_used_slot_is_refused(core: Core) -> None:
    core.create(0x10, 1, index=CAM)
    core.create(0x20, 2, index=CAM, evt=1)
    assert reasons(core) == [SLOT_USED]
    assert (tag_of(core, 0x10), tag_of(core, 0x20)) == (1, None)


def test_delete_of_an_unknown_eid(core: Core) -> None:
    core.create(E1, 1)
    core.delete(E1 + 1, 1, 0, evt=1)
    assert reasons(core) == [NOT_FOUND] and tag_of(core, E1) == 1


def test_v11_delete_goes_by_eid(core: Core) -> None:
    """A delete with another tag or slot must not leave a stale tenant behind."""
    index = core.kv.free_slot(E1)
    core.create(E1, 1)
    core.delete(E1, 9, index + 1, evt=1)
    assert reasons(core) == [OK]
    assert tag_of(core, E1) is None and slot_valid(core, index) == 0
    assert core.qom("guest-errors") == 1


def test_hash_bucket_is_checked_in_strict_mode_only(machine: QtestMachine) -> None:
    wrong = (kv_hash(E1) * 8 + 8) % CAM
    loose = ready(Core(machine, 0))
    strict = ready(Core(machine, 1, beside=loose))
    loose.create(E1, 1, index=wrong, evt=1)
    strict.create(E1, 1, index=wrong, evt=1)
    assert reasons(loose) == [OK] and reasons(strict) == [BAD_INDEX]
    assert loose.qom("guest-errors") == 1


def test_v11_two_ummus_have_their_own_bindings(machine: QtestMachine) -> None:
    first = ready(Core(machine, 0))
    second = ready(Core(machine, 1, beside=first))
    first.create(E1, 1)
    second.create(E1, 2)
    first.delete(E1, 1, first.qom("kv")[f"{E1:032x}"]["kv-index"])
    assert (tag_of(first, E1), tag_of(second, E1)) == (None, 2)


@pytest.mark.parametrize("where", ["hole", "bar"])
def test_slot_that_cannot_be_written(core: Core, where: str) -> None:
    core.regs.write("DSTEID_KV_TABLE_BASE", HOLE if where == "hole" else core.base)
    before = core.image()
    core.create(E1, 1, evt=1)
    assert reasons(core) == [ABORT] and tag_of(core, E1) is None
    after = core.image()
    for name in ("EVENT_QUE_PI", "EVENT_QUE_CI"):
        after[name] = before[name]
    assert after == before


def test_bindings_work_without_slots_in_memory(core: Core) -> None:
    core.regs.write("DSTEID_KV_TABLE_BASE", 0)
    core.regs.write("DSTEID_CAM_TABLE_BASE", 0)
    core.create(E1, 4, index=17, evt=1)
    assert reasons(core) == [OK] and tag_of(core, E1) == 4


def test_direct_mode(core: Core) -> None:
    """CTRL1.TECT_MODE_SEL = 0: the EID is the tag, its upper bits must be 0."""
    core.regs.write("CTRL1", 0)
    assert looked_up(core, 3) == "EVT_BAD_TECT"
    assert looked_up(core, 15) == "EVT_BAD_TECT"
    assert looked_up(core, 16) == "EVT_BAD_DSTEID", "beyond LOG2SIZE"
    assert looked_up(core, 3 | 1 << 16) == "EVT_BAD_DSTEID"
    assert looked_up(core, 3 | 1 << 64) == "EVT_BAD_DSTEID"


@pytest.mark.parametrize("tag, event", [(3, "EVT_BAD_TECT"), (15, "EVT_BAD_TECT"), (16, "EVT_BAD_DSTEID"),
                                        (0xFFFF, "EVT_BAD_DSTEID")])  # fmt: skip
def test_v15_tag_against_the_size_of_the_table(core: Core, tag: int, event: str) -> None:
    core.create(E1, tag)
    assert looked_up(core, E1) == event


def test_full_table_survives_a_save(core: Core) -> None:
    for n in range(CAM + 256):
        core.create(0x1000000 + n, n & 0xFFFF, index=n)
    before = core.qom("kv")
    assert len(before) == CAM + 256
    core.machine.save_and_load()
    assert core.qom("kv") == before
    core.create(0x5, 1, index=0, evt=1)
    assert reasons(core) == [SLOT_USED]
