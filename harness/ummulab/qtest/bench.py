# SPDX-License-Identifier: GPL-2.0-or-later
"""The common start of most device tests: one UMMU, one accelerator behind it, tables and queues running.

This is the BASE of the recorded cases: TECTE 0 with 64 contexts; TID 1 with a MATT over 8 MiB of canary
pages and a MAPT that permits nothing yet; MCMDQ 0 with 64 entries, EVENTQ with 16.  Beside it, so that the
accelerator's own ring accesses disturb no case: TID 2 (rings) and TID 3 (a control page, always permitted).
"""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any

from ummulab.qtest import ummu as ummu_driver
from ummulab.qtest.accel import DTYPE, OP, Accel, AccelQueue, Completion, Operand
from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE, Arena
from ummulab.qtest.tables import LEAF, Mapt, Matt, address_field
from ummulab.qtest.ummu import CommandQueue, EventQueue, EventRecord, KvTable, Registers

SPEC = ummu_driver.SPEC
TECTE, TCTE = SPEC.structures["TECTE"], SPEC.structures["TCTE"]

UMMU_DEVICE, ACCEL_DEVICE = 0x554D, 0x5541
CANARY_VA, CANARY_SIZE = 0x10000000, 0x800000
RING_VA, CONTROL_VA = 0x20000000, 0x30000000
TID, RING_TID, CONTROL_TID = 1, 2, 3
TCT_LOG2 = 6
_CTRL1 = 0x9D75  # the driver's value: key-value TECT, E2H, cacheable
_UMMU_EN, _EVENTQ_EN, _MAPT_EN = 1 << 0, 1 << 1, 1 << 5
SQ_LOG2, CQ_LOG2 = 6, 6

#: QOM path of the function ``id`` given on the command line
PERIPHERAL = "/machine/peripheral/{}"


