# SPDX-License-Identifier: GPL-2.0-or-later
"""Event queue, global errors and interrupts (hardware text 10.4, 10.5 and 14; cases V17, V20).

The events used here are the results of key-value commands, which need no device behind the UMMU.
"""

from __future__ import annotations

import pytest
from core_helper import DATA, EVENTQ_EN, MAPT_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.ummu import EVENT

DEVICES = ("ummu,id=ummu0",)
RING = 16
MCMD_QUE_ERR, EVENTQ_ABT, USI_EVENT_ABT, USI_GLB_ABT = 1 << 0, 1 << 1, 1 << 3, 1 << 7
CREATED, DELETED = 0x60, 0x61
HOLE = 0x3F800000000


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    core = Core(machine)
    core.start()
    return core


def emit(core: Core, count: int = 1) -> None:
    """``count`` event records: deleting an EID that is not bound, with the result asked for."""
    for n in range(count):
        core.delete(0xABCD0000 + n, 0, 0, evt=1)


def index(core: Core) -> tuple[int, int]:
    """(PI index with wrap, OVFLG)."""
    pi = core.regs.fields("EVENT_QUE_PI")
    return pi["WR_IDX_WRAP"], pi["OVFLG"]


def test_v20_result_record_word_by_word(core: Core) -> None:
    eid = 0x1122334455667788_99AABBCCDDEEFF00
    core.create(eid, 0xFFFE, evt=1)
    record = core.events()[0]
    words = EVENT.split(record.raw)
    assert words == (CREATED, 0, 0, 0, eid & (2**64 - 1), eid >> 64, 0, 0)


def test_v20_refusal_carries_its_reason(core: Core) -> None:
    core.create(0x55, 1, evt=1)
    core.create(0x55, 2, evt=1)
    core.delete(0x66, 2, 9, evt=1)
    records = core.events()
    assert [(e.code, e["REASON"]) for e in records] == [(CREATED, 0), (CREATED, 1), (DELETED, 3)]


def test_record_index_and_interrupt(core: Core) -> None:
    emit(core)
    assert index(core) == (1, 0)
    assert core.interrupt(0) == DATA[0]
    assert core.qom("events-recorded") == 1
    assert core.events()[0].code == DELETED
    assert core.eventq.pending() == 0


def test_three_turns_of_the_ring(core: Core) -> None:
    for turn in range(3 * RING):
        emit(core)
        assert index(core) == ((turn + 1) % (2 * RING), 0)
        assert [e.code for e in core.events()] == [DELETED]
    assert core.qom("events-recorded") == 3 * RING and core.qom("events-lost") == 0


def test_full_ring_loses_and_toggles_once(core: Core) -> None:
    emit(core, RING)
    assert index(core) == (RING, 0)
    emit(core)
    assert index(core) == (RING, 1), "the first lost event toggles OVFLG"
    emit(core, 3)
    assert index(core) == (RING, 1), "until it is acknowledged the flag stays"
    assert core.qom("events-lost") == 4 and core.qom("events-recorded") == RING
    records = core.events()
    assert [e["EID_LOW"] for e in records] == [0xABCD0000 + n for n in range(RING)], (
        "no record was overwritten"
    )
    # The queue works again; the next overflow toggles back.
    emit(core, RING + 1)
    assert index(core) == (0, 0)


def test_overflow_flag_needs_its_acknowledgement(core: Core) -> None:
    emit(core, RING + 1)
    core.regs.write("EVENT_QUE_CI", RING)
    emit(core, RING + 1)
    assert index(core) == (0, 1), "OVFLG_RESP still differs: no second toggle"


def test_wrong_consumer_index_counts_as_full(core: Core) -> None:
    emit(core, 2)
    core.regs.write("EVENT_QUE_CI", 5)
    emit(core)
    assert index(core) == (2, 1)
    core.regs.write("EVENT_QUE_CI", 2)
    emit(core)
    assert index(core)[0] == 3


