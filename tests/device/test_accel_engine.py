# SPDX-License-Identifier: GPL-2.0-or-later
"""The accelerator's engine: registers, rings, many queues, bounded turns, VRAM, the cost model."""

from __future__ import annotations

import random

import pytest
from ummulab.qtest.accel import CPL, DESC, FLAG, OP, SPEC, AccelQueue, Operand
from ummulab.qtest.bench import (
    CANARY_SIZE,
    CANARY_VA,
    CONTROL_TID,
    CONTROL_VA,
    PERIPHERAL,
    RING_TID,
    TID,
    Bench,
)
from ummulab.qtest.errors import QemuDied, QtestTimeout
from ummulab.qtest.machine import DEFAULT_DEVICES, QtestMachine
from ummulab.qtest.memory import PAGE

A, B = CANARY_VA, CANARY_VA + 0x400000
MIB = 1 << 20
RW = 3
UMMU = DEFAULT_DEVICES[0]


def accel_with(*properties: str) -> tuple[str, str]:
    """The devices, the accelerator with more properties."""
    return UMMU, ",".join((DEFAULT_DEVICES[1], *properties))


def counter(bench: Bench, name: str) -> int:
    """A QOM counter of the accelerator."""
    answer = bench.machine.qmp.command("qom-get", path=PERIPHERAL.format("accel0"), property=name)
    assert isinstance(answer, int)
    return answer


@pytest.fixture
def open_bench(bench: Bench) -> Bench:
    """BASE with all canary memory open."""
    bench.grant(CANARY_VA, CANARY_SIZE, 7)
    return bench


# -- registers --------------------------------------------------------------------------------------

REGISTERS = [(name, 0) for name in SPEC.registers]
BANKS = [(r.name, bank.base + 3 * bank.stride) for bank in SPEC.banks.values() for r in bank.registers]
WRITABLE = {"CTRL", "Q_CTRL", "Q_TID_BIND", "DB_SQ_PI", "DB_CQ_CI"}  # with effects of their own


@pytest.mark.parametrize(("name", "at"), REGISTERS + BANKS, ids=lambda value: str(value))
def test_register_row(machine: QtestMachine, name: str, at: int) -> None:
    """Reset value, write mask, and that a read-only register stays."""
    bench = Bench(machine, enable=False)
    register = SPEC.reg(name)
    if isinstance(register.reset, int):
        assert bench.accel.read(name, at) == register.reset
    before = bench.accel.read(name, at)
    if name in WRITABLE:
        return
    bench.accel.write(name, (1 << register.width) - 1, at)
    mask = 0 if register.access == "ro" else sum(((1 << f.width) - 1) << f.lsb for f in register.fields)
    assert bench.accel.read(name, at) == (before & ~mask) | mask


@pytest.mark.parametrize("name", [name for name, _ in BANKS if SPEC.reg(name).guard == "Q_EN"])
def test_guarded_registers_stay_while_the_queue_runs(bench: Bench, name: str) -> None:
    before = bench.accel.read(name, bench.queue.at)
    bench.accel.write(name, (1 << SPEC.reg(name).width) - 1, bench.queue.at)
    assert bench.accel.read(name, bench.queue.at) == before
    bench.control_works()


@pytest.mark.parametrize("size", [1, 2])
def test_narrow_accesses_do_no_harm(bench: Bench, size: int) -> None:
    """Whatever width: an architectural answer, no error of the host, and the queue goes on."""
    base = bench.accel.function.bars[0]
    for offset in range(0, 0x60, size):
        bench.machine.qtest.read(base + offset, size)
        if offset not in (0x10, 0x11, 0x12, 0x13):
            bench.machine.qtest.write(base + offset, 0xFF, size)
    bench.control_works()


def test_registers_beyond_the_last_queue_read_zero(bench: Bench) -> None:
    base = bench.accel.function.bars[0]
    queues = bench.accel.fields("CAP0")["QUEUES"]
    for offset in (0x48, 0x800, 0x1000 + queues * 0x80, 0x8000, 0x10010):
        bench.machine.qtest.write(base + offset, 0xFFFFFFFF, 4)
        assert bench.machine.qtest.read(base + offset, 4) == 0
    bench.control_works()


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (("queues=0",), "queues=0 is not in 1..64"),
        (("queues=65",), "queues=65 is not in 1..64"),
        (("vram-size=1000000",), "vram-size must be 0 or a power of two"),
        (("turn-bytes=1",), "turn-bytes=1 is not in"),
        (("eid=xyz",), "is not a hexadecimal number"),
        (("eid=",), "eid"),
        (("eid=0x1" + 32 * "0",), "is not a hexadecimal number of up to 128 bits"),
        (("ummu=none",), "none"),
    ],
)
def test_impossible_properties_end_with_one_line(properties: tuple[str, ...], says: str) -> None:
    with pytest.raises(QemuDied) as caught:
        QtestMachine(accel_with(*properties))
    assert says in str(caught.value)


