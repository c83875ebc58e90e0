# SPDX-License-Identifier: GPL-2.0-or-later
"""Stalled requests: when they stall, their event, every kind of answer, limits, time-out, reset, save and restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ummulab.qtest.accel import AccelQueue, Completion
from ummulab.qtest.bench import CANARY_VA, CONTROL_TID, RING_VA, TCTE, TID, Bench
from ummulab.qtest.machine import DEFAULT_DEVICES, QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import AF, AP_RO, LEAF, Matt
from ummulab.qtest.ummu import EventRecord

STEP = 100_000
VA = CANARY_VA + 0x5000
A_TRANSLATION, A_ADDR_SIZE, ACCESS, A_PERMISSION = 0x0A, 0x0B, 0x0C, 0x0D
ACCEL = DEFAULT_DEVICES[1]


def prepare(bench: Bench, **context: int) -> Bench:
    """TID 1 stalls, and everything is granted."""
    bench.write_tcte(TID, **{"FBS": 1} | context)
    bench.cfgi()
    bench.grant(CANARY_VA, 0x800000, 7)
    return bench


@pytest.fixture
def stalling(bench: Bench) -> Bench:
    return prepare(bench)


def with_ummu(options: str) -> Iterator[Bench]:
    with QtestMachine([f"ummu,id=ummu0,{options}", ACCEL]) as machine:
        yield prepare(Bench(machine))


def unmap(bench: Bench, va: int = VA) -> None:
    bench.matt.unmap(va, PAGE)
    bench.tlbi(va)


def map_again(bench: Bench, va: int = VA) -> None:
    bench.matt.map(va, bench.canary_pa(va), PAGE)


def step(bench: Bench, times: int = 4) -> None:
    for _ in range(times):
        bench.machine.qtest.clock_step(STEP)


def start(bench: Bench, op: str = "read", va: int = VA, queue: AccelQueue | None = None) -> None:
    one = queue or bench.queue
    one.put(**bench.dma_fields(op, va, 8 if op == "atomic" else 64))
    one.ring_bell()
    step(bench)


def stall(bench: Bench, op: str = "read", va: int = VA, queue: AccelQueue | None = None) -> EventRecord:
    """Start a job that stalls; its one event."""
    start(bench, op, va, queue)
    (event,) = bench.events()
    assert event["STALL"] == 1
    return event


def answer(bench: Bench, event: EventRecord | int, tag: int = 0, **bits: int) -> None:
    stag = event if isinstance(event, int) else event["STAG"]
    bench.cmd("CMD_STALL_RESUME", TAG=stag, TECT_TAG=tag, **bits)
    step(bench)


def outcome(bench: Bench, queue: AccelQueue | None = None) -> Completion:
    (done,) = (queue or bench.queue).completed()
    return done


def stalled(bench: Bench) -> int:
    text: str = bench.qom("pending-stalls")
    return text.count("state=waiting")


def more_queues(bench: Bench, count: int) -> list[AccelQueue]:
    """Further accelerator queues, their rings in a context of their own."""
    matt, made = Matt(bench.arena), []
    for number in range(1, count + 1):
        va = RING_VA + number * 0x100000
        sq, cq = {va: bench.arena.take(PAGE)}, {va + 0x10000: bench.arena.take(PAGE)}
        for at, pa in (sq | cq).items():
            matt.map(at, pa, PAGE)
        made.append(AccelQueue(bench.accel, bench.arena, number, sq, cq, 6, 6))
    bench.arena.write(bench.tct + 64 * 9, TCTE.pack(**bench.tcte_fields(matt), E_BIT=1))
    bench.cfgi(9)
    for queue in made:
        queue.enable(9, bind=(TID, CONTROL_TID))
    return made


# ---- what stalls -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["read", "write", "atomic"])
def test_event_of_a_stall(stalling: Bench, op: str) -> None:
    unmap(stalling)
    event = stall(stalling, op, VA + 0x128)
    assert event.fields | {"STAG": 0} == {
        **dict.fromkeys(event.fields, 0), "CODE": A_TRANSLATION, "STALL": 1, "TID": TID, "PNU": 1, "CLS": 2,
        "RNW": int(op == "read"), "IADDR": VA + 0x128,
    }  # fmt: skip
    assert event["STAG"] != 0
    assert stalling.queue.completed() == []
    text = stalling.qom("pending-stalls")
    assert f"stag=0x{event['STAG']:04x} tag=0x0000 tid=0x00001" in text and f"access={op}" in text


def unmapped(bench: Bench) -> None:
    bench.matt.unmap(VA, PAGE)


def too_large(bench: Bench) -> None:
    bench.write_tcte(TID, FBS=1, GPAS=1)
    bench.matt.map(VA, 1 << 40, PAGE)


def not_accessed(bench: Bench) -> None:
    bench.matt.map(VA, bench.canary_pa(VA), PAGE, attributes=LEAF & ~AF)


def read_only(bench: Bench) -> None:
    bench.matt.map(VA, bench.canary_pa(VA), PAGE, attributes=LEAF | AP_RO)


@pytest.mark.parametrize(("spoil", "code"), [
    (unmapped, A_TRANSLATION), (too_large, A_ADDR_SIZE), (not_accessed, ACCESS), (read_only, A_PERMISSION),
])  # fmt: skip
def test_translation_faults_stall_and_resume(
    stalling: Bench, spoil: Callable[[Bench], None], code: int
) -> None:
    spoil(stalling)
    stalling.cfgi()
    stalling.tlbi(VA)
    event = stall(stalling, "write")
    assert event.code == code
    stalling.matt.map(VA, stalling.canary_pa(VA), PAGE)
    answer(stalling, event, RETRY=1)
    assert outcome(stalling).ok and stalled(stalling) == 0
    assert stalling.read_va(VA, 8) == b"\x5a" * 8


def forbidden(bench: Bench) -> None:
    bench.mapt.revoke([bench.mapt.node(VA, n) for n in (2,)])
    bench.cmd("CMD_PLBI_OS_EID")


def closed_to_the_wire(bench: Bench) -> None:
    bench.write_tcte(TID, FBS=1, E_BIT=1)


def broken_walk(bench: Bench) -> None:
    bench.arena.write_word(bench.matt.entry(VA, 2), bench.machine.arch.hole | 3)


@pytest.mark.parametrize(("spoil", "code", "how"), [
    (forbidden, 0x13, {}), (closed_to_the_wire, 0x15, {"e": 0}), (broken_walk, 0x09, {}),
])  # fmt: skip
def test_other_refusals_never_stall(
    stalling: Bench, spoil: Callable[[Bench], None], code: int, how: dict[str, int]
) -> None:
    spoil(stalling)
    stalling.cfgi()
    stalling.tlbi(VA)
    stalling.refused(code, "read", VA, 64, **how)  # type: ignore[arg-type]
    assert stalling.qom("stalls") == 0


@pytest.mark.parametrize(("entity", "context", "event"), [
    ({}, {"FBS": 0}, True), ({"TCT_STALL_DISABLE": 1}, {"FBS": 0}, True), ({}, {"FBS": 1, "FBR": 0}, False),
])  # fmt: skip
def test_contexts_that_may_not_stall(
    bench: Bench, entity: dict[str, int], context: dict[str, int], event: bool
) -> None:
    """FBS off, stalls forbidden by the entity; and a stall that nobody would hear of would last for ever."""
    bench.write_tecte(0, **entity)
    bench.cmd("CMD_CFGI_TECT_RANGE", RANGE=31)
    prepare(bench, **context)
    unmap(bench)
    start(bench)
    done = outcome(bench)
    assert done.status == "FAULT" and done.event == A_TRANSLATION
    assert len(bench.events()) == int(event) and stalled(bench) == 0


def test_no_stall_without_event_queue(stalling: Bench) -> None:
    unmap(stalling)
    stalling.regs.write("CTRL0", 1 | 1 << 5)
    start(stalling)
    assert outcome(stalling).status == "FAULT"


@pytest.mark.parametrize(
    ("model", "fbs", "stalls"), [(1, 0, False), (2, 0, True), (2, 1, True), (0, 0, False)]
)
def test_stall_model(model: int, fbs: int, stalls: bool) -> None:
    for bench in with_ummu(f"stall-model={model}"):
        bench.write_tcte(TID, FBS=fbs)
        bench.cfgi()
        unmap(bench)
        start(bench)
        assert stalled(bench) == int(stalls)


def test_terminate_only_model_refuses_stalling_contexts() -> None:
    for bench in with_ummu("stall-model=1"):
        bench.refused(0x08, "read", VA, 64)


# ---- answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "ok"), [
    ({"RETRY": 1}, True), ({"ABORT": 1}, False), ({}, False), ({"RETRY": 1, "ABORT": 1}, False),
])  # fmt: skip
def test_answer(stalling: Bench, bits: dict[str, int], ok: bool) -> None:
    unmap(stalling)
    event = stall(stalling)
    map_again(stalling)
    answer(stalling, event, **bits)
    done = outcome(stalling)
    assert done.ok == ok and stalled(stalling) == 0
    assert (done.event, done.fault_addr) == ((0, 0) if ok else (A_TRANSLATION, VA))
    stalling.control_works()


def test_retry_without_a_page_stalls_again(stalling: Bench) -> None:
    unmap(stalling)
    stags = set()
    event = stall(stalling)
    for _ in range(20):
        stags.add(event["STAG"])
        answer(stalling, event, RETRY=1)
        (event,) = stalling.events()
        assert stalled(stalling) == 1
    assert len(stags) == 20, "a STAG names one stall"
    map_again(stalling)
    answer(stalling, event, RETRY=1)
    assert outcome(stalling).ok


@pytest.mark.parametrize("wrong", ["stag", "generation", "tag", "zero"])
def test_answer_to_nobody_is_ignored(stalling: Bench, wrong: str) -> None:
    unmap(stalling)
    event = stall(stalling)
    errors = stalling.qom("guest-errors")
    stag = {"stag": event["STAG"] ^ 1, "generation": event["STAG"] ^ 0x1000, "tag": event["STAG"], "zero": 0}[
        wrong
    ]
    answer(stalling, stag, tag=int(wrong == "tag"), ABORT=1)
    assert stalled(stalling) == 1 and stalling.qom("guest-errors") == errors + 1
    map_again(stalling)
    answer(stalling, event, RETRY=1)
    assert outcome(stalling).ok
    answer(stalling, event, ABORT=1)  # late
    assert stalling.qom("guest-errors") == errors + 2
    stalling.control_works()


def test_terminate_by_tag(stalling: Bench) -> None:
    unmap(stalling)
    stall(stalling)
    stalling.cmd("CMD_STALL_TERM", TECT_TAG=1)
    step(stalling)
    assert stalled(stalling) == 1
    stalling.cmd("CMD_STALL_TERM", TECT_TAG=0)
    step(stalling)
    assert outcome(stalling).status == "FAULT" and stalled(stalling) == 0


def test_disabling_fails_all(stalling: Bench) -> None:
    queues = [stalling.queue, *more_queues(stalling, 3)]
    unmap(stalling)
    for queue in queues:
        stall(stalling, queue=queue)
    assert stalled(stalling) == 4
    stalling.regs.write("CTRL0", 1 << 1 | 1 << 5)
    step(stalling)
    assert stalled(stalling) == 0 and stalling.qom("stall-aborts") == 4
    assert [queue.state()["BUSY"] for queue in queues] == [0] * 4


def test_queue_that_is_switched_off_forgets_its_stall(stalling: Bench) -> None:
    """V08, device half: the process is gone, its queue stops, nothing of it is left; a late answer finds nobody."""
    unmap(stalling)
    event = stall(stalling)
    stalling.queue.disable()
    assert stalling.qom("pending-stalls") == ""
    answer(stalling, event, RETRY=1)
    stalling.queue.enable(2, bind=(TID, CONTROL_TID))
    stalling.control_works()


def test_v12_context_of_a_dead_process_is_silent(stalling: Bench) -> None:
    """V12, device half: FBR off and MATTWD on; stalled jobs fail, later ones fail without a walk and a record."""
    first, second = stalling.queue, more_queues(stalling, 1)[0]
    unmap(stalling)
    stall(stalling)
    stalling.write_tcte(TID, FBS=0, FBR=0, MATTWD=1)
    stalling.cfgi()
    stalling.cmd("CMD_TLBI_OS_TID", TID=TID)
    stalling.cmd("CMD_STALL_TERM")
    stalling.sync()
    steps = stalling.qom("counters")["walk-steps-s1"]
    for _ in range(64):
        second.put(**stalling.dma_fields("write", VA + PAGE, 64))
    second.ring_bell()
    step(stalling, 20)
    assert outcome(stalling, first).status == "FAULT"
    assert {done.status for done in second.completed()} == {"FAULT"}
    assert stalling.events() == [] and stalling.qom("silent-faults") == 64
    rings = stalling.qom("counters")["walk-steps-s1"] - steps
    assert rings <= 3 * 4, "only the rings' own pages were walked"
    stalling.control_works()


# ---- limits ------------------------------------------------------------------------------------------------------


def test_v08_stall_max_makes_the_rest_wait_without_a_tag() -> None:
    for bench in with_ummu("stall-max=2"):
        queues = [bench.queue, *more_queues(bench, 3)]
        unmap(bench)
        for queue in queues:
            start(bench, queue=queue)
        events = bench.events()
        assert len(events) == 2 and stalled(bench) == 2
        assert bench.qom("responses-retry") > 0
        map_again(bench)
        for event in events:
            answer(bench, event, RETRY=1)
        step(bench, 40)
        assert all(outcome(bench, queue).ok for queue in queues)


@pytest.mark.parametrize("inject", [False, True])
def test_full_event_queue_stalls_nobody(stalling: Bench, inject: bool) -> None:
    """10.3 step 4: what cannot be announced is answered with "page fault", and the client tries again."""
    if inject:
        stalling.qom_set("inject-eventq-full", True)
    else:
        ci = stalling.regs.read("EVENT_QUE_PI") ^ 1 << 4
        stalling.regs.write("EVENT_QUE_CI", ci)
    unmap(stalling)
    start(stalling)
    assert stalled(stalling) == 0 and stalling.queue.completed() == []
    assert stalling.qom("responses-retry") > 0
    if inject:
        stalling.qom_set("inject-eventq-full", False)
    else:
        stalling.regs.write("EVENT_QUE_CI", stalling.regs.read("EVENT_QUE_PI") & 0x1F)
    step(stalling, 40)
    (event,) = stalling.events()
    map_again(stalling)
    answer(stalling, event, RETRY=1)
    assert outcome(stalling).ok


def test_time_out_ends_a_stall() -> None:
    for bench in with_ummu("stall-timeout-ns=5000000"):
        unmap(bench)
        event = stall(bench)
        step(bench, 40)
        assert stalled(bench) == 1
        step(bench, 20)
        assert outcome(bench).status == "FAULT" and bench.qom("stall-timeouts") == 1
        map_again(bench)
        answer(bench, event, RETRY=1)
        bench.control_works()


# ---- injection ---------------------------------------------------------------------------------------------------


def test_lost_answer(stalling: Bench) -> None:
    unmap(stalling)
    event = stall(stalling)
    stalling.qom_set("inject-drop-resumes", 1)
    map_again(stalling)
    answer(stalling, event, RETRY=1)
    assert stalled(stalling) == 1
    answer(stalling, event, RETRY=1)
    assert outcome(stalling).ok


def test_late_answer(stalling: Bench) -> None:
    unmap(stalling)
    event = stall(stalling)
    stalling.qom_set("inject-resume-delay-ns", 10 * STEP)
    map_again(stalling)
    answer(stalling, event, RETRY=1)
    assert stalling.queue.completed() == [] and "state=retry" in stalling.qom("pending-stalls")
    step(stalling, 12)
    assert outcome(stalling).ok and stalling.qom("pending-stalls") == ""


# ---- reset, save, restore ----------------------------------------------------------------------------------------


def test_v18_reset_empties_the_list(stalling: Bench) -> None:
    unmap(stalling)
    stall(stalling)
    stalling.machine.reset()
    assert stalling.qom("pending-stalls") == ""
    before = stalling.machine.read_memory(
        stalling.arena.used[0], stalling.arena.used[1] - stalling.arena.used[0]
    )
    step(stalling, 20)
    after = stalling.machine.read_memory(
        stalling.arena.used[0], stalling.arena.used[1] - stalling.arena.used[0]
    )
    assert before == after, "memory was written after the reset"
    prepare(Bench(stalling.machine)).control_works()


@pytest.mark.parametrize("when", ["waiting", "answered", "timeout"])
def test_v19_stalled_job_survives(when: str) -> None:
    for bench in with_ummu("stall-timeout-ns=5000000"):
        unmap(bench)
        event = stall(bench)
        map_again(bench)
        if when == "answered":
            bench.qom_set("inject-resume-delay-ns", 10 * STEP)
            answer(bench, event, RETRY=1)
        text = bench.qom("pending-stalls")
        bench.machine.save_and_load()
        assert bench.qom("pending-stalls") == text
        if when == "waiting":
            answer(bench, event, RETRY=1)
        step(bench, 60)
        done = outcome(bench)
        assert done.ok == (when != "timeout") and bench.qom("stall-timeouts") == int(when == "timeout")
        bench.control_works()
