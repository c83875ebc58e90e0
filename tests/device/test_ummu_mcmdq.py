# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel command queues: running, wrap, full, SYNC in all forms, errors and recovery (cases V14, V17)."""

from __future__ import annotations

import struct

import pytest
from core_helper import DATA, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.ummu import CommandQueue
from ummulab.spec import load

DEVICES = ("ummu,id=ummu0", "ummu,id=ummu1,free-bit=on")
SPEC = load()
MCMD_QUE_ERR, USI_MCMD_ABT = 1 << 0, 1 << 2
ILLEGAL, FETCH_ABORT = 1, 2
HOLE = 0x3F800000000


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    core = Core(machine)
    core.start()
    return core


def consumer(core: Core) -> tuple[int, int]:
    """(index with wrap, ERR_REASON)."""
    ci = core.mcmdq.consumer()
    return ci["RD_IDX_WRAP"], ci["ERR_REASON"]


def raw(opcode: int, **words: int) -> bytes:
    """An entry with an arbitrary opcode."""
    return struct.pack("<4Q", opcode | words.get("w0", 0), words.get("w1", 0), words.get("w2", 0), 0)


# ---- running -----------------------------------------------------------------------------------------------------


def test_three_turns_of_the_ring(core: Core) -> None:
    for turn in range(3 * 64):
        core.cmd("CMD_SYNC")
        assert consumer(core) == ((turn + 1) % 128, 0)
    assert core.qom("commands") == core.qom("syncs") == 3 * 64


@pytest.mark.parametrize("start", [0, 1, 63])
def test_completely_full_ring_in_one_doorbell(core: Core, start: int) -> None:
    for _ in range(start):
        core.cmd("CMD_SYNC")
    for _ in range(64):
        core.put("CMD_TLBI_NS_OS_ALL")
    core.mcmdq.ring_bell()
    assert consumer(core) == ((start + 64) % 128, 0)
    assert core.qom("tlb-invalidations") == 64


def test_pi_more_than_a_ring_ahead_is_ignored(core: Core) -> None:
    core.mcmdq.pi = 65
    core.mcmdq.ring_bell()
    assert consumer(core) == (0, 0)
    assert core.qom("commands") == 0 and core.qom("guest-errors") == 1
    core.mcmdq.pi = 0
    core.cmd("CMD_SYNC")
    core.mcmdq.drain()


def test_index_bits_above_the_wrap_bit_do_not_matter(core: Core) -> None:
    core.put("CMD_SYNC")
    core.regs.write("MCMDQ_PI", 1 << 31 | 0x80 | 1, core.mcmdq.at)
    assert consumer(core)[0] & 0x7F == 1
    assert core.qom("syncs") == 1


def test_doorbell_while_disabled_does_nothing(core: Core) -> None:
    core.regs.write("MCMDQ_PI", 0, core.mcmdq.at)
    core.put("CMD_SYNC")
    core.regs.write("MCMDQ_PI", 1, core.mcmdq.at)
    assert core.qom("commands") == 0
    core.regs.write("MCMDQ_PI", 1 << 31 | 1, core.mcmdq.at)
    assert core.qom("syncs") == 1, "enabling runs what waits"


def test_queues_are_independent(core: Core) -> None:
    second = CommandQueue(core.regs, core.arena, number=7, log2size=3)
    core.machine.qtest.write_many(second.enable_writes())
    core.put("CMD_SYNC")
    for _ in range(8):
        second.put(SPEC.commands["CMD_SYNC"].pack())
    second.ring_bell()
    second.drain()
    assert consumer(core) == (0, 0), "the doorbell of one queue must not run another"
    core.mcmdq.ring_bell()
    core.mcmdq.drain()


COUNTED = {"TLBI": "tlb-invalidations", "PLBI": "plb-invalidations", "CFGI": "config-invalidations"}
WITHOUT_EFFECT = ("CMD_PREFET_CFG", "CMD_CFGI_VMS_PIDM")


@pytest.mark.parametrize("name", [n for n in SPEC.commands if n not in ("CMD_RESUME", "CMD_PLBI_OS_N")])
@pytest.mark.parametrize("ones", [False, True], ids=["zero", "ones"])
def test_every_command_is_accepted(core: Core, name: str, ones: bool) -> None:
    """With all fields 0 and with all fields at their maximum."""
    command = SPEC.commands[name]
    values = (
        {f.name: (1 << f.width) - 1 for f in command.fields if f.name not in ("OPCODE", "SSV")}
        if ones
        else {}
    )
    if name == "CMD_SYNC":
        values["CM"] = 2
    if name == "CMD_NULL_OP":
        values["SUB_OP"] = 2
    core.mcmdq.put(command.pack(**values))
    core.mcmdq.ring_bell()
    core.cmd("CMD_SYNC")
    assert consumer(core) == (2, 0)
    assert core.pending_errors() == 0
    kind = name.split("_")[1]
    if kind in COUNTED and name not in WITHOUT_EFFECT:
        assert core.qom(COUNTED[kind]) == 1


