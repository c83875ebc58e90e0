# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's kernel log: kept apart from everything else, complete, and watched for panics."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINES = 20000
MAX_LINE_BYTES = 8192
MAX_REPORTS = 1000
TRACE_LINES = 120
# After the panic line the trace follows within milliseconds; then the machine resets and the log ends.
SETTLE_SECONDS = 0.5

_PANIC = re.compile(r"Kernel panic - not syncing")
_PANIC_END = re.compile(r"end Kernel panic")
_REPORT = re.compile(
    r"(?:^|\] )(?:BUG: |KASAN: |KCSAN: |UBSAN: |WARNING: |INFO: task |INFO: possible recursive|rcu: INFO: "
    r"|Internal error: |Unable to handle kernel |Oops: |general protection fault|kernel BUG at "
    r"|watchdog: BUG: |DMA-API: |kmemleak: \d+ new)"
)
_TIME = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[[^]]*\])? ?")


@dataclass(frozen=True)
class KernelReport:
    """A line of the kernel log that says something is wrong."""

    time: float  #: host's monotonic clock, seconds
    line_number: int  #: from 1
    text: str


class KernelLog:
    """Collects the log; ``feed`` runs in the I/O thread, everything else anywhere."""

    def __init__(self, log_file: BinaryIO | None = None) -> None:
        self.eof = threading.Event()
        self.panicked = threading.Event()
        self.reports: list[KernelReport] = []
        self.reports_dropped = 0
        self.lines_total = 0
        #: Called with each line, in the I/O thread: for showing the log as it comes.
        self.on_line: Callable[[str], None] | None = None
        self._complete = threading.Event()
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._partial = b""
        self._file = log_file
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Take bytes as they come from the serial port."""
        if self._file is not None:
            self._file.write(data)
            self._file.flush()
        with self._lock:
            *lines, rest = (self._partial + data).split(b"\n")
            for raw in lines:
                self._add(raw)
            if len(rest) > MAX_LINE_BYTES:
                self._add(rest)
                rest = b""
            self._partial = rest

    def finish(self) -> None:
        """Note the end of the stream."""
        with self._lock:
            if self._partial:
                self._add(self._partial)
                self._partial = b""
        self._complete.set()
        self.eof.set()

    def _add(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\r")
        self._lines.append(line)
        self.lines_total += 1
        if self.on_line is not None:
            self.on_line(line)
        if _PANIC.search(line) and not _PANIC_END.search(line):
            self.panicked.set()
        if _PANIC_END.search(line):
            self._complete.set()
        if _REPORT.search(line):
            if len(self.reports) < MAX_REPORTS:
                self.reports.append(KernelReport(time.monotonic(), self.lines_total, line))
            else:
                self.reports_dropped += 1

    def tail(self, count: int = 30) -> list[str]:
        """Return the last lines, the unfinished one included."""
        with self._lock:
            lines = list(self._lines)[-count:]
            if self._partial:
                lines.append(self._partial.decode(errors="replace"))
            return lines[-count:]

    def text(self) -> str:
        """Return all kept lines as one string."""
        return "".join(line + "\n" for line in self.tail(MAX_LINES))

    @property
    def lines_dropped(self) -> int:
        """How many of the oldest lines are no longer kept in memory (the log file has them)."""
        return max(0, self.lines_total - MAX_LINES)

    def panic_text(self) -> str:
        """Return the panic with its stack, from the first report that led to it; waits for a complete trace."""
        self._complete.wait(SETTLE_SECONDS)
        lines = self.tail(MAX_LINES)
        panic = next((i for i, line in enumerate(lines) if _PANIC.search(line)), len(lines) - 1)
        start = panic
        for index in range(panic, max(-1, panic - TRACE_LINES), -1):
            if _REPORT.search(lines[index]):
                start = index
        return "\n".join(lines[start : start + TRACE_LINES])

    def panic_reason(self) -> str:
        """Return the panic line without its time stamp, or an empty string."""
        for line in self.tail(MAX_LINES):
            if _PANIC.search(line):
                return _TIME.sub("", line)
        return ""