class Bench:
    """A machine with BASE set up.  Every part can be changed by the test before or after :meth:`enable`."""

    def __init__(
        self,
        machine: QtestMachine,
        *,
        eid: int = 0x100,
        tecte: dict[str, int] | None = None,
        tcte: dict[str, Any] | None = None,
        ctrl1: int = _CTRL1,
        enable: bool = True,
    ) -> None:
        self.machine = machine
        self.arena = Arena(machine)
        self.eid = eid
        self.ctrl1 = ctrl1
        self.ummu = machine.function(UMMU_DEVICE)
        self.regs = Registers(self.ummu)
        self.accel = Accel(machine.function(ACCEL_DEVICE))
        self.usi = self.arena.take(PAGE)
        self.tect = self.arena.take(64 << 2)
        self.tct = self.arena.take(64 << TCT_LOG2)
        self.mcmdq = CommandQueue(self.regs, self.arena)
        self.eventq = EventQueue(self.regs, self.arena)
        self.kv = KvTable(self.arena)
        self.matt = Matt(self.arena)
        self.mapt = Mapt(self.arena)
        self._canary()
        self.write_tecte(0, **(tecte or {}))
        self.write_tcte(TID, **(tcte or {}))
        self.queue = self._accel_queue()
        if enable:
            self.enable()

    # ---- memory ------------------------------------------------------------------------------

    def _canary(self) -> None:
        """8 MiB of pages with known contents; neighbours in VA are never neighbours in PA."""
        self.canary = self.arena.take(CANARY_SIZE, 2 << 20, zero=False)
        self.fill_canary()
        for va, leaves in _canary_leaves(self.canary):
            self.arena.write(self.matt.entry(va, 3), leaves)

    def fill_canary(self) -> None:
        """(Re)write the known contents: every 8 bytes hold their own VA times an odd constant."""
        self.arena.write(self.canary, _canary_image())

    @staticmethod
    def canary_offset(va: int) -> int:
        """Offset of a canary VA in the canary memory: pages are swapped in pairs."""
        return (va - CANARY_VA) ^ PAGE

    def canary_pa(self, va: int) -> int:
        """Physical address of a canary VA."""
        return self.canary + self.canary_offset(va)

    def read_va(self, va: int, length: int) -> bytes:
        """Canary memory as TID 1 sees it."""
        return b"".join(self.arena.read(self.canary_pa(at), n) for at, n in _pieces(va, length))

    def write_va(self, va: int, data: bytes) -> None:
        """Write canary memory as TID 1 sees it."""
        for at, n in _pieces(va, len(data)):
            self.arena.write(self.canary_pa(at), data[at - va : at - va + n])

    def canary_snapshot(self) -> bytes:
        """All canary memory, in physical order."""
        return self.arena.read(self.canary, CANARY_SIZE)

    # ---- tables ------------------------------------------------------------------------------

    def write_tecte(self, tag: int, **changes: int) -> None:
        """Write a TECTE: BASE values with ``changes``."""
        fields = {
            "V": 1,
            "ST_MODE": 5,
            "PRIV_SEL": 3,
            "MAPT_EN": 1,
            "TCT_FMT": 0,
            "TCT_NUM": TCT_LOG2,
            "TCT_PTR": address_field(TECTE, "TCT_PTR", self.tct),
        } | changes
        self.arena.write(self.tect + 64 * tag, TECTE.pack(**fields))

    def tcte_fields(self, matt: Matt | None = None, mapt: Mapt | None = None) -> dict[str, int]:
        """BASE values of a TCTE over a MATT and, if given, a MAPT."""
        fields = {
            "V": 1,
            "AA64": 1,
            "GPAS": 5,
            "SZ": 16,
            "TGS": 0,
            "FBR": 1,
            "FBA": 1,
            "ASH": 1,
            "MATTBA": address_field(TCTE, "MATTBA", (matt or self.matt).root),
        }
        if mapt:
            fields |= {
                "MAPT_EN": 1,
                "MAPT_MODE": 1,
                "RTGS": 1,
                "MAPT_BB_SZ": (mapt.block_bytes >> 12).bit_length() - 1,
                "MAPT_BBA": address_field(TCTE, "MAPT_BBA", mapt.root),
                "MAPT_BTA": address_field(TCTE, "MAPT_BTA", mapt.table),
                "MAPT_BT_SZ": 0,
            }
        return fields

    def write_tcte(
        self, tid: int, *, matt: Matt | None = None, mapt: Mapt | None = None, **changes: int
    ) -> None:
        """Write a TCTE: BASE values (MAPT of BASE unless another is given) with ``changes``."""
        fields = self.tcte_fields(matt, mapt or self.mapt) | changes
        self.arena.write(self.tct + 64 * tid, TCTE.pack(**fields))

    def _plain_context(self, tid: int, pages: dict[int, int]) -> None:
        """A context without a MAPT, closed to requests from the wire, over the given pages."""
        matt = Matt(self.arena)
        for va, pa in pages.items():
            matt.map(va, pa, PAGE)
        self.arena.write(self.tct + 64 * tid, TCTE.pack(**self.tcte_fields(matt), E_BIT=1))

    def _accel_queue(self) -> AccelQueue:
        sq = {RING_VA: self.arena.take(PAGE)}
        cq = {RING_VA + 0x10000: self.arena.take(PAGE)}
        self._plain_context(RING_TID, sq | cq)
        self.control = self.arena.take(PAGE)
        self._plain_context(CONTROL_TID, {CONTROL_VA: self.control})
        return AccelQueue(self.accel, self.arena, 0, sq, cq, SQ_LOG2, CQ_LOG2)

    # ---- bring-up ----------------------------------------------------------------------------

    def enable(self) -> None:
        """Bring both devices up in the driver's order (hardware text 3.2)."""
        line = self.regs.line
        tect = ummu_driver.register_address("TECT_BASE", "ADDR", self.tect)
        self.machine.qtest.write_many(
            [line("CTRL0", 0), line("CTRL1", self.ctrl1), line("TECT_BASE", tect), line("TECT_BASE_CFG", 2)]
            + self.kv.enable_writes(self.regs)
            + self.mcmdq.enable_writes()
            + self.eventq.enable_writes()
            + [line("CTRL0", _EVENTQ_EN), line("CTRL0", _EVENTQ_EN | _MAPT_EN), line("GLB_INT_EN", 3)]
        )
        self.ummu.msix_enable({0: (self.usi, 0xE0), 1: (self.usi + 8, 0xE1)})
        queues = self.accel.function.msix_vectors()
        self.accel.function.msix_enable({q: (self.usi + 0x100 + 8 * q, 0xA0 + q) for q in range(queues)})
        self.cmd("CMD_CFGI_TECT_RANGE", RANGE=31)
        self.cmd("CMD_TLBI_NS_OS_ALL")
        self.bind_eid(self.eid, 0)
        self.sync()
        self.regs.write("CTRL0", _UMMU_EN | _EVENTQ_EN | _MAPT_EN)
        self.accel.write("CTRL", 1)
        self.queue.enable(RING_TID, bind=(TID, CONTROL_TID))

    def interrupt(self, vector: int, accel: bool = False) -> int:
        """The data of the message that came for a vector (0: none came), and forget it."""
        at = self.usi + (0x100 if accel else 0) + 8 * vector
        data = self.arena.read_word(at, 4)
        self.arena.write_word(at, 0, 4)
        return data

    # ---- commands ----------------------------------------------------------------------------

    def cmd(self, name: str, **fields: int) -> int:
        """Queue one command on MCMDQ 0 and ring; returns its index."""
        index = self.mcmdq.put(SPEC.commands[name].pack(**fields))
        self.mcmdq.ring_bell()
        return index

    def sync(self) -> None:
        """CMD_SYNC, and wait until it is consumed."""
        self.cmd("CMD_SYNC")
        self.mcmdq.drain()

    def bind_eid(self, eid: int, tag: int, index: int | None = None, **fields: int) -> None:
        """CMD_CREATE_KVTBL for an EID in the slot the driver would choose."""
        slot = self.kv.free_slot(eid) if index is None else index
        base = address_field(SPEC.commands["CMD_CREATE_KVTBL"], "TECT_BASE", self.tect)
        self.cmd(
            "CMD_CREATE_KVTBL",
            TECTE_TAG=tag,
            KV_INDEX=slot,
            TECT_BASE=base,
            EID_LOW=eid & (2**64 - 1),
            EID_HIGH=eid >> 64,
            **fields,
        )

    def plbi(self, va: int, length: int, *, tid: int = TID, tag: int = 0) -> None:
        """PLBI of a range, and SYNC."""
        self.cmd("CMD_PLBI_OS_VA", TID=tid, RANGE=(length - 1).bit_length(), ADDR=va, TECTE_TAG=tag)
        self.sync()

    def tlbi(self, va: int, pages: int = 1, *, tid: int = TID, tag: int = 0) -> None:
        """TLBI of 4 KiB pages one by one, and SYNC."""
        for n in range(pages):
            self.cmd("CMD_TLBI_OS_VA", TID=tid, ADDR=(va + n * PAGE) >> 12, TECTE_TAG=tag)
        self.sync()

    def cfgi(self, tid: int = TID, *, tag: int = 0) -> None:
        """CFGI_TCT, and SYNC: after a change of a TCTE."""
        self.cmd("CMD_CFGI_TCT", LEAF=1, TID=tid, DEID_LO=tag)
        self.sync()

    def grant(self, va: int, length: int, permission: int, **how: Any) -> list[int]:
        """Permit a range of TID 1 (see :meth:`Mapt.grant`); new rights need no invalidation."""
        return self.mapt.grant(va, length, permission, **how)

    def revoke(self, nodes: list[int], va: int, length: int) -> None:
        """Take a grant away and invalidate, as the driver does."""
        self.mapt.revoke(nodes)
        self.plbi(va, length)

    def events(self) -> list[EventRecord]:
        """Take all event records."""
        return self.eventq.take()

    # ---- accesses ----------------------------------------------------------------------------

    def dma_fields(
        self,
        op: str,
        va: int,
        length: int,
        *,
        tid: int = TID,
        token: int | None = None,
        e: int = 1,
        pattern: int = 0x5A5A5A5A5A5A5A5A,
    ) -> dict[str, int]:
        """Descriptor of one access: ``read`` (CRC32C), ``write`` (FILL), ``atomic`` (add, 4 or 8 bytes)."""
        operand = Operand(va, tid, token, e)
        if op == "read":
            return {"OPCODE": OP["CRC32C"], "LENGTH": length, **operand.fields(0)}
        if op == "write":
            return {"OPCODE": OP["FILL"], "LENGTH": length, "PATTERN": pattern, **operand.fields(1)}
        if op == "atomic":
            dtype = DTYPE["U32"] if length == 4 else DTYPE["U64"]
            return {"OPCODE": OP["ATOMIC"], "LENGTH": length, "DTYPE": dtype, "VALUE": 1, **operand.fields(0)}
        raise QtestError(f"unknown access '{op}': read, write or atomic")

    def dma(self, op: str, va: int, length: int, **how: Any) -> Completion:
        """One access through the UMMU; see :meth:`dma_fields`."""
        return self.queue.run(**self.dma_fields(op, va, length, **how))

    def copy(self, source: Operand, target: Operand, length: int, **fields: int) -> Completion:
        """One COPY job."""
        return self.queue.run(
            OPCODE=OP["COPY"], LENGTH=length, **source.fields(0), **target.fields(1), **fields
        )

    def control_works(self) -> None:
        """A permitted access works: the devices are alive."""
        done = self.dma("read", CONTROL_VA, 64, tid=CONTROL_TID)
        assert done.ok and done.bytes_done == 64, f"the control access failed: {done}"

    def refused(
        self,
        code: int,
        op: str,
        va: int,
        length: int,
        *,
        fault_addr: int | None = None,
        done: int = 0,
        event: bool = True,
        tag: int = 0,
        **how: Any,
    ) -> Completion:
        """One access that must be refused with ``code``; asserts all that BASE demands of a refusal.

        The job ends with the code at ``fault_addr`` after ``done`` bytes; memory outside those bytes is
        unchanged; exactly one event (none if ``event`` is False) with the right TID, tag, IADDR and RNW; a
        permitted access works afterwards.
        """
        address = va + done if fault_addr is None else fault_addr
        watch = _CanaryWatch(self)
        completion = self.dma(op, va, length, **how)
        assert completion.status == "FAULT", f"expected a refusal with {code:#x}, got {completion}"
        assert completion.event == (code if event else 0), f"expected code {code:#x}, got {completion}"
        assert completion.bytes_done == done, f"expected {done} bytes done, got {completion}"
        assert completion.fault_addr == address, f"expected refusal at {address:#x}, got {completion}"
        written = [(self.canary_offset(at), n) for at, n in _pieces(va, done)] if op == "write" else []
        same = watch.unchanged(written)
        assert same, "memory changed although the access was refused"
        records = self.events()
        if event:
            expected = {
                "TID": how.get("tid", TID),
                "RNW": int(op == "read"),
                "IADDR": address,
                "TECTE_TAG": tag,
            }
            filled = next(e.filled for e in SPEC.events.values() if e.code == code)
            expected = {name: value if name in filled else 0 for name, value in expected.items()}
            expected["CODE"] = code
            assert len(records) == 1, f"expected one event, got {records}"
            got = {name: records[0][name] for name in expected}
            assert got == expected, f"event fields {got}, expected {expected}"
        else:
            assert not records, f"expected no event, got {records}"
        self.control_works()
        return completion

    # ---- introspection -----------------------------------------------------------------------

    def qom(self, name: str, path: str = "ummu0") -> Any:
        """A QOM property of a function, by the ``id`` it has on the command line."""
        return self.machine.qmp.qom_get(PERIPHERAL.format(path), name)

    def qom_set(self, name: str, value: Any, path: str = "ummu0") -> None:
        """Set a QOM property of a function."""
        self.machine.qmp.qom_set(PERIPHERAL.format(path), name, value)


