# SPDX-License-Identifier: GPL-2.0-or-later
"""A person's terminal on a VM's console: every key goes to the guest, one key leaves."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ESCAPE = b"\x1d"
ESCAPE_NAME = "Ctrl-]"
#: Why a session at a console ended: the other side did.
ENDED = "the VM ended"
_CHUNK = 65536
_SLICE_MS = 250


@contextmanager
def raw_terminal(fd: int) -> Iterator[None]:
    """Raw mode (Ctrl-C is a byte like any other); the terminal is put back whatever happens."""
    if not os.isatty(fd):
        yield
        return
    saved = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, saved)


@contextmanager
def on_resize(action: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Run ``action`` in the main flow after the terminal changed its size; yields the poll function."""
    changed = [False]

    def note(_signum: int, _frame: object) -> None:
        changed[0] = True

    def poll() -> None:
        if changed[0]:
            changed[0] = False
            action()

    previous = signal.signal(signal.SIGWINCH, note)
    try:
        yield poll
    finally:
        signal.signal(signal.SIGWINCH, previous)


def terminal_size() -> tuple[int, int]:
    """Columns and rows of the terminal, 80 x 24 if it has none."""
    # Not shutil's function: it believes COLUMNS and LINES, which a parent may have left from another terminal.
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def write_all(fd: int, data: bytes) -> None:
    """Write everything, waiting as long as the other side needs."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [], 1.0)


def pass_through(console_fd: int, tick: Callable[[], bool]) -> str:
    """Connect stdin and stdout with the console until one side ends; returns why it ended.

    ``tick`` is called a few times a second and returns False to stop.
    """
    stdin, stdout = sys.stdin.fileno(), sys.stdout.fileno()
    poll = select.poll()
    poll.register(console_fd, select.POLLIN)
    poll.register(stdin, select.POLLIN)
    with raw_terminal(stdin):
        while tick():
            try:
                ready = dict(poll.poll(_SLICE_MS))
            except InterruptedError:
                continue
            if console_fd in ready:
                data = _read(console_fd)
                if not data:
                    return ENDED
                write_all(stdout, data)
            if stdin in ready:
                data = _read(stdin)
                keys, escape, _ = data.partition(ESCAPE)
                with contextlib.suppress(ConnectionError):
                    write_all(console_fd, keys)
                if escape:
                    return "left"
                if not data:  # a script's input is over: let the guest finish talking
                    poll.unregister(stdin)
    return ENDED


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return b""
    except OSError:
        return b""
