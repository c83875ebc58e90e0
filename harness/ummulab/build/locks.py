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


#: Descriptors of the locks held now.
_held: list[int] = []


def held_descriptors() -> tuple[int, ...]:
    """What a build tool inherits: should we be killed, the lock stays until the tool has ended as well."""
    return tuple(_held)


@contextmanager
def locked(
    name: str, reporter: Reporter, limit: float = LOCK_SECONDS, *, shared: bool = False
) -> Iterator[None]:
    """Hold the lock ``name``; say so when another process has it, and give up after ``limit`` seconds.

    Any number of holders may have it ``shared`` at once.  The kernel drops the lock when its holder
    and the tools that it started are gone, however they ended, so there is nothing to clean up.
    """
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path = writable(cache_dir() / "locks") / name
    with path.open("a+") as file:
        start = time.monotonic()
        told = False
        while True:
            try:
                fcntl.flock(file, operation | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    reporter.note(f"waiting for another ummulab that is working on {name}")
                    told = True
                if time.monotonic() - start > limit:
                    raise UserError(f"another ummulab still holds {path} after {limit:.0f} s") from None
                time.sleep(0.2)
        _held.append(file.fileno())
        try:
            yield
        finally:
            _held.remove(file.fileno())
