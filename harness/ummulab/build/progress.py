# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress of long steps on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PLAIN_INTERVAL = 20.0


class Step(Protocol):
    """One running step."""

    def update(self, done: int, total: int) -> None:
        """``done`` of ``total`` units are finished."""

    def tick(self) -> None:
        """Time has passed; nothing countable happened."""


class Reporter(Protocol):
    """Where progress goes."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def step(self, text: str, seconds: float) -> AbstractContextManager[Step]:
        """A long step that is expected to take ``seconds`` here."""


def expected(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def scaled(seconds: float) -> float:
    """Scale a duration measured on 2 cores, of parallel work, to this machine."""
    return max(seconds * 2 / (os.cpu_count() or 2), 5.0)


def jobs() -> int:
    """How many compilers to run at once."""
    wanted = os.environ.get("UMMULAB_JOBS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else os.cpu_count() or 2


def _say(text: str) -> None:
    print(f"ummulab: {text}", file=sys.stderr, flush=True)


class _PlainStep:
    def __init__(self, text: str, seconds: float) -> None:
        self._text = text
        self._seconds = seconds
        self._start = self._last = time.monotonic()
        self._count = ""

    def update(self, done: int, total: int) -> None:
        self._count = f", {done} of {total}"
        self.tick()

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._last >= PLAIN_INTERVAL:
            self._last = now
            passed = now - self._start
            _say(f"  … {self._text}: {passed:.0f} s of about {expected(self._seconds)}{self._count}")


class PlainReporter:
    """Lines without colour or cursor movement: logs, pipes, NO_COLOR, CI."""

    def note(self, text: str) -> None:
        """Print one line."""
        _say(text)

    @contextmanager
    def step(self, text: str, seconds: float) -> Iterator[Step]:
        """Print a line at the start, at the end and now and then between."""
        _say(f"{text} (about {expected(seconds)})")
        start = time.monotonic()
        yield _PlainStep(text, seconds)
        _say(f"{text}: done after {time.monotonic() - start:.0f} s")


class _RichStep:
    def __init__(self, bar: RichProgress, task: TaskID, seconds: float) -> None:
        self._bar = bar
        self._task = task
        self._seconds = seconds
        self._start = time.monotonic()
        self._counted = False

    def update(self, done: int, total: int) -> None:
        self._counted = True
        self._bar.update(self._task, completed=done, total=total)

    def tick(self) -> None:
        if not self._counted:
            # Nothing to count: show time against the expectation, never quite full.
            passed = min(time.monotonic() - self._start, self._seconds * 0.97)
            self._bar.update(self._task, completed=passed, total=self._seconds)


class RichReporter:
    """A bar per step on a terminal."""

    def note(self, text: str) -> None:
        """Print one line."""
        _say(text)

    @contextmanager
    def step(self, text: str, seconds: float) -> Iterator[Step]:
        """Show a bar while the step runs and leave one line behind."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (
            TextColumn("ummulab: {task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn(f"of about {expected(seconds)}"),
        )
        start = time.monotonic()
        with Progress(*columns, console=console, transient=True) as bar:
            yield _RichStep(bar, bar.add_task(text, total=seconds), seconds)
        _say(f"{text}: done after {time.monotonic() - start:.0f} s")


class QuietReporter(PlainReporter):
    """For tests: says nothing."""

    def note(self, text: str) -> None:
        """Drop the line."""

    @contextmanager
    def step(self, text: str, seconds: float) -> Iterator[Step]:
        """Run the step in silence."""
        step = _PlainStep(text, seconds)
        step._last = float("inf")
        yield step


def default_reporter() -> Reporter:
    """The reporter for this process's stderr."""
    fancy = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return RichReporter() if fancy else PlainReporter()