def test_disabled_queue_drops_silently(core: Core) -> None:
    core.regs.write("CTRL0", MAPT_EN)
    emit(core, 3)
    assert index(core) == (0, 0) and core.interrupt(0) == 0
    assert core.qom("events-dropped") == 3 and core.pending_errors() == 0
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN)
    emit(core)
    assert index(core) == (1, 0)


def test_injected_full_queue(core: Core) -> None:
    core.qom_set("inject-eventq-full", True)
    emit(core)
    assert index(core) == (0, 1)
    core.qom_set("inject-eventq-full", False)
    emit(core)
    assert index(core) == (1, 1)


# ---- geometry (V17) ---------------------------------------------------------------------------------------------


def place(core: Core, base: int, log2: int) -> None:
    core.regs.write("CTRL0", MAPT_EN)
    core.regs.write("EVENT_QUE_BASE", base | log2)
    core.regs.write("EVENT_QUE_PI", 0)
    core.regs.write("EVENT_QUE_CI", 0)
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN)


@pytest.mark.parametrize("where", ["hole", "bar", "high bits", "end of ram"])
def test_v17_ring_outside_ram_is_an_abort_error(core: Core, where: str) -> None:
    top = core.machine.arch.ram_base + core.machine.ram_size
    place(core, {"hole": HOLE, "bar": core.base, "high bits": 0xF << 48, "end of ram": top}[where], 4)
    image = core.image()
    emit(core)
    assert core.pending_errors() == EVENTQ_ABT
    assert index(core) == (0, 0) and core.interrupt(0) == 0 and core.interrupt(1) == DATA[1]
    emit(core)
    assert core.qom("interrupts-glb-err") == 1, "pending: not announced again"
    after = core.image()
    after["GLB_ERR"] = image["GLB_ERR"]
    assert after == image, "nothing of the device was written"


@pytest.mark.parametrize("log2, entries", [(0, 1), (1, 2)])
def test_v17_small_rings(core: Core, log2: int, entries: int) -> None:
    place(core, core.arena.take(4096), log2)
    emit(core, entries)
    assert index(core) == (entries, 0)
    emit(core)
    assert index(core) == (entries, 1)


def test_v17_exponent_above_the_capability() -> None:
    with QtestMachine(("ummu,id=ummu0,eventq-log2=3",)) as machine:
        core = Core(machine)
        core.start()
        for log2 in (4, 20, 31):
            place(core, core.arena.take(8192, 8192), log2)
            emit(core, 8)
            assert index(core)[0] == 8
            lost = core.qom("events-lost")
            emit(core)
            assert core.qom("events-lost") == lost + 1, (
                "the ninth does not fit a ring of the capability's size"
            )
            core.regs.write("EVENT_QUE_CI", 0x80000008 if index(core)[1] else 8)


def test_v17_base_bit_5_is_no_address_bit(core: Core) -> None:
    ring = core.arena.take(4096)
    place(core, ring | 0x20, 2)
    emit(core)
    assert core.arena.read_word(ring, 1) == DELETED


def test_v17_ring_is_not_moved_while_enabled(core: Core) -> None:
    other = core.arena.take(4096)
    core.regs.write("EVENT_QUE_BASE", other | 1)
    core.regs.write("EVENT_QUE_PI", 7)
    emit(core)
    assert index(core) == (1, 0) and core.arena.read_word(other) == 0


# ---- interrupts ---------------------------------------------------------------------------------------------------


def test_v20_no_interrupt_without_its_enable(core: Core) -> None:
    core.regs.write("GLB_INT_EN", 1)
    emit(core)
    assert index(core) == (1, 0) and core.interrupt(0) == 0
    core.regs.write("GLB_INT_EN", 2)
    core.mcmdq.put(bytes([0xFF]) + bytes(31))
    core.mcmdq.ring_bell()
    assert core.pending_errors() == MCMD_QUE_ERR and core.interrupt(1) == 0


