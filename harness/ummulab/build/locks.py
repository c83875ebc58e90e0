# SPDX-License-Identifier: GPL-2.0-or-later
"""File locks between ummulab processes of one user."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter
from ummulab.errors import UserError

#: Longer than any build step on a slow machine.
LOCK_SECONDS = 3600.0


@contextmanager
def locked(name: str, reporter: Reporter, limit: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock ``name``; say so when another process has it, and give up after ``limit`` seconds.

    The kernel drops the lock when its holder dies, however it dies, so there is nothing to clean up.
    """
    path = writable(cache_dir() / "locks") / name
    with path.open("a+") as file:
        start = time.monotonic()
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    reporter.note(f"waiting for another ummulab that is working on {name}")
                    told = True
                if time.monotonic() - start > limit:
                    raise UserError(f"another ummulab still holds {path} after {limit:.0f} s") from None
                time.sleep(0.2)
        yield