# -- rings ------------------------------------------------------------------------------------------


def test_rings_wrap_many_times(open_bench: Bench) -> None:
    queue = open_bench.queue
    for number in range(5 * (1 << queue.sq_log2)):
        done = queue.run(OPCODE=OP["NOP"], COOKIE=number)
        assert (done.status, done.cookie) == ("OK", number)
    assert done.sq_index == (number & ((2 << queue.sq_log2) - 1))


def test_a_full_submission_ring_is_worked_off_in_order(open_bench: Bench) -> None:
    queue = open_bench.queue
    cookies = [queue.put(OPCODE=OP["NOP"]) for _ in range(1 << queue.sq_log2)]
    queue.ring_bell()
    assert [done.cookie for done in queue.wait(len(cookies))] == cookies


def test_a_full_completion_ring_stops_the_queue_and_loses_nothing(open_bench: Bench) -> None:
    bench = open_bench
    pages = {va: bench.arena.take(PAGE) for va in (0x21000000, 0x21010000)}
    sq, cq = ({va: pa} for va, pa in pages.items())
    bench._plain_context(40, pages)
    queue = AccelQueue(bench.accel, bench.arena, 1, sq, cq, 5, 2)
    queue.enable(40, bind=(TID,))
    cookies = [queue.put(OPCODE=OP["NOP"]) for _ in range(20)]
    queue.ring_bell()
    bench.machine.qtest.clock_step(50_000_000)
    assert bench.accel.read("DB_CQ_PI", queue.bell) == 4
    assert queue.state()["STATE"] == 1
    assert [done.cookie for done in queue.wait(20)] == cookies


@pytest.mark.parametrize("pi", [0x41, 0x7F, 0x80, 0xFFFF, 0xFFFFFFFF])
def test_a_producer_index_beyond_the_ring_is_harmless(open_bench: Bench, pi: int) -> None:
    """Hostile: more entries than the ring has.  No hang, no endless loop, and the queue can be started again."""
    bench = open_bench
    bench.accel.write("DB_SQ_PI", pi, bench.queue.bell)
    bench.machine.qtest.clock_step(50_000_000)
    assert bench.queue.state()["STATE"] in (1, 2)
    bench.queue.disable()
    bench.queue.enable(RING_TID, bind=(TID, CONTROL_TID))
    bench.control_works()