def test_enabling_sends_what_is_pending(core: Core) -> None:
    core.regs.write("GLB_INT_EN", 0)
    emit(core)
    core.mcmdq.put(bytes([0xFF]) + bytes(31))
    core.mcmdq.ring_bell()
    assert core.interrupt(0) == 0 and core.interrupt(1) == 0
    core.regs.write("GLB_INT_EN", 1)
    assert core.interrupt(0) == 0 and core.interrupt(1) == DATA[1]
    core.regs.write("GLB_INT_EN", 3)
    assert core.interrupt(0) == DATA[0] and core.interrupt(1) == 0, "only what was switched on now"


def test_enabling_with_nothing_pending_sends_nothing(core: Core) -> None:
    core.regs.write("GLB_INT_EN", 0)
    core.regs.write("GLB_INT_EN", 3)
    assert core.interrupt(0) == 0 and core.interrupt(1) == 0


@pytest.mark.parametrize("vector, name", [(0, "EVENT_QUE"), (1, "GLB_ERR_INT")])
def test_v20_usi_message_replaces_msix(core: Core, vector: int, name: str) -> None:
    target = core.usi + 0x200
    core.regs.write(f"{name}_USI_ADDR", target)
    core.regs.write(f"{name}_USI_DATA", 0xCAFE0000 | vector)
    if vector == 0:
        emit(core)
    else:
        core.mcmdq.put(bytes([0xFF]) + bytes(31))
        core.mcmdq.ring_bell()
    assert core.arena.read_word(target, 4) == 0xCAFE0000 | vector
    assert core.interrupt(vector) == 0, "one way only"


def test_failed_event_message_is_a_global_error(core: Core) -> None:
    core.regs.write("EVENT_QUE_USI_ADDR", HOLE)
    emit(core)
    assert index(core) == (1, 0)
    assert core.pending_errors() == USI_EVENT_ABT and core.interrupt(1) == DATA[1]


def test_failed_error_message_sets_bit_7_only(core: Core) -> None:
    core.regs.write("EVENT_QUE_USI_ADDR", HOLE)
    core.regs.write("GLB_ERR_INT_USI_ADDR", HOLE)
    emit(core)
    assert core.pending_errors() == USI_EVENT_ABT | USI_GLB_ABT
    assert core.interrupt(1) == 0


@pytest.mark.parametrize("offset", [0x30, 0x108, 0x1138, 0x20000])
def test_message_into_own_registers_is_refused(core: Core, offset: int) -> None:
    core.regs.write("EVENT_QUE_USI_ADDR", core.base + offset)
    core.regs.write("EVENT_QUE_USI_DATA", 0xFFFFFFFF)
    before = core.image()
    emit(core)
    assert core.pending_errors() == USI_EVENT_ABT
    after = core.image()
    for name in ("GLB_ERR", "EVENT_QUE_PI"):
        after[name] = before[name]
    assert after == before


def test_acknowledging_what_is_not_pending_is_counted(core: Core) -> None:
    core.regs.write("GLB_ERR_RESP", MCMD_QUE_ERR)
    assert core.qom("guest-errors") == 1
    assert core.pending_errors() == MCMD_QUE_ERR, "the value is stored anyway"


def test_masked_msix_vector_waits(core: Core) -> None:
    core.function.msix_enable({0: (core.usi, DATA[0])}, function_mask=True)
    emit(core)
    assert core.interrupt(0) == 0
    core.function.msix_enable({0: (core.usi, DATA[0])})
    assert core.interrupt(0) == DATA[0]


def test_no_interrupts_without_the_capability() -> None:
    with QtestMachine(("ummu,id=ummu0,usi=off",)) as machine:
        core = Core(machine)
        core.start()
        emit(core)
        assert index(core) == (1, 0) and core.interrupt(0) == 0


def test_bus_master_off_means_bus_errors(core: Core) -> None:
    core.put("CMD_SYNC")
    core.function.enable(master=False)
    core.mcmdq.ring_bell()
    assert core.mcmdq.consumer()["ERR_REASON"] == 2
    core.function.enable()
    core.mcmdq.acknowledge_error()
    core.mcmdq.drain()
