# SPDX-License-Identifier: GPL-2.0-or-later
"""One background asyncio loop for a whole process, with a synchronous front.

QMP is asynchronous by nature (events arrive at any time), tests are not.  All
sockets of all VMs are served by one daemon thread; nothing is lost while the
test does something else.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An asyncio event loop running in its own daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="ummulab-io", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, coro: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop and return its future."""
        return asyncio.run_coroutine_threadsafe(coro, self.loop)

    def call(self, func: Callable[..., T], *args: Any, timeout: float = 10.0) -> T:
        """Run a plain function in the loop's thread and return what it returns."""

        async def wrapper() -> T:
            return func(*args)

        return self.submit(wrapper()).result(timeout)


_lock = threading.Lock()
_loops: dict[int, LoopThread] = {}


def shared_loop() -> LoopThread:
    """Return this process's loop thread; a forked child gets one of its own."""
    with _lock:
        pid = os.getpid()
        if pid not in _loops:
            _loops.clear()
            _loops[pid] = LoopThread()
        return _loops[pid]
