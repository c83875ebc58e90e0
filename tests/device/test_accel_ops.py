# SPDX-License-Identifier: GPL-2.0-or-later
"""Every operation of the accelerator: results, partial completion, refused descriptors."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ummulab.qtest.accel import ATOMIC, DTYPE, OP, Completion, Operand
from ummulab.qtest.bench import CANARY_SIZE, CANARY_VA, TID, Bench

A, B, C = CANARY_VA + 0x10000, CANARY_VA + 0x30000, CANARY_VA + 0x50000
EQUAL = 2**64 - 1
LENGTHS = [0, 1, 7, 8, 9, 4095, 4096, 4097, 0x5001]


@pytest.fixture
def open_bench(bench: Bench) -> Bench:
    """BASE with all canary memory permitted."""
    bench.grant(CANARY_VA, CANARY_SIZE, 7)
    return bench


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit from its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_capability_names_all_operations(open_bench: Bench) -> None:
    """CAP1.OPS is exactly the set of the layout file."""
    assert open_bench.accel.read("CAP1") == sum(1 << code for code in OP.values())


@pytest.mark.parametrize("op", ["NOP", "FENCE"])
def test_no_operands(open_bench: Bench, op: str) -> None:
    """NOP and FENCE complete and touch nothing."""
    before = open_bench.canary_snapshot()
    done = open_bench.queue.run(OPCODE=OP[op], LENGTH=123)
    assert (done.status, done.bytes_done, done.result) == ("OK", 0, 0)
    assert open_bench.canary_snapshot() == before


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shift", [(0, 0), (1, 3), (0xFFF, 0xFFE)])
def test_copy(open_bench: Bench, length: int, shift: tuple[int, int]) -> None:
    """Any alignment and length; the bytes around the target stay."""
    source, target = A + shift[0], B + shift[1]
    expected = (
        open_bench.read_va(target - 16, 16)
        + open_bench.read_va(source, length)
        + open_bench.read_va(target + length, 16)
    )
    done = open_bench.copy(Operand(source), Operand(target), length)
    assert (done.status, done.bytes_done) == ("OK", length)
    assert open_bench.read_va(target - 16, length + 32) == expected


@pytest.mark.parametrize("gap", [1, 3, 8, 4096, 5000, -1, -4096, 0])
def test_copy_overlap_is_ascending(open_bench: Bench, gap: int) -> None:
    """Overlap behaves as if bytes were copied one by one in ascending order."""
    length = 0x2100
    source = A + 0x4000
    image = bytearray(open_bench.read_va(A, 0x10000))
    for i in range(length):
        image[0x4000 + gap + i] = image[0x4000 + i]
    done = open_bench.copy(Operand(source), Operand(source + gap), length)
    assert done.ok
    assert open_bench.read_va(A, 0x10000) == image


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("at", [0, 5, 0xFFB])
def test_fill(open_bench: Bench, length: int, at: int) -> None:
    """The pattern starts at the first byte and does not restart at pages."""
    pattern = 0x8877665544332211
    done = open_bench.dma("write", A + at, length, pattern=pattern)
    assert (done.status, done.bytes_done) == ("OK", length)
    expected = (struct.pack("<Q", pattern) * (length // 8 + 1))[:length]
    assert open_bench.read_va(A + at, length) == expected


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("at", [0, 3])
def test_crc32c(open_bench: Bench, length: int, at: int) -> None:
    """Against the definition, and the published check value."""
    done = open_bench.dma("read", A + at, length)
    assert (done.result, done.bytes_done) == (crc32c(open_bench.read_va(A + at, length)), length)
    open_bench.write_va(A, b"123456789")
    assert open_bench.dma("read", A, 9).result == 0xE3069283


@pytest.mark.parametrize("differ", [None, 0, 1, 4095, 4096, 0x2FFF])
def test_compare(open_bench: Bench, differ: int | None) -> None:
    """First differing offset, all ones when equal."""
    data = bytearray(open_bench.read_va(A, 0x3000))
    if differ is not None:
        data[differ] ^= 0x80
    open_bench.write_va(B + 5, bytes(data))
    fields = {"OPCODE": OP["COMPARE"], "LENGTH": 0x3000, **Operand(A).fields(0), **Operand(B + 5).fields(1)}
    done = open_bench.queue.run(**fields)
    assert done.ok
    assert done.result == (EQUAL if differ is None else differ)
    assert done.bytes_done == (0x3000 if differ is None else differ)


@pytest.mark.parametrize(("dtype", "kind"), [("F32", "<f4"), ("I32", "<i4"), ("U32", "<u4"), ("U64", "<u8")])
def test_add(open_bench: Bench, dtype: str, kind: str) -> None:
    """Accumulate into operand 1, wrapping for integers, IEEE for floats."""
    rng = np.random.default_rng(7)
    count = 3000
    raw = [rng.integers(0, 256, count * np.dtype(kind).itemsize, dtype=np.uint8) for _ in range(2)]
    if dtype == "F32":
        raw = [rng.standard_normal(count).astype(kind).view(np.uint8) for _ in range(2)]
    x, y = (r.view(kind) for r in raw)
    open_bench.write_va(A, x.tobytes())
    open_bench.write_va(B, y.tobytes())
    length = x.nbytes
    done = open_bench.queue.run(
        OPCODE=OP["ADD"], DTYPE=DTYPE[dtype], LENGTH=length, **Operand(A).fields(0), **Operand(B).fields(1)
    )
    assert (done.status, done.bytes_done) == ("OK", length)
    with np.errstate(over="ignore"):
        assert open_bench.read_va(B, length) == (x + y).astype(kind).tobytes()


def test_add_needs_both_rights_on_the_target(bench: Bench) -> None:
    """A write-only target cannot be accumulated into."""
    bench.grant(A, 0x1000, 2)
    bench.grant(B, 0x1000, 1)
    done = bench.queue.run(
        OPCODE=OP["ADD"], DTYPE=DTYPE["I32"], LENGTH=16, **Operand(A).fields(0), **Operand(B).fields(1)
    )
    assert (done.status, done.event, done.operand, done.bytes_done) == ("FAULT", 0x13, 1, 0)
    (event,) = bench.events()
    assert event["RNW"] == 1 and event["IADDR"] == B


def gemm(bench: Bench, dtype: str, m: int, n: int, k: int) -> Completion:
    """One GEMM over A, B, C."""
    return bench.queue.run(
        OPCODE=OP["GEMM"], DTYPE=DTYPE[dtype], M=m, N=n, K=k,
        **Operand(A).fields(0), **Operand(B).fields(1), **Operand(C).fields(2),
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (8, 64, 16), (5, 65, 3), (2, 130, 33), (4, 4, 0)])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_gemm(open_bench: Bench, shape: tuple[int, int, int], dtype: str) -> None:
    """Bit-exact: products summed in double in ascending k, rounded to single once."""
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    a, b = rng.standard_normal((m, k), "f4"), rng.standard_normal((k, n), "f4")
    if dtype == "BF16":
        a, b = (
            (np.ascontiguousarray(x).view("u4") & np.uint32(0xFFFF0000)).view("f4").reshape(x.shape)
            for x in (a, b)
        )
        raw = [(x.view("u4") >> np.uint32(16)).astype("<u2").tobytes() for x in (a, b)]
    else:
        raw = [a.tobytes(), b.tobytes()]
    open_bench.write_va(A, raw[0])
    open_bench.write_va(B, raw[1])
    total = np.zeros((m, n), "f8")
    for i in range(k):
        total += np.outer(a[:, i].astype("f8"), b[i].astype("f8"))
    before = open_bench.read_va(C + m * n * 4, 64)
    done = gemm(open_bench, dtype, m, n, k)
    assert (done.status, done.bytes_done) == ("OK", m * n * 4)
    assert open_bench.read_va(C, m * n * 4) == total.astype("<f4").tobytes()
    assert open_bench.read_va(C + m * n * 4, 64) == before


def test_gemm_stops_where_the_target_ends(bench: Bench) -> None:
    """A refusal inside C: elements before it are there, none after."""
    bench.grant(A, 0x1000, 2)
    bench.grant(B, 0x1000, 2)
    bench.grant(C, 10 * 4, 1)
    bench.write_va(A, np.ones(4, "f4").tobytes())
    bench.write_va(B, np.arange(16, dtype="f4").tobytes())
    done = gemm(bench, "F32", 4, 16, 1)
    assert (done.status, done.event, done.operand) == ("FAULT", 0x13, 2)
    assert (done.bytes_done, done.fault_addr) == (40, C + 40)
    assert bench.read_va(C, 40) == np.arange(10, dtype="<f4").tobytes()


@pytest.mark.parametrize(("dtype", "kind"), [("BF16", "<u2"), ("U32", "<u4"), ("F32", "<u4"), ("U64", "<u8")])
def test_gather(open_bench: Bench, dtype: str, kind: str) -> None:
    """dst[i] = table[index[i]] for all element sizes."""
    size = np.dtype(kind).itemsize
    table = np.frombuffer(open_bench.read_va(A, 2000 * size), kind)
    index = np.random.default_rng(3).integers(0, 2000, 1500).astype("<u4")
    open_bench.write_va(B, index.tobytes())
    done = open_bench.queue.run(
        OPCODE=OP["GATHER"], DTYPE=DTYPE[dtype], LENGTH=len(index),
        **Operand(A).fields(0), **Operand(B).fields(1), **Operand(C).fields(2),
    )  # fmt: skip
    assert (done.status, done.bytes_done) == ("OK", len(index))
    assert open_bench.read_va(C, len(index) * size) == table[index].tobytes()


def test_gather_reports_the_element(bench: Bench) -> None:
    """One index beyond the permitted table: operand 0, its address, elements done before it."""
    bench.grant(A, 0x1000, 2)
    bench.grant(B, 0x1000, 2)
    bench.grant(C, 0x1000, 1)
    bench.write_va(B, struct.pack("<4I", 0, 5, 0x400, 1))
    done = bench.queue.run(
        OPCODE=OP["GATHER"], DTYPE=DTYPE["U32"], LENGTH=4,
        **Operand(A).fields(0), **Operand(B).fields(1), **Operand(C).fields(2),
    )  # fmt: skip
    assert (done.status, done.event, done.operand) == ("FAULT", 0x13, 0)
    assert (done.bytes_done, done.fault_addr) == (2, A + 0x1000)


def atomic(bench: Bench, subop: str, size: int, va: int, value: int, compare: int = 0) -> Completion:
    """One ATOMIC."""
    return bench.queue.run(
        OPCODE=OP["ATOMIC"], SUBOP=ATOMIC[subop], LENGTH=size, VALUE=value, COMPARE=compare,
        **Operand(va).fields(0),
    )  # fmt: skip


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize(
    ("subop", "expected"),
    [
        ("ADD", lambda old, value: old + value),
        ("SWAP", lambda old, value: value),
        ("AND", lambda old, value: old & value),
        ("OR", lambda old, value: old | value),
        ("XOR", lambda old, value: old ^ value),
    ],
)  # fmt: skip
def test_atomic(open_bench: Bench, subop: str, expected, size: int) -> None:  # type: ignore[no-untyped-def]
    """Old value returned, new value stored, neighbours untouched."""
    mask = 2 ** (8 * size) - 1
    value = 0xFEDCBA9876543210
    va = A + 0x18
    old = int.from_bytes(open_bench.read_va(va, size), "little")
    around = open_bench.read_va(va - 8, 8), open_bench.read_va(va + size, 8)
    done = atomic(open_bench, subop, size, va, value)
    assert (done.status, done.result, done.bytes_done) == ("OK", old, size)
    assert int.from_bytes(open_bench.read_va(va, size), "little") == expected(old, value) & mask
    assert (open_bench.read_va(va - 8, 8), open_bench.read_va(va + size, 8)) == around


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("match", [True, False])
def test_atomic_cas(open_bench: Bench, size: int, match: bool) -> None:
    """Stores only if the expected value is there."""
    old = int.from_bytes(open_bench.read_va(A, size), "little")
    done = atomic(open_bench, "CAS", size, A, 0x55, old if match else old ^ 1)
    assert (done.status, done.result) == ("OK", old)
    assert int.from_bytes(open_bench.read_va(A, size), "little") == (0x55 if match else old)


BAD_DESC = {
    "flags": {"OPCODE": OP["NOP"], "FLAGS": 0x80},
    "atomic size 2": {"OPCODE": OP["ATOMIC"], "LENGTH": 2, **Operand(A).fields(0)},
    "atomic no size": {"OPCODE": OP["ATOMIC"], **Operand(A).fields(0)},
    "atomic float": {"OPCODE": OP["ATOMIC"], "LENGTH": 4, "DTYPE": DTYPE["F32"], **Operand(A).fields(0)},
    "atomic sub-op": {"OPCODE": OP["ATOMIC"], "LENGTH": 4, "SUBOP": 6, **Operand(A).fields(0)},
    "atomic unaligned": {"OPCODE": OP["ATOMIC"], "LENGTH": 8, **Operand(A + 4).fields(0)},
    "add no type": {"OPCODE": OP["ADD"], "LENGTH": 8, **Operand(A).fields(0), **Operand(B).fields(1)},
    "add length": {"OPCODE": OP["ADD"], "LENGTH": 7, "DTYPE": 1, **Operand(A).fields(0), **Operand(B).fields(1)},
    "add unaligned": {"OPCODE": OP["ADD"], "LENGTH": 8, "DTYPE": 1, **Operand(A + 2).fields(0),
                      **Operand(B).fields(1)},
    "gemm type": {"OPCODE": OP["GEMM"], "DTYPE": DTYPE["I32"], "M": 1, "N": 1, "K": 1, **Operand(A).fields(0),
                  **Operand(B).fields(1), **Operand(C).fields(2)},
    "gather type": {"OPCODE": OP["GATHER"], "DTYPE": 0, "LENGTH": 1, **Operand(A).fields(0),
                    **Operand(B).fields(1), **Operand(C).fields(2)},
    "gather count": {"OPCODE": OP["GATHER"], "DTYPE": DTYPE["U64"], "LENGTH": 2**62, **Operand(A).fields(0),
                     **Operand(B).fields(1), **Operand(C).fields(2)},
    "range wraps": {"OPCODE": OP["CRC32C"], "LENGTH": 0x2000, **Operand(2**64 - 0x1000).fields(0)},
    "dtype": {"OPCODE": OP["ADD"], "LENGTH": 8, "DTYPE": 0xFF, **Operand(A).fields(0), **Operand(B).fields(1)},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_DESC)
def test_bad_descriptor(open_bench: Bench, name: str) -> None:
    """A descriptor that makes no sense is refused before any access."""
    before = open_bench.canary_snapshot()
    done = open_bench.queue.run(**BAD_DESC[name])
    assert (done.status, done.bytes_done, done.event) == ("BAD_DESC", 0, 0)
    assert open_bench.canary_snapshot() == before and open_bench.events() == []
    open_bench.control_works()


@pytest.mark.parametrize("opcode", [10, 11, 31, 32, 128, 255])
def test_bad_opcode(open_bench: Bench, opcode: int) -> None:
    """Unknown opcodes complete with BAD_OP."""
    assert open_bench.queue.run(OPCODE=opcode, LENGTH=64).status == "BAD_OP"
    open_bench.control_works()


@pytest.mark.parametrize("bit", [20, 21, 22, 23, *range(26, 32)])
def test_reserved_operand_bits(open_bench: Bench, bit: int) -> None:
    """Reserved bits of a used operand are refused."""
    raw = bytearray(64)
    raw[0] = OP["CRC32C"]
    raw[8:16] = (64).to_bytes(8, "little")
    raw[16:24] = A.to_bytes(8, "little")
    raw[24:32] = (TID | 1 << bit).to_bytes(8, "little")
    open_bench.queue.put(bytes(raw))
    open_bench.queue.ring_bell()
    (done,) = open_bench.queue.wait()
    assert (done.status, done.operand) == ("BAD_DESC", 0)


def test_not_bound(open_bench: Bench) -> None:
    """A TID the queue may not name is refused before the UMMU sees it; binding is exact."""
    assert open_bench.queue.run(**open_bench.dma_fields("read", A, 8, tid=9)).status == "NOT_BOUND"
    assert open_bench.queue.run(**open_bench.dma_fields("write", A, 8, tid=0x10001)).operand == 1
    open_bench.queue.bind(TID, add=False)
    assert open_bench.queue.run(**open_bench.dma_fields("read", A, 8)).status == "NOT_BOUND"
    assert open_bench.events() == []
    open_bench.queue.bind(TID)
    assert open_bench.dma("read", A, 8).ok


def test_device_registers_are_no_memory(open_bench: Bench) -> None:
    """A page that maps a register BAR, or nothing at all, is a bus error and is not accessed."""
    target = CANARY_VA + CANARY_SIZE
    open_bench.grant(target, 0x3000, 7)
    open_bench.matt.map(target, open_bench.accel.function.bars[0] + 0x1000, 0x1000)
    open_bench.matt.map(target + 0x1000, open_bench.ummu.bars[0], 0x1000)
    open_bench.matt.map(target + 0x2000, open_bench.machine.arch.hole & 0xFFFFFFFFF000, 0x1000)
    for at in (target, target + 0x1000, target + 0x2000):
        for op in ("read", "write", "atomic"):
            done = open_bench.dma(op, at, 8)
            assert (done.status, done.fault_addr, done.bytes_done) == ("BUS_ERROR", at, 0)
    assert open_bench.queue.state()["STATE"] == 1
    open_bench.control_works()


def test_faults_name_the_operand(bench: Bench) -> None:
    """COPY: which side was refused, and how far it got."""
    bench.grant(A, 0x1800, 2)
    bench.grant(B, 0x1000, 1)
    done = bench.copy(Operand(A), Operand(B), 0x1800)
    assert (done.status, done.operand, done.bytes_done, done.fault_addr) == ("FAULT", 1, 0x1000, B + 0x1000)
    done = bench.copy(Operand(A + 0x1000), Operand(B), 0x1000)
    assert (done.status, done.operand, done.bytes_done, done.fault_addr) == ("FAULT", 0, 0x800, A + 0x1800)


def test_byte_counters(open_bench: Bench) -> None:
    """BYTES_READ, BYTES_WRITTEN and JOBS_DONE count operands and completions exactly."""
    open_bench.copy(Operand(A), Operand(B), 5000)
    open_bench.dma("write", A, 77)
    open_bench.dma("atomic", A, 8)
    names = ("BYTES_READ", "BYTES_WRITTEN", "JOBS_DONE")
    assert [open_bench.accel.read(n) for n in names] == [5008, 5085, 3]