def test_plbi_os_n_needs_its_capability(machine: QtestMachine) -> None:
    core = Core(machine, 1)
    core.start()
    core.cmd("CMD_PLBI_OS_N", TID=5, NEXT_LVL_INDEX=3, NEXT_LVL_OFFSET=512)
    assert consumer(core) == (1, 0)
    assert core.qom("plb-invalidations") == 1


# ---- CMD_SYNC ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cm", [0, 2])
def test_sync_without_a_write(core: Core, cm: int) -> None:
    core.cmd("CMD_SYNC", CM=cm, MSIADDR=core.usi >> 2, MSIDATA=0xABCD)
    assert consumer(core) == (1, 0)
    assert core.arena.read_word(core.usi, 4) == 0


def test_sync_writes_four_bytes_once(core: Core) -> None:
    core.arena.write_word(core.usi + 0x100, 0xFFFFFFFFFFFFFFFF)
    core.cmd("CMD_SYNC", CM=1, MSIADDR=(core.usi + 0x100) >> 2, MSIDATA=0x12345678)
    assert core.arena.read_word(core.usi + 0x100) == 0xFFFFFFFF12345678


def test_sync_on_its_own_entry(core: Core) -> None:
    index = core.cmd("CMD_SYNC", CM=1, MSIADDR=core.mcmdq.slot(0) >> 2)
    words = struct.unpack("<8I", core.arena.read(core.mcmdq.slot(index), 32))
    assert words[0] == 0 and words[2] != 0, "four bytes become 0, the rest stays"
    assert consumer(core) == (1, 0)


def test_sync_with_the_reserved_signal_is_illegal(core: Core) -> None:
    core.cmd("CMD_SYNC", CM=3)
    assert consumer(core) == (0, ILLEGAL)


@pytest.mark.parametrize("where", ["hole", "own registers", "own doorbell"])
def test_sync_completion_abort(core: Core, where: str) -> None:
    own = core.base + (core.mcmdq.at + 8 if where == "own doorbell" else 0x30)
    target = HOLE if where == "hole" else own
    core.cmd("CMD_SYNC", CM=1, MSIADDR=target >> 2, MSIDATA=0xFFFFFFFF)
    assert consumer(core) == (1, 0), "the command itself is done"
    assert core.pending_errors() == USI_MCMD_ABT
    assert core.regs.read("CTRL0") == 0x22, "a register of the device was written by its own DMA"
    assert core.interrupt(1) == DATA[1]


# ---- CMD_NULL_OP -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order, where, result", [
    (0, "ram", 0), (9, "ram", 0), (0, "hole", 1), (30, "ram", 1), (63, "ram", 1), (37, "ram", 1),
])  # fmt: skip
def test_v14_continuity_check_answers_in_its_entry(core: Core, order: int, where: str, result: int) -> None:
    address = core.arena.take(4096 << 9) if where == "ram" else HOLE
    core.put("CMD_TLBI_NS_OS_ALL")
    index = core.put("CMD_NULL_OP", SUB_OP=1, SIZE_ORDER=order, ID=5, ADDR=address >> 12, RESULT=7, FLAG=1)
    core.put("CMD_SYNC", CM=1, MSIADDR=core.usi >> 2, MSIDATA=1)
    core.mcmdq.ring_bell()
    fields = SPEC.commands["CMD_NULL_OP"].unpack(core.arena.read(core.mcmdq.slot(index), 32))
    assert (fields["RESULT"], fields["FLAG"]) == (result, 0)
    assert (fields["OPCODE"], fields["SUB_OP"], fields["ID"]) == (0x62, 1, 5)
    assert core.arena.read_word(core.usi, 4) == 1 and consumer(core) == (3, 0)


# ---- V14: errors -------------------------------------------------------------------------------------------------

BAD = [("0x00", raw(0)), ("0x44", raw(0x44)), ("0xAB", raw(0xAB)), ("0xFF", raw(0xFF)), ("0x63", raw(0x63)),
       ("sub-op 9", raw(0x62 | 9 << 8)), ("sub-op 0", raw(0x62))]  # fmt: skip
