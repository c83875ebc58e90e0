# SPDX-License-Identifier: GPL-2.0-or-later
"""A stall that cannot be announced: the accelerator tries again, a bounded number of times."""

from __future__ import annotations

import pytest
from ummulab.qtest.bench import CANARY_SIZE, CANARY_VA, TID, Bench
from ummulab.qtest.memory import PAGE

LIMIT = 5
DEVICES = ("ummu,id=ummu0,strict=on", f"ummu-accel,id=accel0,ummu=ummu0,eid=0x100,retry-limit={LIMIT}")
VA = CANARY_VA + 0x5000
STEP = 100_000


@pytest.fixture
def full(bench: Bench) -> Bench:
    """TID 1 stalls on a page that is missing, and the event queue is full of refusals."""
    bench.write_tcte(TID, FBS=1)
    bench.cfgi()
    bench.grant(CANARY_VA, CANARY_SIZE // 2, 7)
    bench.matt.unmap(VA, PAGE)
    bench.tlbi(VA)
    for _ in range(1 << bench.eventq.log2size):
        assert bench.dma("read", CANARY_VA + CANARY_SIZE // 2, 8).status == "FAULT"
    assert bench.eventq.pending() == 1 << bench.eventq.log2size
    return bench


def start(bench: Bench) -> None:
    """A read of the missing page."""
    bench.queue.put(**bench.dma_fields("read", VA, 64))
    bench.queue.ring_bell()


def retries(bench: Bench) -> int:
    """Tries so far of the accelerator."""
    return int(bench.qom("retries", "accel0"))


def test_no_room_for_ever_ends_in_a_timeout(full: Bench) -> None:
    before = retries(full)
    start(full)
    (done,) = full.queue.wait(1)
    assert (done.status, done.bytes_done, done.fault_addr) == ("TIMEOUT", 0, VA)
    assert retries(full) - before == LIMIT + 1, "the last one is the one that gives up"
    assert full.qom("pending-stalls") == ""
    assert all(not event["STALL"] for event in full.events()), "nothing was announced"


def test_the_queue_goes_on_after_a_timeout(full: Bench) -> None:
    start(full)
    assert full.queue.wait(1)[0].status == "TIMEOUT"
    full.events()
    assert full.dma("read", CANARY_VA, 64).ok


def test_room_in_time_makes_a_stall(full: Bench) -> None:
    """And the count of tries begins anew for the next page."""
    before = retries(full)
    start(full)
    full.machine.qtest.clock_step(1)
    full.events()
    full.machine.qtest.clock_step(STEP)
    assert 0 < retries(full) - before <= LIMIT
    (event,) = full.events()
    assert event["STALL"] and event["IADDR"] & ~(PAGE - 1) == VA
    full.matt.map(VA, full.canary_pa(VA), PAGE)
    full.cmd("CMD_STALL_RESUME", TAG=event["STAG"], RETRY=1)
    full.sync()
    (done,) = full.queue.wait(1)
    assert done.ok and done.bytes_done == 64
