# SPDX-License-Identifier: GPL-2.0-or-later
"""Reset at any moment, save and restore in the middle of everything (cases V18 and V19, the UMMU's half)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from core_helper import DATA, EVENTQ_EN, MAPT_EN, UMMU_EN, Core
from test_ummu_ucmdq import CONTEXTS_LOG2, PSYNC, SUCCESS, UserQueue
from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import QtestMachine
from ummulab.spec import load

DEVICES = ("ummu,id=ummu0",)
SPEC = load()
E1 = 0x0123456789ABCDEF_FEDCBA9876543210


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    return Core(machine)


def disturb(core: Core) -> UserQueue:
    """Bring everything into a state that is not the reset state."""
    core.user_contexts(CONTEXTS_LOG2)
    for register in SPEC.registers.values():
        if register.access == "rw" and register.guard == "NONE" and "USI" not in register.name:
            core.regs.write(register.name, 0x55555555 & register.mask & ~0x3 | 1 << 31 & register.mask)
    core.start(EVENTQ_EN | MAPT_EN)
    core.create(E1, 7)
    core.create(E1, 8, evt=1)
    core.mcmdq.put(bytes([0xFF]) + bytes(31))
    core.put("CMD_SYNC", CM=1, MSIADDR=(core.usi + 0x800) >> 2, MSIDATA=0xBAD)
    core.mcmdq.ring_bell()
    core.write(0x10000 + 0x40, 1 << 16 | 4)
    core.write(0x10000, 1)
    queue = UserQueue(core, cmd_log2=4, cpl_log2=1, stride=0x10000)  # UMCMD_PAGE_SEL is 0 now
    for _ in range(5):
        queue.put(PSYNC, 1)
    queue.bell()
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN | UMMU_EN)
    return queue


def system_reset(core: Core) -> None:
    core.machine.reset()


def function_reset(core: Core) -> None:
    core.function.reset_function()
    core.machine.enumerate()
    core.function = core.machine.function(0x554D, core.number)


RESETS = [system_reset, function_reset]


@pytest.mark.parametrize("reset", RESETS)
def test_v18_reset_image(core: Core, reset: Callable[[Core], None]) -> None:
    pristine = core.image(), core.qom("caches")
    for _ in range(20):
        disturb(core)
        assert core.image() != pristine[0] and core.qom("queues") and core.qom("kv")
        reset(core)
        assert (core.image(), core.qom("caches")) == pristine
        assert core.qom("queues") == {} and core.qom("kv") == {} and core.qom("pending-stalls") == ""
        assert all(v == 0 for v in core.qom("counters").values())
        assert core.read(0x10000) == 0 and core.read(0x10040) == 0
        core = Core(core.machine)


@pytest.mark.parametrize("reset", RESETS)
def test_v18_no_write_and_no_interrupt_after_reset(core: Core, reset: Callable[[Core], None]) -> None:
    queue = disturb(core)
    core.qom_set("inject-sync-delay-ns", 1000)
    core.arena.write(core.mcmdq.slot(core.mcmdq.consumer()["RD_IDX_WRAP"]), SPEC.commands["CMD_SYNC"].pack())
    core.mcmdq.acknowledge_error()
    reset(core)
    start, end = core.arena.used
    before = core.arena.read(start, end - start)
    core.machine.qtest.clock_step(1_000_000)
    core.write(queue.page + 12, 2, 2)
    core.write(queue.page + 0, 7, 2)
    core.regs.write("MCMDQ_PI", 5, core.mcmdq.at)
    assert core.arena.read(start, end - start) == before


@pytest.mark.parametrize("abort", ["off", "on"])
def test_v18_gbpa_decides_between_reset_and_enable(abort: str) -> None:
    with QtestMachine((f"ummu,id=ummu0,gbpa-abort={abort}",)) as machine:
        core = Core(machine)
        core.start()
        core.regs.write("CTRL0", UMMU_EN)
        machine.reset()
        core.qom_set("translate-request", "eid=1,tid=1,uba=0x123456,len=64,access=write")
        result = core.qom("translate-result")
        if abort == "on":
            assert result["status"] == "fault" and result["event"] == ""
        else:
            assert (result["status"], result["pa"], result["len"]) == ("ok", 0x123456, 64)


# ---- V19 -----------------------------------------------------------------------------------------------------------


def everything(core: Core) -> tuple[object, ...]:
    """All state that can be seen."""
    dictionaries = [core.qom(name) for name in ("queues", "kv", "counters", "faults")]
    pmu = [core.read(0x10000 + offset) for offset in range(0, 0x28, 4) if offset != 0x04]
    injected = ("table-error-nth", "eventq-full", "drop-resumes", "sync-delay-ns")
    return core.image(), dictionaries, pmu, [core.qom(f"inject-{name}") for name in injected]


def test_v19_save_before_any_set_up(core: Core) -> None:
    before = everything(core)
    core.machine.save_and_load()
    assert everything(core) == before
    core.start()
    core.cmd("CMD_SYNC")
    core.mcmdq.drain()


def test_v19_everything_survives(core: Core) -> None:
    queue = disturb(core)
    core.qom_set("inject-table-error-nth", 77)
    core.qom_set("inject-drop-resumes", 3)
    before = everything(core)
    core.interrupt(0), core.interrupt(1)
    core.machine.save_and_load()
    assert everything(core) == before
    assert (core.interrupt(0), core.interrupt(1)) == (0, 0), "a load must not raise an interrupt"
    assert [e["REASON"] for e in core.events()] == [1]
    core.qom_set("inject-table-error-nth", 0)
    # The blocked user queue and the stopped command queue go on where they were.
    queue.consume(2)
    assert [queue.completion(n) for n in range(2)] == [(SUCCESS, 2), (SUCCESS, 3)]
    bad = core.mcmdq.consumer()["RD_IDX_WRAP"]
    core.arena.write(core.mcmdq.slot(bad), SPEC.commands["CMD_SYNC"].pack())
    core.mcmdq.acknowledge_error()
    assert core.arena.read_word(core.usi + 0x800, 4) == 0xBAD


def test_v19_delayed_sync_completes_after_the_load(core: Core) -> None:
    core.start()
    core.qom_set("inject-sync-delay-ns", 1_000_000)
    core.cmd("CMD_SYNC", CM=1, MSIADDR=core.usi >> 2, MSIDATA=6)
    core.machine.save_and_load()
    assert core.arena.read_word(core.usi, 4) == 0
    core.machine.qtest.clock_step(2_000_000)
    assert core.arena.read_word(core.usi, 4) == 6 and core.mcmdq.consumer()["RD_IDX_WRAP"] == 1


def test_v19_pending_error_interrupt_is_still_pending(core: Core) -> None:
    core.start(interrupts=0)
    core.mcmdq.put(bytes([0xFF]) + bytes(31))
    core.mcmdq.ring_bell()
    core.machine.save_and_load()
    assert core.interrupt(1) == 0
    core.regs.write("GLB_INT_EN", 1)
    assert core.interrupt(1) == DATA[1]


def test_v19_chain_of_saves_during_work(core: Core) -> None:
    """A random mix of work, saved and loaded ten times, ends like the same work without a save."""
    results = []
    for saves in (True, False):
        core.machine.reset()
        run = Core(core.machine)
        queue = disturb(run)
        rng = random.Random(19)
        for step in range(200):
            random_step(run, queue, rng)
            if saves and step % 20 == 10:
                run.machine.save_and_load()
        start, end = run.arena.used
        results.append((everything(run), run.arena.read(start, end - start)))
    assert results[0] == results[1]


def random_step(core: Core, queue: UserQueue, rng: random.Random) -> None:
    """One random action on one of the queues."""
    action = rng.randrange(5)
    if action == 0:
        core.create(rng.getrandbits(128), rng.randrange(16), index=rng.randrange(2304), evt=rng.randrange(2))
    elif action == 1:
        core.cmd("CMD_SYNC", CM=1, MSIADDR=(core.usi + 0x400) >> 2, MSIDATA=rng.getrandbits(32))
    elif action == 2:
        core.events()
    elif action == 3:
        queue.put(PSYNC, 1)
        queue.bell()
        queue.consume(rng.randrange(2))
    else:
        bad = core.mcmdq.consumer()["RD_IDX_WRAP"]
        core.arena.write(core.mcmdq.slot(bad), SPEC.commands["CMD_SYNC"].pack())
        core.mcmdq.acknowledge_error()
        core.acknowledge()


def test_v19_two_ummus() -> None:
    with QtestMachine(("ummu,id=ummu0", "ummu,id=ummu1,mcmdq-log2=1")) as machine:
        first = Core(machine, 0)
        second = Core(machine, 1, beside=first)
        first.start()
        second.start()
        first.create(E1, 1)
        second.create(E1, 2)
        before = everything(first), everything(second)
        machine.save_and_load()
        assert (everything(first), everything(second)) == before


@pytest.mark.parametrize(
    "options, word", [("user-queues=128", "/ummu"), ("prod-id=2", "IIDR"), ("httu=0", "CAP3")]
)
def test_v19_state_of_another_device_is_refused(options: str, word: str, tmp_path: Path) -> None:
    with QtestMachine(("ummu,id=ummu0",)) as machine:
        machine.save(tmp_path / "state")
        machine.devices = (f"ummu,id=ummu0,{options}",)
        with pytest.raises(QtestError) as caught:
            machine.load(tmp_path / "state")
        assert word in str(caught.value), caught.value


def test_v19_damaged_state_does_not_crash(core: Core, tmp_path: Path) -> None:
    """Bytes changed at random: QEMU refuses the stream or goes on; it never dies by a signal."""
    disturb(core)
    path = tmp_path / "state"
    core.machine.save(path)
    good = path.read_bytes()
    at = good.index(b"ummu-core") if b"ummu-core" in good else good.index(b"ummu")
    rng = random.Random(23)
    outcomes = set()
    for _ in range(12):
        bad = bytearray(good)
        for _ in range(40):
            bad[rng.randrange(at, min(at + 26000, len(bad)))] = rng.randrange(256)
        path.write_bytes(bytes(bad))
        try:
            core.machine.load(path, run=False)
            core.image(), core.qom("queues"), core.qom("kv")
            outcomes.add("loaded")
        except QtestError as error:
            text = str(error)
            assert "status -" not in text, text
            outcomes.add("refused")
    path.write_bytes(good)
    core.machine.load(path)
    assert core.qom("kv")
    assert outcomes