KNOWN = {c.opcode for c in SPEC.commands.values()} - {0x44}


@pytest.mark.parametrize("entry", [e for _, e in BAD], ids=[n for n, _ in BAD])
def test_v14_bad_command(core: Core, entry: bytes) -> None:
    core.put("CMD_CFGI_TCT", LEAF=1, TID=1)
    bad = core.mcmdq.put(entry)
    core.put("CMD_SYNC", CM=1, MSIADDR=core.usi >> 2, MSIDATA=0x77)
    core.mcmdq.ring_bell()
    ci = core.mcmdq.consumer()
    assert (ci["RD_IDX_WRAP"], ci["ERR"], ci["ERR_REASON"]) == (bad, 1, ILLEGAL)
    assert core.qom("config-invalidations") == 1 and core.qom("syncs") == 0
    assert core.pending_errors() == MCMD_QUE_ERR and core.interrupt(1) == DATA[1]
    # A doorbell without the acknowledgement must not restart it, nor report again.
    core.mcmdq.ring_bell()
    assert consumer(core) == (bad, ILLEGAL) and core.interrupt(1) == 0
    # As the driver: replace the entry by a SYNC, acknowledge the queue, then GLB_ERR.
    core.arena.write(core.mcmdq.slot(bad), SPEC.commands["CMD_SYNC"].pack())
    core.mcmdq.acknowledge_error()
    core.acknowledge()
    assert consumer(core) == (3, 0) and core.pending_errors() == 0
    assert core.arena.read_word(core.usi, 4) == 0x77


def test_v14_every_unknown_opcode_is_illegal(core: Core) -> None:
    for opcode in range(256):
        if opcode in KNOWN and opcode != 0x63:
            continue
        bad = core.mcmdq.put(raw(opcode))
        core.mcmdq.ring_bell()
        assert consumer(core) == (bad, ILLEGAL), f"opcode {opcode:#x}"
        core.arena.write(core.mcmdq.slot(bad), SPEC.commands["CMD_SYNC"].pack())
        core.mcmdq.acknowledge_error()
        core.acknowledge()
    assert core.pending_errors() == 0


def test_v14_second_error_while_pending_toggles_nothing(core: Core) -> None:
    first = core.regs.read("GLB_ERR")
    for _ in range(2):
        bad = core.mcmdq.put(raw(0xFF))
        core.mcmdq.ring_bell()
        assert consumer(core) == (bad, ILLEGAL)
        core.arena.write(core.mcmdq.slot(bad), SPEC.commands["CMD_SYNC"].pack())
        core.mcmdq.acknowledge_error()
    assert core.regs.read("GLB_ERR") == first ^ MCMD_QUE_ERR
    assert core.qom("interrupts-glb-err") == 1
    core.acknowledge()
    core.mcmdq.put(raw(0xFF))
    core.mcmdq.ring_bell()
    assert core.regs.read("GLB_ERR") == first, "a new error after the acknowledgement toggles back"
    assert core.qom("interrupts-glb-err") == 2


def test_v14_error_in_one_queue_leaves_the_other_alone(core: Core) -> None:
    second = CommandQueue(core.regs, core.arena, number=1)
    core.machine.qtest.write_many(second.enable_writes())
    second.put(raw(0xFF))
    second.ring_bell()
    assert second.consumer()["ERR_REASON"] == ILLEGAL
    core.cmd("CMD_SYNC", CM=1, MSIADDR=core.usi >> 2, MSIDATA=9)
    assert consumer(core) == (1, 0) and core.arena.read_word(core.usi, 4) == 9


def test_v14_off_and_on_recovers(core: Core) -> None:
    core.mcmdq.put(raw(0xFF))
    core.mcmdq.ring_bell()
    assert consumer(core) == (0, ILLEGAL)
    core.regs.write("MCMDQ_PI", 1, core.mcmdq.at)
    core.arena.write(core.mcmdq.slot(0), SPEC.commands["CMD_SYNC"].pack())
    core.regs.write("MCMDQ_PI", 1 << 31 | 1, core.mcmdq.at)
    assert core.mcmdq.consumer() == {"RD_IDX_WRAP": 1, "ERR": 0, "ERR_REASON": 0, "EN_RESP": 1}


