# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of 64 MiB: through the UMMU, by ``edu``, and by the host, all in CPU time of the one that copies."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable
from pathlib import Path

from ummulab.bench import Row
from ummulab.qtest.accel import OP, Operand
from ummulab.qtest.bench import CONTROL_TID, TCT_LOG2, TID, Bench
from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import DEFAULT_DEVICES, QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import Matt

LENGTH = 64 << 20
RAM = 512 << 20
TOKEN = 0xC0FFEE
SOURCE_VA, TARGET_VA = 0x4_0000_0000, 0x5_0000_0000
BLOCK = 2 << 20
#: virtual time that is more than any copy needs; the engine's turns run one after the other within it
_STEP_NS = 10**9

EDU_DEVICE = 0x11E8
_EDU_BUFFER, _EDU_CHUNK = 0x40000, 4096
_EDU_SRC, _EDU_DST, _EDU_COUNT, _EDU_CMD = 0x80, 0x88, 0x90, 0x98
_EDU_DMA_NS = 100_000_000  # one transfer takes this long in virtual time


def measure_copies(arch: str, repeat: int) -> list[Row]:
    """Rows of the four copies."""
    devices = [*DEFAULT_DEVICES, "edu,id=edu0,dma_mask=0xffffffffffffffff"]
    with QtestMachine(devices, arch=arch, ram_size=RAM) as machine:
        lab = _CopyLab(machine)
        rounds = 4 * repeat  # each takes milliseconds
        memcpy = lab.rate(lab.memcpy, rounds)
        rows = [
            Row("copy_64m_4k", lab.rate(lab.copy_4k, rounds), "B/s", memcpy),
            Row("copy_64m_2m", lab.rate(lab.copy_2m, rounds), "B/s", memcpy),
            Row("edu_copy_64m", lab.rate(lab.copy_edu, 1), "B/s", memcpy),
        ]
        # Once more at the end: on a busy host the two differ, and the larger one is the stricter yardstick.
        memcpy = max(memcpy, lab.rate(lab.memcpy, rounds))
        rows = [Row(row.name, row.value, row.unit, memcpy) for row in rows]
        return [*rows, Row("host_memcpy_64m", memcpy, "B/s")]


class _CopyLab:
    """Source and target of 64 MiB, mapped by 4 KiB pages (TID 1) and by 2 MiB blocks (TID 3)."""

    def __init__(self, machine: QtestMachine) -> None:
        self.machine = machine
        self.bench = Bench(machine)
        arena = self.bench.arena
        self.source, self.target = arena.take(LENGTH, BLOCK), arena.take(LENGTH, BLOCK)
        arena.write(self.source, random.Random(1).randbytes(1 << 20) * (LENGTH >> 20))
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(machine.ram.map))
        self._scatter(self.bench.matt, PAGE, 3)
        large = Matt(arena)
        self._scatter(large, BLOCK, 2)
        self.bench.write_tcte(CONTROL_TID, matt=large)
        for va in (SOURCE_VA, TARGET_VA):
            self.bench.grant(va, LENGTH, 3, token=TOKEN)
        self.bench.cfgi(CONTROL_TID)
        assert CONTROL_TID < 1 << TCT_LOG2

    def _scatter(self, matt: Matt, size: int, level: int) -> None:
        """Map both buffers by leaves of one size whose order in memory has nothing to do with their addresses."""
        for va, pa in ((SOURCE_VA, self.source), (TARGET_VA, self.target)):
            order = list(range(LENGTH // size))
            random.Random(va + size).shuffle(order)
            for number, place in enumerate(order):
                matt.map(va + number * size, pa + place * size, size, level=level)

    def rate(self, copy: Callable[[], None], repeat: int) -> float:
        """Bytes per second of CPU time of whoever copies (QEMU or we), the best of several copies."""
        clock = time.thread_time_ns if copy == self.memcpy else self._qemu_time_ns
        times = []
        for _ in range(repeat + (repeat > 1)):
            start = clock()
            copy()
            times.append(clock() - start)
        return LENGTH * 1e9 / min(times)

    def _qemu_time_ns(self) -> int:
        """CPU time of all threads of QEMU; what else runs on the host does not count."""
        tasks = Path(f"/proc/{self.machine.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    def memcpy(self) -> None:
        """The C library's memcpy between the same two places of guest memory."""
        offset = self.machine.offset(self.source, LENGTH), self.machine.offset(self.target, LENGTH)
        ctypes.memmove(self.base + offset[1], self.base + offset[0], LENGTH)

    def _copy(self, tid: int) -> None:
        operands = Operand(SOURCE_VA, tid, TOKEN), Operand(TARGET_VA, tid, TOKEN)
        queue = self.bench.queue
        queue.put(OPCODE=OP["COPY"], LENGTH=LENGTH, **operands[0].fields(0), **operands[1].fields(1))
        queue.ring_bell()
        (done,) = queue.wait(1, step_ns=_STEP_NS, steps=4)
        if not done.ok or done.bytes_done != LENGTH:
            raise QtestError(f"the copy did not work: {done}")

    def copy_4k(self) -> None:
        """One COPY job over 4 KiB pages."""
        self._copy(TID)

    def copy_2m(self) -> None:
        """One COPY job over 2 MiB blocks."""
        self._copy(CONTROL_TID)

    def copy_edu(self) -> None:
        """The same bytes through the 4 KiB buffer of ``edu``, two transfers for each piece."""
        edu = self.machine.function(EDU_DEVICE)
        bar, qtest = edu.bars[0], self.machine.qtest
        for at in range(0, LENGTH, _EDU_CHUNK):
            for source, target, command in (
                (self.source + at, _EDU_BUFFER, 1),
                (_EDU_BUFFER, self.target + at, 3),
            ):
                qtest.write_many(
                    [
                        (bar + _EDU_SRC, source, 8),
                        (bar + _EDU_DST, target, 8),
                        (bar + _EDU_COUNT, _EDU_CHUNK, 8),
                        (bar + _EDU_CMD, command, 8),
                    ]
                )
                qtest.clock_step(_EDU_DMA_NS)
