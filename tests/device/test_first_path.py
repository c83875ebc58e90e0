# SPDX-License-Identifier: GPL-2.0-or-later
"""The first thin path: probe handshake, one permitted access, and refusals of every kind through the accelerator."""

from __future__ import annotations

import pytest
from ummulab.qtest.accel import Operand
from ummulab.qtest.bench import CANARY_SIZE, CANARY_VA, CONTROL_TID, CONTROL_VA, TID, Bench
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.ummu import SPEC, Registers

TOKEN = 0xC0FFEE11


def test_probe_handshake(machine: QtestMachine) -> None:
    """Capabilities that probing needs, and every poll of the enable sequence answered at once."""
    regs = Registers(machine.function(0x554D))
    cap1, cap2 = regs.fields("CAP1"), regs.fields("CAP2")
    assert cap1["MCMDQ_SUPPORT"] == cap1["EVENTQ_SUPPORT"] == 1
    assert cap2["TRANS_FORM"] in (2, 3) and (cap2["S1_TRANS"] or cap2["S2_TRANS"])
    assert regs.read("CTRL0") == 0 and regs.read("CTRL0_ACK") == 0
    regs.write("GBPA", 1 << 15 | 1 << 31)
    assert regs.fields("GBPA") == {"ABORT": 1, "UPDATE": 0}
    regs.write("UMMU_USER_CONFIG2", 1 << 3)
    assert regs.fields("UMMU_USER_CONFIG2")["MCMDQ_MEM_INITING"] == 0
    regs.write("MCMDQ_PI", 1 << 31, SPEC.banks["MCMDQ"].base)
    assert regs.fields("MCMDQ_CI", SPEC.banks["MCMDQ"].base)["EN_RESP"] == 1
    for value in (1 << 1, 1 << 1 | 1 << 5, 1 << 1 | 1 << 5 | 1):
        regs.write("CTRL0", value)
        assert regs.read("CTRL0_ACK") == value


def test_identity_of_both_functions(machine: QtestMachine) -> None:
    """Vendor-specific capability of the UMMU, magic and EID of the accelerator."""
    ummu, accel = machine.function(0x554D), machine.function(0x5541)
    at = ummu.capability(0x09)
    assert ummu.read_config(at + 2, 1) == 0x18 and ummu.read_config(at + 3, 1) == 0x55
    assert ummu.msix_vectors() == 2
    assert accel.qtest.read(accel.bars[0], 4).to_bytes(4, "little") == b"UACC"
    assert accel.qtest.read(accel.bars[0] + 0x18, 8) == 0x100
    assert accel.msix_vectors() == accel.qtest.read(accel.bars[0] + 8, 4) & 0xFF


def test_permitted_copy(bench: Bench) -> None:
    """Data arrives, unaligned and across pages; nothing is recorded."""
    source, target, length = CANARY_VA + 0x123, CANARY_VA + 0x5456, 0x2345
    bench.grant(CANARY_VA, 0x3000, 2, token=TOKEN)
    bench.grant(CANARY_VA + 0x5000, 0x3000, 1)
    expected = bench.read_va(source, length)
    done = bench.copy(Operand(source, token=TOKEN), Operand(target), length)
    assert (done.status, done.bytes_done, done.operand) == ("OK", length, 15)
    assert bench.read_va(target, length) == expected
    assert bench.events() == [] and bench.interrupt(0) == 0


def test_refused_without_a_grant(bench: Bench) -> None:
    """No MAPT node: 0x13."""
    bench.refused(0x13, "read", CANARY_VA, 8)
    bench.refused(0x13, "write", CANARY_VA + CANARY_SIZE - 8, 8)


@pytest.mark.parametrize("token", [None, 0, TOKEN ^ 1, 0xFFFFFFFF])
def test_refused_wrong_token(bench: Bench, token: int | None) -> None:
    """A node that wants a token refuses another one and a request without one."""
    bench.grant(CANARY_VA, 0x1000, 7, token=TOKEN)
    bench.refused(0x13, "read", CANARY_VA, 8, token=token)
    assert bench.dma("read", CANARY_VA, 8, token=TOKEN).ok