def _pieces(va: int, length: int) -> list[tuple[int, int]]:
    """(address, bytes) of a range cut at page boundaries."""
    out = []
    end = va + length
    while va < end:
        n = min(end - va, PAGE - va % PAGE)
        out.append((va, n))
        va += n
    return out


class _CanaryWatch:
    """Canary memory as it was, compared with what it is, in place: a refusal must not cost megabytes of garbage."""

    _buffer = bytearray(CANARY_SIZE)  # shared: one watch at a time

    def __init__(self, bench: Bench) -> None:
        self._live = (ctypes.c_char * CANARY_SIZE).from_buffer(
            bench.machine.ram.map, bench.machine.offset(bench.canary, CANARY_SIZE)
        )
        self._was = (ctypes.c_char * CANARY_SIZE).from_buffer(self._buffer)
        ctypes.memmove(self._was, self._live, CANARY_SIZE)

    def unchanged(self, written: list[tuple[int, int]]) -> bool:
        """No byte differs outside the (offset, length) ranges; ends the watch."""
        for offset, length in written:
            ctypes.memmove(ctypes.byref(self._was, offset), ctypes.byref(self._live, offset), length)
        same = bool(_memcmp(self._was, self._live, CANARY_SIZE) == 0)
        del self._live  # or the memory could not be unmapped
        return same


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@lru_cache(maxsize=8)
def _canary_leaves(canary: int) -> list[tuple[int, bytes]]:
    """(VA of the first page, 512 descriptors) of each level 3 table over canary memory at a place."""
    tables = []
    for first in range(0, CANARY_SIZE // PAGE, 512):
        va = CANARY_VA + first * PAGE
        pages = (canary + Bench.canary_offset(va + n * PAGE) for n in range(512))
        tables.append((va, struct.pack("<512Q", *(page | LEAF | 3 for page in pages))))
    return tables


_IMAGE: bytes = b""


def _canary_image() -> bytes:
    """Contents of the canary memory, made once."""
    global _IMAGE
    if not _IMAGE:
        words = range(0, CANARY_SIZE, 8)
        _IMAGE = struct.pack(
            f"<{len(words)}Q", *(((w | 1) * 0x9E3779B97F4A7C15) & (2**64 - 1) for w in words)
        )
    return _IMAGE