@pytest.mark.parametrize("seed", range(6))
def test_random_descriptors_never_end_the_engine(open_bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    queue = open_bench.queue
    for _ in range(64):
        raw = bytearray(rng.randbytes(64))
        if rng.random() < 0.7:
            raw[0] = rng.randrange(12)
            for word in (3, 5, 7):
                raw[word * 8 : word * 8 + 4] = rng.choice([TID, CONTROL_TID, 9]).to_bytes(4, "little")
            for word in (2, 4, 6):
                raw[word * 8 : word * 8 + 8] = (A + rng.randrange(-64, CANARY_SIZE)).to_bytes(8, "little")
            raw[8:16] = rng.choice([0, 1, 4, 8, 100, 1 << 20, 1 << 40, (1 << 64) - 1]).to_bytes(8, "little")
        queue.put(bytes(raw))
        queue.ring_bell()
        (done,) = queue.wait(1, step_ns=50_000_000)
        assert done.status in ("OK", "FAULT", "BAD_OP", "BAD_DESC", "NOT_BOUND", "BUS_ERROR"), (seed, done)
    open_bench.events()
    open_bench.control_works()


@pytest.mark.parametrize("ring", ["sq", "cq"])
def test_a_refused_ring_is_an_error_with_the_address(open_bench: Bench, ring: str) -> None:
    bench = open_bench
    bench.queue.disable()
    at = 0x7000_0000
    bench.accel.write("Q_SQ_BASE" if ring == "sq" else "Q_CQ_BASE", at, bench.queue.at)
    bench.accel.write("Q_CTRL", 3, bench.queue.at)
    bench.accel.write("Q_TID_BIND", TID | 1 << 31, bench.queue.at)
    bench.queue.pi = bench.queue.ci = 0
    bench.queue.put(OPCODE=OP["NOP"])
    bench.queue.ring_bell()
    bench.machine.qtest.clock_step(20_000_000)
    state = bench.queue.state()
    assert (state["STATE"], state["EVENT"] != 0) == (2, True)
    assert bench.queue.error_address() == at
    assert bench.interrupt(0, accel=True)
    assert counter(bench, "queue-errors") == 1
    assert [record["IADDR"] for record in bench.events()] == [at]
    bench.queue.disable()
    bench.queue.enable(RING_TID, bind=(TID, CONTROL_TID))
    bench.control_works()


def test_rings_are_checked_like_any_other_access(open_bench: Bench) -> None:
    """A ring TID with a permission table: rings need a grant, and the queue's token where the grant has one."""
    bench = open_bench
    bench.queue.disable()
    va = CANARY_VA + CANARY_SIZE
    sq, cq = ({at: bench.arena.take(PAGE)} for at in (va, va + PAGE))
    for at, pa in (sq | cq).items():
        bench.matt.map(at, pa, PAGE)
    queue = AccelQueue(bench.accel, bench.arena, 4, sq, cq, 5, 5)
    bench.grant(va, 2 * PAGE, RW, token=0x77)
    for token, good in ((0x77, True), (0x78, False), (None, False)):
        queue.enable(TID, token=token)
        queue.put(OPCODE=OP["NOP"])
        queue.ring_bell()
        bench.machine.qtest.clock_step(20_000_000)
        assert len(queue.completed()) == int(good)
        assert queue.state()["STATE"] == (1 if good else 2)
        queue.disable()
    assert [record["IADDR"] for record in bench.events()] == [va, va]


# -- many queues, bounded work ----------------------------------------------------------------------


def second_queue(bench: Bench, number: int) -> AccelQueue:
    """One more running queue with its own rings."""
    base = 0x22000000 + number * 0x100000
    sq, cq = {base: bench.arena.take(PAGE)}, {base + 0x10000: bench.arena.take(PAGE)}
    bench._plain_context(30 + number, sq | cq)
    queue = AccelQueue(bench.accel, bench.arena, number, sq, cq, 6, 6)
    queue.enable(30 + number, bind=(TID,))
    return queue


def test_sixty_four_queues() -> None:
    with QtestMachine(accel_with("queues=64")) as machine:
        bench = Bench(machine)
        bench.grant(CANARY_VA, CANARY_SIZE, 7)
        assert bench.accel.fields("CAP0")["QUEUES"] == 64
        # Contexts 30 .. 63 exist in BASE: 33 queues at once, the last number among them.
        queues = [bench.queue, *(second_queue(bench, n) for n in (*range(1, 33), 63 - 30 + 0))]
        for queue in queues:
            queue.put(**bench.dma_fields("write", A + queue.number * PAGE, PAGE, pattern=queue.number))
            queue.ring_bell()
        for queue in queues:
            assert queue.wait()[0].ok
        for queue in queues:
            assert bench.read_va(A + queue.number * PAGE, 8) == queue.number.to_bytes(8, "little")


def test_a_long_job_does_not_starve_another_queue(open_bench: Bench) -> None:
    bench = open_bench
    other = second_queue(bench, 2)
    bench.queue.put(OPCODE=OP["COPY"], LENGTH=4 * MIB, **Operand(A).fields(0), **Operand(B).fields(1))
    other.put(**bench.dma_fields("read", A, 64))
    bench.queue.ring_bell()
    other.ring_bell()
    assert other.wait()[0].ok
    assert bench.queue.wait()[0].ok
    assert bench.read_va(B, 4 * MIB) == bench.read_va(A, 4 * MIB)


def test_work_per_turn_is_bounded() -> None:
    """A long copy takes many turns of the main loop, none of them beyond turn-bytes and one descriptor."""
    with QtestMachine(accel_with("turn-bytes=65536")) as machine:
        bench = Bench(machine)
        bench.grant(CANARY_VA, CANARY_SIZE, 7)
        turns = counter(bench, "turns")
        assert bench.copy(Operand(A), Operand(B), 4 * MIB).ok
        assert counter(bench, "turns") - turns >= 4 * MIB // 65536
        assert counter(bench, "turn-bytes-peak") <= 65536 + 4 * 64


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("good", [1, 4095, 4096, 5000, 70000, MIB + 1])
def test_partial_completion_is_exact(bench: Bench, op: str, good: int) -> None:
    """Bytes before the end of the grant have happened, none behind it."""
    bench.grant(A, good, RW)
    before = bench.read_va(A, good + 64)
    done = bench.dma(op, A, good + 64)
    assert (done.status, done.bytes_done, done.fault_addr) == ("FAULT", good, A + good)
    after = bench.read_va(A, good + 64)
    assert after[good:] == before[good:]
    assert after[:good] == (before[:good] if op == "read" else (b"\x5a" * good))


@pytest.mark.parametrize("flag", ["FENCE_BEFORE", "opcode"])
def test_fence_comes_after_all_earlier_jobs(open_bench: Bench, flag: str) -> None:
    bench = open_bench
    first = bench.queue.put(**bench.dma_fields("write", A, MIB, pattern=0x11))
    if flag == "opcode":
        bench.queue.put(OPCODE=OP["FENCE"])
    last = bench.queue.put(**bench.dma_fields("read", A, MIB), FLAGS=FLAG["FENCE_BEFORE"])
    bench.queue.ring_bell()
    done = bench.queue.wait(3 if flag == "opcode" else 2)
    assert (done[0].cookie, done[-1].cookie) == (first, last)
    assert all(one.ok for one in done)


def test_interrupts_only_for_jobs_that_ask(open_bench: Bench) -> None:
    bench = open_bench
    assert bench.queue.run(OPCODE=OP["NOP"]).ok
    assert bench.interrupt(0, accel=True) == 0
    assert bench.queue.run(OPCODE=OP["NOP"], FLAGS=FLAG["INT"]).ok
    assert bench.interrupt(0, accel=True) == 0xA0


# -- stopping ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["queue", "device", "unbind"])
def test_a_running_job_is_aborted_before_the_write_returns(how: str) -> None:
    with QtestMachine(accel_with("bytes-per-us=1000")) as machine:
        bench = Bench(machine)
        bench.grant(CANARY_VA, CANARY_SIZE, 7)
        bench.queue.put(OPCODE=OP["COPY"], LENGTH=4 * MIB, **Operand(A).fields(0), **Operand(B).fields(1))
        bench.queue.ring_bell()
        machine.qtest.clock_step(1_500_000)
        assert bench.queue.state()["BUSY"] == 1
        assert bench.read_va(B, 64) == bench.read_va(A, 64)
        if how == "queue":
            bench.queue.disable()
        elif how == "device":
            bench.accel.write("CTRL", 0)
        else:
            bench.queue.bind(TID, add=False)
        before = bench.canary_snapshot()
        machine.qtest.clock_step(50_000_000)
        assert bench.canary_snapshot() == before, "memory changed after the job was aborted"
        if how == "unbind":
            assert [done.status for done in bench.queue.wait()] == ["ABORTED"]
        assert counter(bench, "jobs-aborted") == 1


def test_a_disabled_queue_forgets_its_tids(open_bench: Bench) -> None:
    bench = open_bench
    bench.queue.disable()
    bench.queue.enable(RING_TID)
    assert bench.queue.run(**bench.dma_fields("read", A, 8)).status == "NOT_BOUND"


def test_more_tids_than_fit_are_refused(open_bench: Bench) -> None:
    limit = open_bench.accel.fields("CAP0")["MAX_TIDS"]
    fitted = sum(open_bench.queue.bind(100 + n) for n in range(limit + 5))
    assert fitted == limit - 2  # BASE has bound two
    open_bench.control_works()


def test_reset_in_the_middle_leaves_a_clean_device(open_bench: Bench) -> None:
    bench = open_bench
    bench.queue.put(OPCODE=OP["COPY"], LENGTH=4 * MIB, **Operand(A).fields(0), **Operand(B).fields(1))
    bench.queue.ring_bell()
    bench.machine.reset()
    again = Bench(bench.machine)
    assert again.accel.fields("STATUS")["BUSY"] == 0
    assert again.accel.read("JOBS_DONE") == 0
    again.control_works()


@pytest.mark.parametrize("after_ns", [0, 100_000, 1_000_000])
def test_saved_in_the_middle_it_goes_on_at_its_byte(open_bench: Bench, after_ns: int) -> None:
    bench = open_bench
    wanted = bench.read_va(A, 4 * MIB)
    cookies = [bench.queue.put(OPCODE=OP["NOP"])]
    cookies.append(
        bench.queue.put(OPCODE=OP["COPY"], LENGTH=4 * MIB, **Operand(A).fields(0), **Operand(B).fields(1))
    )
    cookies.append(bench.queue.put(**bench.dma_fields("read", B, MIB)))
    bench.queue.ring_bell()
    if after_ns:
        bench.machine.qtest.clock_step(after_ns)
    bench.machine.save_and_load()
    assert [done.cookie for done in bench.queue.wait(3)] == cookies
    assert bench.read_va(B, 4 * MIB) == wanted


# -- VRAM, cost model -------------------------------------------------------------------------------


def test_vram_is_memory_for_jobs_and_for_the_cpu() -> None:
    with QtestMachine(accel_with(f"vram-size={4 * MIB}")) as machine:
        bench = Bench(machine)
        assert bench.accel.read("VRAM_SIZE") == 4 * MIB
        vram = bench.accel.function.bars[2]
        at = CANARY_VA + CANARY_SIZE
        for page in range(16):
            bench.matt.map(at + page * PAGE, vram + page * PAGE, PAGE)
        bench.grant(CANARY_VA, CANARY_SIZE + 16 * PAGE, 7)
        assert bench.copy(Operand(A), Operand(at), 16 * PAGE).ok
        assert machine.qtest.read(vram, 8) == int.from_bytes(bench.read_va(A, 8), "little")
        machine.qtest.write(vram + 8, 0x1122334455667788, 8)
        assert bench.copy(Operand(at), Operand(B), 64).ok
        assert bench.read_va(B + 8, 8) == (0x1122334455667788).to_bytes(8, "little")
        done = bench.dma("atomic", at, 8)
        assert (done.status, done.result) == ("OK", int.from_bytes(bench.read_va(A, 8), "little"))


def test_without_vram_there_is_no_bar(bench: Bench) -> None:
    assert bench.accel.read("VRAM_SIZE") == 0
    assert bench.accel.function.bars[2] == 0 if 2 in bench.accel.function.bars else True


def virtual_ns(machine: QtestMachine, bench: Bench, length: int) -> int:
    """Virtual time of one copy, in steps of a microsecond."""
    bench.queue.put(OPCODE=OP["COPY"], LENGTH=length, **Operand(A).fields(0), **Operand(B).fields(1))
    bench.queue.ring_bell()
    for step in range(200_000):
        if bench.queue.completed():
            return step * 1000
        machine.qtest.clock_step(1000)
    raise QtestTimeout("the copy to end", 0, "")


def timed(*properties: str) -> list[int]:
    """Virtual time of copies of 64, 100,000 and 1,000,000 bytes."""
    with QtestMachine(accel_with(*properties)) as machine:
        bench = Bench(machine)
        bench.grant(CANARY_VA, CANARY_SIZE, 7)
        return [virtual_ns(machine, bench, length) for length in (64, 100_000, 1_000_000)]


def test_cost_model_is_exact_and_repeatable() -> None:
    first, again = timed("bytes-per-us=1000"), timed("bytes-per-us=1000")
    assert first == again
    # 1000 bytes a microsecond: 900,000 more bytes are 900 microseconds more, however the turns fall.
    assert abs(first[2] - first[1] - 900_000) <= 20_000
    assert 100_000 <= first[1] <= 120_000


def test_cost_model_latency_is_per_piece() -> None:
    """Each translated piece of an operand crosses the link once."""
    small, middle, large = timed("link-latency-ns=5000")
    assert small >= 2 * 5000
    pieces = 2 * 900_000 // PAGE
    assert abs(large - middle - 5000 * pieces) <= 5000 * pieces // 10


def test_cost_model_off_costs_nothing(open_bench: Bench) -> None:
    assert virtual_ns(open_bench.machine, open_bench, MIB) <= 10_000


def test_sizes_of_ring_entries() -> None:
    assert (DESC.size, CPL.size) == (64, 32)
    assert CONTROL_VA % PAGE == 0