@pytest.mark.parametrize(
    ("permission", "allowed"),
    [
        (1, {"write"}),
        (2, {"read"}),
        (3, {"read", "write"}),
        (4, {"atomic"}),
        (7, {"read", "write", "atomic"}),
    ],
)
def test_access_types(bench: Bench, permission: int, allowed: set[str]) -> None:
    """Each permission bit stands for itself."""
    bench.grant(CANARY_VA, 0x1000, permission)
    for op in ("read", "write", "atomic"):
        if op in allowed:
            assert bench.dma(op, CANARY_VA, 8).ok
        else:
            bench.refused(0x13, op, CANARY_VA, 8)


def test_refused_beyond_the_range(bench: Bench) -> None:
    """Byte-exact limits, and how far a crossing access got."""
    first, length = CANARY_VA + 0x1000, 0x2345
    bench.grant(first, length, 3)
    assert bench.dma("read", first, length).ok
    bench.refused(0x13, "read", first - 1, 1)
    bench.refused(0x13, "read", first - 1, 8)
    bench.refused(0x13, "read", first + length, 1)
    bench.refused(0x13, "read", first + length - 1, 2, done=1)
    bench.refused(0x13, "write", first, length + 1, done=length)


def test_refused_after_revoke(bench: Bench) -> None:
    """A cached right is gone after PLBI and SYNC."""
    nodes = bench.grant(CANARY_VA, 0x1000, 3)
    assert bench.dma("read", CANARY_VA, 64).ok
    bench.revoke(nodes, CANARY_VA, 0x1000)
    bench.refused(0x13, "read", CANARY_VA, 64)


def test_refused_from_the_wire(bench: Bench) -> None:
    """E_bit of a node, and of a context, keep requests from the wire out."""
    bench.grant(CANARY_VA, 0x1000, 3, e_bit=1)
    bench.refused(0x15, "read", CANARY_VA, 8, e=0)
    assert bench.dma("read", CANARY_VA, 8, e=1).ok
    bench.refused(0x15, "read", CONTROL_VA, 8, tid=CONTROL_TID, e=0)


def test_refused_contexts(bench: Bench) -> None:
    """TID beyond the table, empty context, entity switched off: codes 0x06, 0x08, 0x04."""
    for tid in (5, 64, 0xFFFFF):
        assert bench.queue.bind(tid)
    bench.refused(0x06, "read", CANARY_VA, 8, tid=64)
    bench.refused(0x06, "read", CANARY_VA, 8, tid=0xFFFFF)
    bench.refused(0x08, "read", CANARY_VA, 8, tid=5)


def test_refused_by_the_page_table(bench: Bench) -> None:
    """MAPT permits, MATT does not: 0x0A without a mapping, 0x0D against a read-only page."""
    hole = CANARY_VA + CANARY_SIZE
    bench.grant(CANARY_VA, CANARY_SIZE + 0x1000, 3)
    bench.refused(0x0A, "read", hole, 8)
    bench.refused(0x0A, "write", hole - 0x10, 0x20, done=0x10)
    slot = bench.matt.entry(CANARY_VA, 3)
    bench.arena.write_word(slot, bench.arena.read_word(slot) | 1 << 7)
    bench.refused(0x0D, "write", CANARY_VA, 8)
    assert bench.dma("read", CANARY_VA, 8).ok


def test_disabled_unit_with_abort(bench: Bench) -> None:
    """UMMU_EN = 0 and GBPA.ABORT = 1: errors without events, ring accesses included."""
    bench.regs.write("CTRL0", 1 << 1)
    bench.regs.write("GBPA", 1 << 15 | 1 << 31)
    bench.queue.put(**bench.dma_fields("read", CANARY_VA, 8))
    bench.queue.ring_bell()
    bench.machine.qtest.clock_step(1000)
    state = bench.queue.state()
    assert (state["STATE"], state["EVENT"]) == (2, 0)
    assert bench.queue.error_address() == bench.queue.sq_va
    assert bench.events() == []


def test_event_queue_interrupt(bench: Bench) -> None:
    """One record, one message with the data of vector 0."""
    done = bench.dma("read", CANARY_VA, 8, tid=TID)
    assert done.event == 0x13
    assert bench.interrupt(0) == 0xE0
    assert [e.code for e in bench.events()] == [0x13]