def test_errack_without_an_error_stops_and_is_undone(core: Core) -> None:
    core.put("CMD_SYNC")
    core.regs.write("MCMDQ_PI", 1 << 31 | 1 << 23 | 1, core.mcmdq.at)
    assert core.qom("commands") == 0 and core.qom("guest-errors") == 1
    core.mcmdq.ring_bell()
    assert consumer(core) == (1, 0)


# ---- V17: ring geometry --------------------------------------------------------------------------------------------


def enable_raw(core: Core, base: int, log2: int, pi: int = 0) -> None:
    at = core.mcmdq.at
    core.regs.write("MCMDQ_PI", 0, at)
    core.regs.write("MCMDQ_CI", 0, at)
    core.regs.write("MCMDQ_BASE", base | log2, at)
    core.regs.write("MCMDQ_PI", 1 << 31 | pi, at)


@pytest.mark.parametrize("where", ["hole", "bar", "high bits", "behind ram"])
@pytest.mark.parametrize("log2", [0, 6, 19, 31])
def test_v17_ring_outside_ram_is_a_fetch_abort(core: Core, where: str, log2: int) -> None:
    top = core.machine.arch.ram_base + core.machine.ram_size
    base = {"hole": HOLE, "bar": core.base, "high bits": 0xF << 48, "behind ram": top}[where]
    enable_raw(core, base, log2, pi=1)
    assert consumer(core) == (0, FETCH_ABORT)
    assert core.pending_errors() == MCMD_QUE_ERR
    # The driver leaves the entry and retries; the fault stays and is reported again.
    core.acknowledge()
    core.regs.write("MCMDQ_PI", 1 << 31 | 1 << 23 | 1, core.mcmdq.at)
    assert consumer(core) == (0, FETCH_ABORT)


def test_v17_ring_of_one_entry(core: Core) -> None:
    slot = core.arena.take(4096)
    core.arena.write(slot, SPEC.commands["CMD_SYNC"].pack())
    enable_raw(core, slot, 0)
    for turn in range(5):
        core.regs.write("MCMDQ_PI", 1 << 31 | (turn + 1) % 2, core.mcmdq.at)
        assert consumer(core) == ((turn + 1) % 2, 0)
    assert core.qom("syncs") == 5


@pytest.mark.parametrize("log2", [19, 20, 31])
def test_v17_exponent_above_the_limit_acts_as_the_limit(core: Core, log2: int) -> None:
    """2^19 entries are 16 MiB; index 2^19 is entry 0 with the wrap bit."""
    ring = core.arena.take(32 << 19, 32 << 19)
    sync = SPEC.commands["CMD_SYNC"].pack()
    core.arena.write(ring, sync * (1 << 19))
    enable_raw(core, ring, log2)
    assert core.qom("guest-errors") == (log2 > 19)
    core.regs.write("MCMDQ_PI", 1 << 31 | 1 << 19, core.mcmdq.at)
    assert consumer(core) == (1 << 19, 0)
    assert core.qom("syncs") == 1 << 19


def test_v17_last_entry_at_the_end_of_ram(core: Core) -> None:
    top = core.machine.arch.ram_base + core.machine.ram_size
    sync = SPEC.commands["CMD_SYNC"].pack()
    core.arena.write(top - 32, sync)
    enable_raw(core, top - 32, 1, pi=2)
    assert consumer(core) == (1, FETCH_ABORT), "the entry inside RAM ran, the one behind it did not"
    assert core.qom("syncs") == 1


def test_injected_bus_error_hits_the_named_fetch(core: Core) -> None:
    core.qom_set("inject-table-error-nth", 3)
    for _ in range(4):
        core.put("CMD_SYNC")
    core.mcmdq.ring_bell()
    assert consumer(core) == (2, FETCH_ABORT)
    assert core.qom("inject-table-error-nth") == 0
    core.mcmdq.acknowledge_error()
    assert consumer(core) == (4, 0)


def test_injected_delay_of_sync(core: Core) -> None:
    core.qom_set("inject-sync-delay-ns", 1_000_000)
    core.put("CMD_TLBI_NS_OS_ALL")
    core.put("CMD_SYNC", CM=1, MSIADDR=core.usi >> 2, MSIDATA=5)
    core.put("CMD_TLBI_NS_OS_ALL")
    core.mcmdq.ring_bell()
    core.machine.qtest.clock_step(999_000)
    assert consumer(core) == (1, 0) and core.arena.read_word(core.usi, 4) == 0
    core.machine.qtest.clock_step(2_000)
    assert consumer(core) == (3, 0) and core.arena.read_word(core.usi, 4) == 5
    assert core.qom("tlb-invalidations") == 2
