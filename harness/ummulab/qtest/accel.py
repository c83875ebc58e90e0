# SPDX-License-Identifier: GPL-2.0-or-later
"""Driving an accelerator by hand: registers, one queue pair, jobs and completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ummulab.qtest.errors import QtestError, QtestTimeout
from ummulab.qtest.memory import Arena
from ummulab.qtest.pci import PciFunction
from ummulab.spec import load_accel

SPEC = load_accel()
DESC = SPEC.structures["ACCEL_DESC"]
CPL = SPEC.structures["ACCEL_CPL"]
OP = SPEC.enums["ACCEL_OP"]
STATUS = SPEC.enums["ACCEL_STATUS"]
FLAG = SPEC.enums["ACCEL_DESC_FLAG"]
DTYPE = SPEC.enums["ACCEL_DTYPE"]
ATOMIC = SPEC.enums["ACCEL_ATOMIC"]
STATE = SPEC.enums["ACCEL_Q_STATE"]
_STATUS_NAME = {value: name for name, value in STATUS.items()}
_QUEUE, _BELL = SPEC.banks["QUEUE"], SPEC.banks["DOORBELL"]
#: Virtual time one wait may take, and the step it is taken in.
_STEP_NS, _STEPS = 1_000_000, 200


@dataclass(frozen=True)
class Completion:
    """What a job came to."""

    cookie: int
    status: str
    operand: int
    event: int
    sq_index: int
    fault_addr: int
    bytes_done: int
    result: int

    @classmethod
    def decode(cls, raw: bytes) -> Completion:
        """Take a completion ring entry apart."""
        f = CPL.unpack(raw)
        status = _STATUS_NAME.get(f["STATUS"], f"unknown {f['STATUS']}")
        return cls(
            f["COOKIE"],
            status,
            f["OPERAND"],
            f["EVENT"],
            f["SQ_INDEX"],
            f["FAULT_ADDR"],
            f["BYTES_DONE"],
            f["RESULT"],
        )

    @property
    def ok(self) -> bool:
        """True if the job did all its work."""
        return self.status == "OK"


@dataclass(frozen=True)
class Operand:
    """One operand of a job."""

    va: int
    tid: int = 1
    token: int | None = None
    e: int = 1

    def fields(self, number: int, with_va: bool = True) -> dict[str, int]:
        """Descriptor fields of operand ``number``."""
        out = {f"OP{number}_TID": self.tid, f"OP{number}_WIRE": 1 - self.e}
        if with_va:
            out[f"OP{number}_VA"] = self.va
        if self.token is not None:
            out.update({f"OP{number}_TV": 1, f"OP{number}_TOKEN": self.token})
        return out


class Accel:
    """Registers of one accelerator function."""

    def __init__(self, function: PciFunction) -> None:
        self.function = function

    def read(self, name: str, at: int = 0) -> int:
        """Read a register by name."""
        register = SPEC.reg(name)
        return self.function.qtest.read(self.function.bars[0] + at + register.offset, register.width // 8)

    def line(self, name: str, value: int, at: int = 0) -> tuple[int, int, int]:
        """One write for ``QtestClient.write_many``."""
        register = SPEC.reg(name)
        return self.function.bars[0] + at + register.offset, value, register.width // 8

    def write(self, name: str, value: int, at: int = 0) -> None:
        """Write a register by name."""
        self.function.qtest.write_many([self.line(name, value, at)])

    def fields(self, name: str, at: int = 0) -> dict[str, int]:
        """Read a register and take it apart."""
        return SPEC.reg(name).unpack(self.read(name, at))


class AccelQueue:
    """One queue pair.  ``sq`` and ``cq`` map virtual to physical pages; the test uses the physical ones."""

    def __init__(
        self,
        accel: Accel,
        arena: Arena,
        number: int,
        sq: Mapping[int, int],
        cq: Mapping[int, int],
        sq_log2: int,
        cq_log2: int,
    ) -> None:
        self.accel, self._arena, self.number = accel, arena, number
        self.at = _QUEUE.base + number * _QUEUE.stride
        self.bell = _BELL.base + number * _BELL.stride
        self._sq_pages, self._cq_pages = dict(sq), dict(cq)
        self.sq_va, self.cq_va = min(sq), min(cq)
        self.sq_log2, self.cq_log2 = sq_log2, cq_log2
        self.pi = self.ci = 0
        self._cookie = 0

    def enable(
        self, tid: int, *, token: int | None = None, bind: tuple[int, ...] = (), int_en: bool = True
    ) -> None:
        """Program the queue, bind the operand TIDs, start it, and start our own indices at 0."""
        lines = [
            self.accel.line("Q_SQ_BASE", self.sq_va, self.at),
            self.accel.line("Q_CQ_BASE", self.cq_va, self.at),
            self.accel.line("Q_SIZE", self.sq_log2 | self.cq_log2 << 8, self.at),
            self.accel.line("Q_TID", tid, self.at),
            self.accel.line("Q_TOKEN", token or 0, self.at),
            self.accel.line("Q_FLAGS", int(token is not None), self.at),
            self.accel.line("Q_CTRL", 1 | int(int_en) << 1, self.at),
        ]
        lines += [self.accel.line("Q_TID_BIND", one | 1 << 31, self.at) for one in bind]
        self.accel.function.qtest.write_many(lines)
        self.pi = self.ci = 0

    def disable(self) -> None:
        """Stop the queue, aborting its jobs."""
        self.accel.write("Q_CTRL", 0, self.at)

    def state(self) -> dict[str, int]:
        """Fields of Q_STATUS."""
        return self.accel.fields("Q_STATUS", self.at)

    def bind(self, tid: int, add: bool = True) -> bool:
        """Add or remove a TID; False if it did not fit."""
        self.accel.write("Q_TID_BIND", tid | int(add) << 31, self.at)
        return not self.accel.fields("Q_TID_BIND", self.at)["FULL"]

    def sq_address(self, index: int) -> int:
        """Physical address of a submission entry."""
        return self._physical(self._sq_pages, self.sq_va + (index & ((1 << self.sq_log2) - 1)) * DESC.size)

    def cq_address(self, index: int) -> int:
        """Physical address of a completion entry."""
        return self._physical(self._cq_pages, self.cq_va + (index & ((1 << self.cq_log2) - 1)) * CPL.size)

    def put(self, raw: bytes | None = None, /, **fields: int) -> int:
        """Write one descriptor at the producer index without ringing; returns its cookie."""
        self._cookie = (self._cookie + 1) & 0xFFFFFFFF
        fields.setdefault("COOKIE", self._cookie)
        self._arena.write(self.sq_address(self.pi), DESC.pack(**fields) if raw is None else raw)
        self.pi = (self.pi + 1) & ((2 << self.sq_log2) - 1)
        return fields["COOKIE"]

    def ring_bell(self) -> None:
        """The doorbell: publish what was put."""
        self.accel.write("DB_SQ_PI", self.pi, self.bell)

    def completed(self) -> list[Completion]:
        """Take all completions that are in the ring."""
        pi = self.accel.read("DB_CQ_PI", self.bell)
        wrap = (2 << self.cq_log2) - 1
        out: list[Completion] = []
        while self.ci != pi and len(out) <= 1 << self.cq_log2:
            out.append(Completion.decode(self._arena.read(self.cq_address(self.ci), CPL.size)))
            self.ci = (self.ci + 1) & wrap
        if out:
            self.accel.write("DB_CQ_CI", self.ci, self.bell)
        return out

    def wait(self, count: int = 1, *, step_ns: int = _STEP_NS, steps: int = _STEPS) -> list[Completion]:
        """Step the clock until ``count`` completions came; QtestTimeout with the queue's state otherwise."""
        out = self.completed()
        for _ in range(steps):
            if len(out) >= count:
                return out
            self._arena.machine.qtest.clock_step(step_ns)
            out += self.completed()
        if len(out) >= count:
            return out
        evidence = (
            f"got {len(out)}: {out[-3:]}\nQ_STATUS {self.state()}, Q_ERR_ADDR {self.error_address():#x}"
        )
        raise QtestTimeout(f"{count} completions of accelerator queue {self.number}", 0, evidence)

    def run(self, **fields: int) -> Completion:
        """One job from descriptor to completion."""
        cookie = self.put(**fields)
        self.ring_bell()
        (done, *more) = self.wait(1)
        if more or done.cookie != cookie:
            raise QtestError(f"expected the one completion {cookie}, got {done} {more}")
        return done

    def error_address(self) -> int:
        """Q_ERR_ADDR."""
        return self.accel.read("Q_ERR_ADDR", self.at)

    @staticmethod
    def _physical(pages: Mapping[int, int], va: int) -> int:
        return pages[va & ~0xFFF] | (va & 0xFFF)
