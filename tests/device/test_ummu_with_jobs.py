# SPDX-License-Identifier: GPL-2.0-or-later
"""Device halves of cases that need jobs under way: V10 (two devices, one TID), V18 (reset), V19 (save and restore)."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

import pytest
from core_helper import SOAK
from ummulab.qtest.accel import OP, Accel, AccelQueue, Operand
from ummulab.qtest.bench import ACCEL_DEVICE, CANARY_SIZE, CANARY_VA, CONTROL_TID, RING_VA, TCTE, TID, Bench
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import Matt

#: turns of 16 KiB: a run of jobs has many moments between two of them
ACCEL = "ummu-accel,id=accel0,ummu=ummu0,eid=0x100,turn-bytes=16384"
DEVICES = ("ummu,id=ummu0,strict=on", ACCEL)
SECOND = "ummu-accel,id=accel1,ummu=ummu0,eid=0x101"
JOBS, STEP_NS = 24, 1


def mixed_jobs(bench: Bench, seed: int) -> None:
    """Copies, fills, atomics; some are refused, some meet a page that is missing and stall."""
    rng = random.Random(seed)
    bench.write_tcte(TID, FBS=1)
    bench.cfgi()
    bench.grant(CANARY_VA, CANARY_SIZE // 2, 7)
    bench.matt.unmap(CANARY_VA + 0x40000, PAGE)
    for _ in range(JOBS):
        a, b = (CANARY_VA + rng.randrange(0x80) * PAGE + rng.randrange(64) for _ in range(2))
        length = rng.choice([8, 0x123, 3 * PAGE, 0x10000])
        kind = rng.choice(["copy", "write", "read", "atomic", "outside"])
        if kind == "copy":
            fields = {"OPCODE": OP["COPY"], "LENGTH": length, **Operand(a).fields(0), **Operand(b).fields(1)}
            bench.queue.put(**fields)
        elif kind == "outside":
            bench.queue.put(**bench.dma_fields("write", CANARY_VA + CANARY_SIZE // 2 - PAGE, 2 * PAGE))
        else:
            at = a & ~7 if kind == "atomic" else a
            bench.queue.put(**bench.dma_fields(kind, at, 8 if kind == "atomic" else length))
    bench.queue.ring_bell()


@dataclass
class Outcome:
    """All that software can see of a run."""

    completions: list[tuple[object, ...]]
    events: list[tuple[int, int, int]]
    memory: str
    interrupts: tuple[int, int]


def run(machine: QtestMachine, seed: int, save_at: set[int]) -> Outcome:
    """Run the jobs to their end, saving and restoring at the given steps; pages are brought in when asked for."""
    machine.reset()
    bench = Bench(machine)
    mixed_jobs(bench, seed)
    completions: list[tuple[object, ...]] = []
    events: list[tuple[int, int, int]] = []
    for step in range(100_000):
        if step in save_at:
            machine.save_and_load()
        machine.qtest.clock_step(STEP_NS)
        for event in bench.events():
            events.append((event.code, event["IADDR"], event["STALL"]))
            if event["STALL"]:
                va = CANARY_VA + 0x40000
                bench.matt.map(va, bench.canary_pa(va), PAGE)
                bench.cmd("CMD_STALL_RESUME", TAG=event["STAG"], RETRY=1)
        completions += [
            (c.status, c.event, c.operand, c.bytes_done, c.fault_addr, c.result)
            for c in bench.queue.completed()
        ]
        if len(completions) == JOBS:
            break
    memory = hashlib.sha256(bench.canary_snapshot()).hexdigest()
    return Outcome(completions, events, memory, (bench.interrupt(0), bench.qom("counters")["stalls"]))


@pytest.mark.parametrize("seed", range(20 if SOAK else 2))
def test_v19_any_moment_of_a_mixed_run(machine: QtestMachine, seed: int) -> None:
    """Results, events and memory of a run with saves in it are those of the run without."""
    whole = run(machine, seed, set())
    assert len(whole.completions) == JOBS and {c[0] for c in whole.completions} >= {"OK", "FAULT"}
    assert any(stall for _, _, stall in whole.events)
    rng = random.Random(seed)
    moments = set(rng.sample(range(40), 10 if SOAK else 4))
    assert run(machine, seed, moments) == whole, f"saved at {sorted(moments)}"


def test_v18_reset_in_the_middle_of_jobs(machine: QtestMachine) -> None:
    bench = Bench(machine)
    mixed_jobs(bench, 1)
    for _ in range(10):
        machine.qtest.clock_step(STEP_NS)
    machine.reset()
    start, end = bench.arena.used
    before = machine.read_memory(start, end - start)
    for _ in range(200):
        machine.qtest.clock_step(10_000)
    assert machine.read_memory(start, end - start) == before, "no write and no message after the reset"
    assert bench.qom("pending-stalls") == "" and bench.qom("kv") == {}
    assert [bench.qom("caches")[f"{name}-used"] for name in ("cfg", "tlb", "plb")] == [0, 0, 0]
    Bench(machine).control_works()


def test_v18_twenty_resets_in_a_row(machine: QtestMachine) -> None:
    for seed in range(20 if SOAK else 4):
        bench = Bench(machine)
        mixed_jobs(bench, seed)
        for _ in range(seed + 1):
            machine.qtest.clock_step(STEP_NS)
        machine.reset()
    Bench(machine).control_works()


def test_v10_two_devices_one_tid() -> None:
    """Both work through one context; what one of them does, or its end, leaves the other alone."""
    with QtestMachine((*DEVICES, SECOND)) as machine:
        bench = Bench(machine)
        bench.bind_eid(0x101, 0)
        bench.sync()
        matt, sq, cq = (
            Matt(bench.arena),
            {RING_VA: bench.arena.take(PAGE)},
            {RING_VA + PAGE: bench.arena.take(PAGE)},
        )
        for va, pa in (sq | cq).items():
            matt.map(va, pa, PAGE)
        bench.arena.write(bench.tct + 64 * 9, TCTE.pack(**bench.tcte_fields(matt), E_BIT=1))
        other = AccelQueue(Accel(machine.function(ACCEL_DEVICE, 1)), bench.arena, 0, sq, cq, 6, 6)
        other.accel.write("CTRL", 1)
        other.enable(9, bind=(TID, CONTROL_TID), int_en=False)
        bench.grant(CANARY_VA, 0x100000, 7)
        bench.queue.put(**bench.dma_fields("write", CANARY_VA, 0x100000))
        bench.queue.ring_bell()
        assert other.run(**bench.dma_fields("read", CANARY_VA, 0x1000)).ok
        other.disable()  # in the middle of the first one's job
        (done,) = bench.queue.wait(1)
        assert done.ok and done.bytes_done == 0x100000
        other.enable(9, bind=(TID,), int_en=False)
        bench.queue.disable()
        assert other.run(**bench.dma_fields("atomic", CANARY_VA, 8)).ok
        # One EID goes: only its device loses the entity.
        slot = bench.kv.free_slot(0x999)
        assert slot is not None
        bench.cmd("CMD_DELETE_KVTBL", TECTE_TAG=0, KV_INDEX=0, EID_LOW=0x101)
        bench.sync()
        other.put(**bench.dma_fields("read", CANARY_VA, 8))
        other.ring_bell()
        for _ in range(4):
            machine.qtest.clock_step(100_000)
        assert other.state()["STATE"] == 2 and other.state()["EVENT"] == 0x02
        bench.queue.enable(2, bind=(TID, CONTROL_TID))
        bench.control_works()


@pytest.mark.parametrize(("source", "target"), [(0, 0), (3, 5), (0xFFF, 1), (8, 24)])
def test_large_copy_is_exact(machine: QtestMachine, source: int, target: int) -> None:
    """Large copies take another way through the host; unaligned ends, and not a byte more."""
    bench = Bench(machine)
    bench.grant(CANARY_VA, CANARY_SIZE, 3)
    a, b, length = CANARY_VA + source, CANARY_VA + (4 << 20) + target, (3 << 20) + 7
    before, expected = bench.read_va(b - 1, length + 2), bench.read_va(a, length)
    done = bench.copy(Operand(a), Operand(b), length)
    assert done.ok and done.bytes_done == length
    after = bench.read_va(b - 1, length + 2)
    assert after[1:-1] == expected
    assert (after[0], after[-1]) == (before[0], before[-1])
