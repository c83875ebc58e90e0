# SPDX-License-Identifier: GPL-2.0-or-later
"""A UMMU alone, asked through its side-effect-free translation, beside the reference model on the same memory.

No accelerator, no queues: the tables are all there is, so one question costs two QMP messages.  EIDs are tags
(CTRL1.TECT_MODE_SEL = 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ummulab.memory import BytesImage, MemoryReadError
from ummulab.model import Access, Outcome, Request, State, Verdict, resolve
from ummulab.qtest.bench import PERIPHERAL, UMMU_DEVICE
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE, Arena
from ummulab.qtest.tables import LEAF, Mapt, Matt, address_field
from ummulab.qtest.ummu import SPEC, Registers, register_address

TECTE, TCTE = SPEC.structures["TECTE"], SPEC.structures["TCTE"]
ENABLE = 1 << 0 | 1 << 1 | 1 << 5  # UMMU_EN, EVENTQ_EN, MAPT_EN
LOG2_TAGS, LOG2_TIDS = 2, 6
VA, TID = 0x10000000, 1
_ACCESS = {Access.READ: "read", Access.WRITE: "write", Access.ATOMIC: "atomic"}
_STATE_REGISTERS = (
    "CAP0",
    "CAP1",
    "CAP2",
    "CAP3",
    "CAP4",
    "CAP5",
    "CTRL0",
    "CTRL1",
    "CTRL2",
    "GBPA",
    "TECT_BASE",
    "TECT_BASE_CFG",
)
#: S2 leaf: readable, writable, normal memory, access flag
S2_LEAF = 0xF << 2 | 3 << 6 | 3 << 8 | 1 << 10


def request_text(
    uba: int,
    length: int = 8,
    access: Access = Access.READ,
    tid: int = TID,
    tag: int = 0,
    token: int | None = None,
    e: int = 1,
    privileged: bool = True,
    instruction: bool = False,
) -> str:
    """A request as the QOM properties want it."""
    text = (
        f"eid={tag:#x},tid={tid:#x},uba={uba:#x},len={length:#x},access={_ACCESS[access]},e-bit={e},"
        f"priv={int(privileged)},inst={int(instruction)}"
    )
    return text if token is None else f"{text},token={token:#x}"


@dataclass(frozen=True)
class Answer:
    """What one request gets: ``event`` is the name without EVT_, also when it would not be recorded."""

    status: str
    event: str
    pa: int
    length: int

    @property
    def ok(self) -> bool:
        """The first byte is allowed."""
        return self.status == "ok"


class Lab:
    """One UMMU with a linear TECT of 4 tags and, for tag 0, a linear TCT of 64 contexts."""

    def __init__(self, machine: QtestMachine, *, ctrl1: int = 0x1D75) -> None:
        self.machine = machine
        self.arena = Arena(machine)
        self.regs = Registers(machine.function(UMMU_DEVICE))
        self.tect = self.arena.take(64 << LOG2_TAGS)
        self.tct = self.arena.take(64 << LOG2_TIDS)
        self.matt = Matt(self.arena)
        self.mapt = Mapt(self.arena)
        self.pages = self.arena.take(16 * PAGE)
        self.regs.write("CTRL0", 0)
        self.regs.write("CTRL1", ctrl1)
        self.regs.write("TECT_BASE", register_address("TECT_BASE", "ADDR", self.tect))
        self.tect_config()
        self.tecte()
        self.tcte()

    # ---- set-up --------------------------------------------------------------------------------------------------

    def tect_config(self, *, log2size: int = LOG2_TAGS, split: int = 0, fmt: int = 0) -> None:
        """TECT_BASE_CFG; the UMMU is switched off for the write and on again."""
        value = SPEC.reg("TECT_BASE_CFG").pack(LOG2SIZE=log2size, SPLIT=split, FMT=fmt)
        self.regs.write("CTRL0", 0)
        self.regs.write("TECT_BASE_CFG", value)
        self.regs.write("CTRL0", ENABLE)

    def tecte(self, tag: int = 0, **changes: int) -> None:
        """Write a TECTE of the linear table."""
        self.arena.write(self.tect + 64 * tag, TECTE.pack(**(self.tecte_fields() | changes)))

    def tecte_fields(self) -> dict[str, int]:
        """Stage 1 only, permission tables on, privilege from the request."""
        return {
            "V": 1,
            "ST_MODE": 5,
            "MAPT_EN": 1,
            "TCT_NUM": LOG2_TIDS,
            "TCT_PTR": address_field(TECTE, "TCT_PTR", self.tct),
            "S2_FBR": 1,
        }

    def tcte_fields(self, matt: Matt | None = None, mapt: Mapt | None = None) -> dict[str, int]:
        """A context over a MATT, with a permission table if one is given."""
        table = matt or self.matt
        fields = {
            "V": 1,
            "AA64": 1,
            "GPAS": 5,
            "SZ": 64 - table.va_bits,
            "FBR": 1,
            "FBA": 1,
            "ASH": 1,
            "TGS": {12: 0, 16: 1, 14: 2}[table.shift],
            "MATTBA": address_field(TCTE, "MATTBA", table.root),
        }
        if mapt:
            fields |= {
                "MAPT_EN": 1,
                "MAPT_MODE": 1,
                "RTGS": 1,
                "MAPT_BB_SZ": 4,
                "MAPT_BBA": address_field(TCTE, "MAPT_BBA", mapt.root),
                "MAPT_BTA": address_field(TCTE, "MAPT_BTA", mapt.table),
            }
        return fields

    def tcte(
        self, tid: int = TID, *, matt: Matt | None = None, mapt: Mapt | None = None, **changes: int
    ) -> None:
        """Write a TCTE of the linear table (without MAPT unless one is given)."""
        self.arena.write(self.tct + 64 * tid, TCTE.pack(**(self.tcte_fields(matt, mapt) | changes)))

    def page(self, number: int) -> int:
        """Physical address of one of 16 data pages."""
        return self.pages + number * PAGE

    def map(self, va: int, pa: int, *, attributes: int = LEAF, size: int = PAGE) -> None:
        """Map pages of the common MATT."""
        self.matt.map(va, pa, size, attributes=attributes)

    def stage2(self, *, shift: int = 12, bits: int = 40, level: int = 1, ram: bool = True) -> Matt:
        """A stage 2 table; with ``ram`` all RAM is mapped one to one by blocks of level 2."""
        table = Matt(self.arena, shift, bits)
        assert table.start_level <= level, "the builder makes no concatenated tables"
        if ram:
            arch = self.machine.arch
            block = 1 << table.level_shift(2)
            start = arch.ram_base & ~(block - 1)
            table.map(
                start, start, arch.ram_base + self.machine.ram_size - start, level=2, attributes=S2_LEAF
            )
        return table

    def stage2_fields(self, table: Matt, **changes: int) -> dict[str, int]:
        """TECTE fields of a stage 2 table."""
        sl0 = {12: {2: 0, 1: 1, 0: 2}, 14: {3: 0, 2: 1, 1: 2}, 16: {3: 0, 2: 1, 1: 2}}
        return {
            "NS_S2_TSZ": 64 - table.va_bits,
            "NS_S2_TG": {12: 0, 16: 1, 14: 2}[table.shift],
            "S2_PAS": 5,
            "NS_S2_SL": sl0[table.shift][table.start_level],
            "S2_AA64": 1,
            "S2_FBR": 1,
            "NS_S2_MATT": address_field(TECTE, "NS_S2_MATT", table.root),
        } | changes

    # ---- questions ----------------------------------------------------------------------------------------------

    def ask(
        self,
        uba: int,
        length: int = 8,
        access: Access = Access.READ,
        *,
        tid: int = TID,
        tag: int = 0,
        token: int | None = None,
        e: int = 1,
        privileged: bool = True,
        instruction: bool = False,
    ) -> Answer:
        """The device's answer, without side effects."""
        text = request_text(uba, length, access, tid, tag, token, e, privileged, instruction)
        path = PERIPHERAL.format("ummu0")
        result: dict[str, Any] = self.machine.qmp.qom_ask(path, "translate-request", text, "translate-result")
        return Answer(result["status"], result["event"].removeprefix("EVT_"), result["pa"], result["len"])

    def state(self) -> State:
        """Registers as the reference model wants them."""
        return State({name: self.regs.read(name) for name in _STATE_REGISTERS}, {})

    def image(self) -> BytesImage:
        """The RAM as it is now."""
        ram_base = self.machine.arch.ram_base
        return BytesImage(self.machine.read_memory(ram_base, self.machine.ram_size), ram_base)

    def predict(
        self,
        state: State,
        uba: int,
        length: int = 8,
        access: Access = Access.READ,
        *,
        tid: int = TID,
        tag: int = 0,
        token: int | None = None,
        e: int = 1,
        privileged: bool = True,
        instruction: bool = False,
        image: Any = None,
    ) -> tuple[Answer, Verdict]:
        """The reference model's answer to the same request."""
        verdict = resolve(
            image or LiveMemory(self.machine),
            state,
            Request(tag, tid, uba, length, access, token, e, privileged, instruction, no_stall=True),
        )
        if verdict.extents and (verdict.allowed_bytes or not verdict.refusal):
            first = verdict.extents[0]
            return Answer("ok", "", first.pa, first.length), verdict
        assert verdict.refusal is not None
        event = (verdict.refusal.event or "").removeprefix("EVT_")
        status = "razwi" if verdict.outcome is Outcome.RAZWI else "fault"
        return Answer(status, event, 0, 0), verdict

    def agree(
        self, state: State, uba: int, length: int = 8, access: Access = Access.READ, **how: Any
    ) -> Answer:
        """Ask both; assert that they agree; the device's answer."""
        got = self.ask(uba, length, access, **how)
        want, verdict = self.predict(state, uba, length, access, **how)
        same = got.status == want.status and got.event == want.event
        if got.ok:
            same = same and (got.pa, got.length) == (want.pa, want.length)
        if not same:
            steps = "\n".join(f"  [{s.section}] {s.what}: {s.note}" for s in verdict.steps)
            raise AssertionError(
                f"uba {uba:#x} len {length:#x} {access.name} {how}\ndevice {got}\nmodel  {want}\n{steps}"
            )
        return got


class LiveMemory:
    """RAM of the running machine for the reference model, without a copy of all of it."""

    def __init__(self, machine: QtestMachine) -> None:
        self._base = machine.arch.ram_base
        self._view = machine.ram.map
        self._size = machine.ram_size
        self._zeros = machine.arch.zeros

    def read(self, addr: int, length: int) -> bytes:
        """Exactly ``length`` bytes of RAM."""
        at = addr - self._base
        if addr + length <= self._zeros:
            return bytes(length)
        if at < 0 or at + length > self._size:
            raise MemoryReadError(addr, length)
        return bytes(self._view[at : at + length])
