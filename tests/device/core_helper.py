# SPDX-License-Identifier: GPL-2.0-or-later
"""A UMMU without any device behind it: what the tests of its registers and queues start from."""

from __future__ import annotations

import os
from typing import Any

from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE, Arena
from ummulab.qtest.ummu import SPEC, CommandQueue, EventQueue, EventRecord, KvTable, Registers

#: UMMULAB_SOAK=1: the random tests run as long as the recorded cases ask for, not as long as everybody has time.
SOAK = os.environ.get("UMMULAB_SOAK", "0") not in ("", "0")

UMMU_DEVICE = 0x554D
CTRL_PAGES = 0x20000
UMMU_EN, EVENTQ_EN, MAPT_EN = 1 << 0, 1 << 1, 1 << 5
#: Messages of the two vectors.
DATA = (0xE0, 0xE1)


class Core:
    """One UMMU: access by offset or by name, MCMDQ 0, EVENTQ and KV table when :meth:`start` was called."""

    def __init__(self, machine: QtestMachine, number: int = 0, beside: Core | None = None) -> None:
        """``beside``: another UMMU of the same machine, whose memory this one must not use."""
        self.machine = machine
        self.number = number
        self.arena: Arena = beside.arena if beside else Arena(machine)
        self.contexts = 0
        self.function = machine.function(UMMU_DEVICE, number)
        self.regs = Registers(self.function)
        self.usi = self.arena.take(PAGE)
        self.mcmdq = CommandQueue(self.regs, self.arena)
        self.eventq = EventQueue(self.regs, self.arena)
        self.kv = KvTable(self.arena)

    # ---- access ------------------------------------------------------------------------------------------------

    @property
    def base(self) -> int:
        """Physical address of BAR 0."""
        return self.function.bars[0]

    def read(self, offset: int, size: int = 4) -> int:
        """Load from the frame."""
        return self.machine.qtest.read(self.base + offset, size)

    def write(self, offset: int, value: int, size: int = 4) -> None:
        """Store to the frame."""
        self.machine.qtest.write(self.base + offset, value, size)

    def qom(self, name: str) -> Any:
        """A QOM property."""
        return self.machine.qmp.qom_get(f"/machine/peripheral/ummu{self.number}", name)

    def qom_set(self, name: str, value: Any) -> None:
        """Set a QOM property."""
        self.machine.qmp.qom_set(f"/machine/peripheral/ummu{self.number}", name, value)

    def ask(self, question: str, value: Any, answer: str) -> Any:
        """Set one QOM property and read another."""
        return self.machine.qmp.qom_ask(f"/machine/peripheral/ummu{self.number}", question, value, answer)

    def image(self) -> dict[str, int]:
        """Values of all registers of the frame, by name."""
        return {name.removeprefix("UMMU_"): value for name, value in self.qom("registers").items()}

    # ---- running -----------------------------------------------------------------------------------------------

    def start(self, ctrl0: int = EVENTQ_EN | MAPT_EN, interrupts: int = 3) -> None:
        """Queues on, MSI-X to RAM; UMMU_EN stays as ``ctrl0`` says."""
        self.function.msix_enable({0: (self.usi, DATA[0]), 1: (self.usi + 8, DATA[1])})
        self.machine.qtest.write_many(
            self.kv.enable_writes(self.regs)
            + self.mcmdq.enable_writes()
            + self.eventq.enable_writes()
            + [self.regs.line("CTRL0", ctrl0), self.regs.line("GLB_INT_EN", interrupts)]
        )

    def user_contexts(self, log2: int = 8) -> None:
        """A table of 2^log2 user queue contexts; MAPT_EN must be off."""
        self.contexts = self.arena.take(64 << log2)
        self.regs.write("MAPT_CMDQ_CTXT_BADDR", self.contexts | log2)

    def interrupt(self, vector: int) -> int:
        """Data of the message that came for a vector (0: none), and forget it."""
        data = self.arena.read_word(self.usi + 8 * vector, 4)
        self.arena.write_word(self.usi + 8 * vector, 0, 4)
        return data

    def put(self, name: str, **fields: int) -> int:
        """Put a command into MCMDQ 0 without ringing."""
        return self.mcmdq.put(SPEC.commands[name].pack(**fields))

    def cmd(self, name: str, **fields: int) -> int:
        """Put a command and ring."""
        index = self.put(name, **fields)
        self.mcmdq.ring_bell()
        return index

    def create(self, eid: int, tag: int, index: int | None = None, evt: int = 0) -> None:
        """CMD_CREATE_KVTBL."""
        slot = self.kv.free_slot(eid) if index is None else index
        self.cmd("CMD_CREATE_KVTBL", TECTE_TAG=tag, KV_INDEX=slot, EVT_EN=evt,
                 EID_LOW=eid & (2**64 - 1), EID_HIGH=eid >> 64)  # fmt: skip

    def delete(self, eid: int, tag: int, index: int, evt: int = 0) -> None:
        """CMD_DELETE_KVTBL."""
        self.cmd("CMD_DELETE_KVTBL", TECTE_TAG=tag, KV_INDEX=index, EVT_EN=evt,
                 EID_LOW=eid & (2**64 - 1), EID_HIGH=eid >> 64)  # fmt: skip

    def events(self) -> list[EventRecord]:
        """Take all event records."""
        return self.eventq.take()

    def pending_errors(self) -> int:
        """Bits of GLB_ERR that are pending."""
        return self.regs.read("GLB_ERR") ^ self.regs.read("GLB_ERR_RESP")

    def acknowledge(self) -> None:
        """Acknowledge all global errors, as the driver does."""
        self.regs.write("GLB_ERR_RESP", self.regs.read("GLB_ERR"))
