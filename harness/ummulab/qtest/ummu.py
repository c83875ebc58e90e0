# SPDX-License-Identifier: GPL-2.0-or-later
"""Driving a UMMU by hand: registers by name, command queue, event queue, EID binding."""

from __future__ import annotations

from dataclasses import dataclass

from ummulab.qtest.errors import QtestError, QtestTimeout
from ummulab.qtest.memory import Arena
from ummulab.qtest.pci import PciFunction
from ummulab.spec import Register, load

SPEC = load()
_EVENT = SPEC.event_layout
assert _EVENT is not None  # the UMMU's own layout files always define events
EVENT = _EVENT
_COMMAND_BYTES = 32
_SYNC_STEPS = 64
_KV_BANKS, _KV_HASHES, _CAM_SLOTS = 8, 256, 256


class Registers:
    """Register access by the names of the layout file."""

    def __init__(self, function: PciFunction, bar: int = 0) -> None:
        self._function = function
        self._bar = bar

    @property
    def base(self) -> int:
        """Physical address of the register frame."""
        return self._function.bars[self._bar]

    def read(self, name: str, at: int = 0) -> int:
        """Read a register; ``at`` is the base of its bank instance."""
        register = SPEC.reg(name)
        return self._function.qtest.read(self.base + at + register.offset, register.width // 8)

    def write(self, name: str, value: int, at: int = 0) -> None:
        """Write a whole register."""
        self._function.qtest.write_many([self.line(name, value, at)])

    def line(self, name: str, value: int, at: int = 0) -> tuple[int, int, int]:
        """One write for ``QtestClient.write_many``."""
        register = SPEC.reg(name)
        return self.base + at + register.offset, value, register.width // 8

    def fields(self, name: str, at: int = 0) -> dict[str, int]:
        """Read a register and take it apart."""
        return SPEC.reg(name).unpack(self.read(name, at))


def register_address(name: str, field: str, address: int) -> int:
    """Register bits of an address field whose lsb is the address bit it starts at."""
    register: Register = SPEC.reg(name)
    width = next(f for f in register.fields if f.name == field)
    return width.put(0, address >> width.lsb)


@dataclass(frozen=True)
class EventRecord:
    """One record of the event queue."""

    code: int
    name: str
    fields: dict[str, int]
    raw: bytes

    def __getitem__(self, field: str) -> int:
        return self.fields[field]


def kv_hash(eid: int) -> int:
    """Hash of an EID as the driver computes it (low 8 bits of CRC-32, most significant byte first)."""
    crc = 0xFFFFFFFF
    for byte in eid.to_bytes(16, "big"):
        crc ^= byte << 24
        for _ in range(8):
            crc = ((crc << 1) ^ 0x04C11DB7 if crc & 0x80000000 else crc << 1) & 0xFFFFFFFF
    return crc & 0xFF


class CommandQueue:
    """One MCMDQ."""

    def __init__(self, regs: Registers, arena: Arena, number: int = 0, log2size: int = 6) -> None:
        bank = SPEC.banks["MCMDQ"]
        self._regs = regs
        self._arena = arena
        self.number = number
        self.at = bank.base + number * bank.stride
        self.log2size = log2size
        size = _COMMAND_BYTES << log2size
        self.ring = arena.take(size, size)
        self.pi = 0
        self._errack = 0

    def enable_writes(self) -> list[tuple[int, int, int]]:
        """The writes that set the queue up and switch it on."""
        base = register_address("MCMDQ_BASE", "ADDR", self.ring) | self.log2size
        return [
            self._regs.line("MCMDQ_PI", 0, self.at),
            self._regs.line("MCMDQ_CI", 0, self.at),
            self._regs.line("MCMDQ_BASE", base, self.at),
            self._regs.line("MCMDQ_PI", 1 << 31, self.at),
        ]

    def slot(self, index: int) -> int:
        """Address of the entry an index (with wrap bit) names."""
        return self.ring + (index & ((1 << self.log2size) - 1)) * _COMMAND_BYTES

    def put(self, entry: bytes) -> int:
        """Write one entry at the producer index without ringing; returns its index."""
        index = self.pi
        self._arena.write(self.slot(index), entry)
        self.pi = (index + 1) & ((2 << self.log2size) - 1)
        return index

    def ring_bell(self) -> None:
        """Publish what was put."""
        pi = SPEC.reg("MCMDQ_PI").pack(WR_IDX_WRAP=self.pi, ERRACK=self._errack, EN=1)
        self._regs.write("MCMDQ_PI", pi, self.at)

    def consumer(self) -> dict[str, int]:
        """Fields of the consumer register."""
        return self._regs.fields("MCMDQ_CI", self.at)

    def acknowledge_error(self) -> None:
        """Copy ERR to ERRACK, which restarts the queue."""
        self._errack = self.consumer()["ERR"]
        self.ring_bell()

    def drain(self) -> None:
        """Wait until everything published is consumed; QtestError when the queue stopped with an error."""
        for _ in range(_SYNC_STEPS):
            ci = self.consumer()
            if ci["ERR"] != self._errack:
                raise QtestError(
                    f"MCMDQ {self.number} stopped at {ci['RD_IDX_WRAP']}: reason {ci['ERR_REASON']}"
                )
            if ci["RD_IDX_WRAP"] == self.pi:
                return
            self._arena.machine.qtest.clock_step(1000)
        raise QtestTimeout(f"MCMDQ {self.number} to reach {self.pi}", 0, f"CI {ci}")


class EventQueue:
    """The event queue."""

    def __init__(self, regs: Registers, arena: Arena, log2size: int = 4) -> None:
        self._regs = regs
        self._arena = arena
        self.log2size = log2size
        self.ring = arena.take(EVENT.size << log2size, EVENT.size << log2size)
        self.ci = 0

    def enable_writes(self) -> list[tuple[int, int, int]]:
        """The writes that set the queue up (CTRL0.EVENTQ_EN switches it on)."""
        base = register_address("EVENT_QUE_BASE", "ADDR", self.ring) | self.log2size
        return [
            self._regs.line("EVENT_QUE_BASE", base),
            self._regs.line("EVENT_QUE_PI", 0),
            self._regs.line("EVENT_QUE_CI", 0),
        ]

    def pending(self) -> int:
        """Number of records that wait."""
        pi = self._regs.fields("EVENT_QUE_PI")["WR_IDX_WRAP"]
        return (pi - self.ci) & ((2 << self.log2size) - 1)

    def take(self) -> list[EventRecord]:
        """Read and consume all records, acknowledging an overflow."""
        producer = self._regs.fields("EVENT_QUE_PI")
        wrap = (2 << self.log2size) - 1
        records: list[EventRecord] = []
        while self.ci != producer["WR_IDX_WRAP"] and len(records) <= 1 << self.log2size:
            slot = self.ring + (self.ci & (wrap >> 1)) * EVENT.size
            raw = self._arena.read(slot, EVENT.size)
            fields = EVENT.unpack(raw)
            records.append(EventRecord(fields["CODE"], SPEC.event_name(fields["CODE"]), fields, raw))
            self.ci = (self.ci + 1) & wrap
        if records:
            value = SPEC.reg("EVENT_QUE_CI").pack(RD_IDX_WRAP=self.ci, OVFLG_RESP=producer["OVFLG"])
            self._regs.write("EVENT_QUE_CI", value)
        return records


class KvTable:
    """Memory of the DstEID look-up and the driver's choice of slots."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.base = arena.take((_KV_HASHES * _KV_BANKS + _CAM_SLOTS) * 32)
        self.cam = self.base + _KV_HASHES * _KV_BANKS * 32

    def enable_writes(self, regs: Registers) -> list[tuple[int, int, int]]:
        """The register writes of the probe sequence (hardware text 3.2, step 5)."""
        return [
            regs.line("DSTEID_KV_TABLE_BASE", self.base),
            regs.line("DSTEID_KV_TABLE_BASE_CFG", 0x01000800),
            regs.line("DSTEID_KV_TABLE_HASH_CFG0", 0x11),
            regs.line("DSTEID_KV_TABLE_HASH_CFG1", 0xFFFFFFFF),
            regs.line("DSTEID_CAM_TABLE_BASE", self.cam),
            regs.line("DSTEID_CAM_TABLE_BASE_CFG", 0x01000000),
        ]

    def slot_address(self, index: int) -> int:
        """Address of a slot; CAM slots follow the hash table."""
        return self.base + 32 * index

    def free_slot(self, eid: int) -> int:
        """KV_INDEX of a free slot for an EID, looked for as the driver does: bank by bank, then the CAM."""
        first = kv_hash(eid) * _KV_BANKS
        cam = _KV_HASHES * _KV_BANKS
        slots: list[int] = [*range(first, first + _KV_BANKS), *range(cam, cam + _CAM_SLOTS)]
        for index in slots:
            if not self._arena.read_word(self.slot_address(index), 4) & 1:
                return index
        raise QtestError(f"no free slot for EID {eid:#x}")
