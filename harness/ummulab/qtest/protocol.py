# SPDX-License-Identifier: GPL-2.0-or-later
"""Client of QEMU's qtest protocol (text lines; see system/qtest.c of QEMU).

With ``-accel qtest`` no CPU runs: the test plays the CPU, and virtual time stands still until it is stepped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from ummulab.qtest.channel import DEFAULT_LIMIT_S, LineChannel
from ummulab.qtest.errors import QtestError

_SUFFIX = {1: "b", 2: "w", 4: "l", 8: "q"}
#: Bytes moved by one b64read/b64write line.
_BULK = 1 << 20
#: Commands sent before their answers are read: hides the round trip without filling both sockets.
_WINDOW = 256


class QtestClient:
    """Reads, writes and clock steps, one command at a time or pipelined."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel

    def read(self, address: int, size: int = 4) -> int:
        """Load ``size`` (1, 2, 4, 8) bytes as a little-endian number."""
        return int(self._command(f"read{_SUFFIX[size]} {address:#x}")[0], 0)

    def write(self, address: int, value: int, size: int = 4) -> None:
        """Store the low ``size`` bytes of ``value``."""
        self._command(self._write_line(address, value, size))

    def write_many(self, writes: Sequence[tuple[int, int, int]]) -> None:
        """Store a sequence of (address, value, size) in order, pipelined."""
        self._pipeline([self._write_line(*item) for item in writes])

    def read_many(self, reads: Sequence[tuple[int, int]]) -> list[int]:
        """Load a sequence of (address, size) in order, pipelined."""
        answers = self._pipeline([f"read{_SUFFIX[size]} {address:#x}" for address, size in reads])
        return [int(answer[0], 0) for answer in answers]

    def read_bytes(self, address: int, length: int) -> bytes:
        """Read memory through the CPU's address space."""
        parts = []
        for at in range(0, length, _BULK):
            part = min(_BULK, length - at)
            parts.append(base64.b64decode(self._command(f"b64read {address + at:#x} {part:#x}")[0]))
        return b"".join(parts)

    def write_bytes(self, address: int, data: bytes) -> None:
        """Write memory through the CPU's address space."""
        for at in range(0, len(data), _BULK):
            part = data[at : at + _BULK]
            text = base64.b64encode(part).decode()
            self._command(f"b64write {address + at:#x} {len(part):#x} {text}")

    def port_write(self, port: int, value: int, size: int = 4) -> None:
        """Write an I/O port (x86 only)."""
        self._command(f"out{_SUFFIX[size]} {port:#x} {value:#x}")

    def port_read(self, port: int, size: int = 4) -> int:
        """Read an I/O port (x86 only)."""
        return int(self._command(f"in{_SUFFIX[size]} {port:#x}")[0], 0)

    def clock_set(self, ns: int) -> None:
        """Advance the virtual clock to an absolute time."""
        self._command(f"clock_set {ns}")

    def clock_step(self, ns: int | None = None, limit_s: float = DEFAULT_LIMIT_S) -> int:
        """Advance the virtual clock by ``ns``, or to the next deadline; returns the new time.

        Timers on the way run before this returns, in order, each at its own time.
        """
        line = "clock_step" if ns is None else f"clock_step {ns}"
        return int(self._command(line, limit_s)[0])

    def clock_step_if_pending(self) -> bool:
        """Advance to the next deadline if there is one."""
        line = self._raw("clock_step", DEFAULT_LIMIT_S)
        if line.startswith("FAIL cannot advance"):
            return False
        self._check("clock_step", line)
        return True

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    @staticmethod
    def _write_line(address: int, value: int, size: int) -> str:
        return f"write{_SUFFIX[size]} {address:#x} {value & ((1 << (8 * size)) - 1):#x}"

    def _command(self, line: str, limit_s: float = DEFAULT_LIMIT_S) -> list[str]:
        return self._check(line, self._raw(line, limit_s))

    def _raw(self, line: str, limit_s: float) -> str:
        self._channel.send(line.encode() + b"\n", limit_s)
        return self._answer(line, limit_s)

    def _pipeline(self, lines: Iterable[str]) -> list[list[str]]:
        batch: list[str] = []
        answers: list[list[str]] = []

        def flush() -> None:
            self._channel.send("".join(line + "\n" for line in batch).encode())
            answers.extend(self._check(line, self._answer(line, DEFAULT_LIMIT_S)) for line in batch)
            batch.clear()

        for line in lines:
            batch.append(line)
            if len(batch) == _WINDOW:
                flush()
        if batch:
            flush()
        return answers

    def _answer(self, line: str, limit_s: float) -> str:
        while True:
            answer = self._channel.receive_line(f"the answer to qtest '{line[:60]}'", limit_s).decode()
            if not answer.startswith("IRQ "):
                return answer

    @staticmethod
    def _check(line: str, answer: str) -> list[str]:
        words = answer.split()
        if not words or words[0] != "OK":
            raise QtestError(f"qtest '{line[:60]}': {answer}")
        return words[1:]
