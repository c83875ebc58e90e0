# SPDX-License-Identifier: GPL-2.0-or-later
"""QMP with a synchronous front: ``qemu.qmp`` on the shared loop, all events kept in order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from qemu.qmp import ExecInterruptedError, ExecuteError, QMPClient, Runstate

from ummulab.vm.errors import QmpError, VmError, VmTimeout
from ummulab.vm.loop import LoopThread

MAX_EVENTS = 200_000
MAX_TRANSCRIPT = 2000
MAX_TRANSCRIPT_LINE = 2000
# How long one wait sleeps before it looks at the health of the VM again.
SLICE_SECONDS = 0.25

# The library logs protocol errors by itself; ours carry them as exceptions.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


class Health(Protocol):
    """Raises when the VM is dead or its guest has panicked; ``what`` says what the caller was doing.

    ``lost``: a connection has ended, so give the process's end a moment to be seen.
    """

    def __call__(self, what: str, *, panic_only: bool = False, lost: bool = False) -> None: ...


@dataclass(frozen=True)
class Event:
    """A QMP event with its place in the order of arrival."""

    index: int
    time: float  #: host's monotonic clock at arrival, seconds
    name: str
    data: Mapping[str, Any]
    timestamp: Mapping[str, int]  #: as QEMU sent it (seconds, microseconds)


class Qmp:
    """A QMP session over a connected socket.

    ``health`` is called in every wait and raises when waiting makes no sense any more
    (QEMU dead, guest panicked); ``evidence`` is added to time-out errors.
    """

    def __init__(
        self,
        loop: LoopThread,
        *,
        health: Health,
        evidence: Callable[[], str],
        max_events: int = MAX_EVENTS,
    ) -> None:
        self.closed = threading.Event()
        self.close_reason = ""
        self.events_dropped = 0
        self.transcript: deque[str] = deque(maxlen=MAX_TRANSCRIPT)
        self._loop = loop
        self._health = health
        self._evidence = evidence
        self._events: list[Event] = []
        self._max_events = max_events
        self._cond = threading.Condition(threading.RLock())
        self._client: QMPClient | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._started = time.monotonic()

    @property
    def connected(self) -> bool:
        """Whether a session was ever established."""
        return self._client is not None

    # -- connection ---------------------------------------------------------------------------

    def connect(self, sock: socket.socket, timeout: float, what: str = "the QMP greeting") -> None:
        """Take over the socket, wait for the greeting and negotiate capabilities."""
        future = self._loop.submit(self._connect(sock))
        try:
            self._await(future, timeout, what)
        except VmTimeout:
            future.cancel()
            raise

    async def _connect(self, sock: socket.socket) -> None:
        client = QMPClient("ummulab")
        # The library's listener keeps every event for ever; a filter that stores and then
        # declines sees each one, in order, the moment it is read.
        client.events.event_filter = self._take_event
        try:
            await client.connect(sock)
        except asyncio.CancelledError:
            raise
        except Exception as err:
            raise VmError(f"QMP connection failed: {err}") from err
        self._client = client
        self._watcher = asyncio.create_task(self._watch(client))

    async def _watch(self, client: QMPClient) -> None:
        # The library wants to be told to disconnect even when the peer went away first; without
        # that it prints an un-retrieved EOFError when it is collected.
        while client.runstate == Runstate.RUNNING:
            await client.runstate_changed()
        try:
            await client.disconnect()
        except EOFError:
            self.close_reason = "QEMU closed the connection"
        except Exception as err:  # the reason is kept for the error message, whatever it is
            self.close_reason = str(err) or type(err).__name__
        with self._cond:
            self.closed.set()
            self._cond.notify_all()

    def close(self, timeout: float = 5.0) -> None:
        """Disconnect in order.  Harmless when the peer has gone already."""
        client = self._client
        if client is None or self.closed.is_set():
            return

        async def disconnect() -> None:
            with contextlib.suppress(Exception):
                await client.disconnect()

        self._loop.submit(disconnect()).result(timeout)
        self.closed.wait(timeout)

    # -- commands -----------------------------------------------------------------------------

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None, timeout: float = 10.0) -> Any:
        """Run one command and return its answer.

        Raises QmpError when QEMU refuses, VmTimeout (naming the command) when no answer comes,
        VmDied or GuestPanic as soon as that is known.
        """
        self._note("->", {"execute": command, **({"arguments": dict(arguments)} if arguments else {})})
        future = self._loop.submit(self._execute(command, arguments))
        try:
            answer = self._await(future, timeout, f"the answer to QMP command {command}")
        except VmTimeout:
            future.cancel()
            raise
        except ExecuteError as err:
            self._note("<-", {"error": err.error.error.desc})
            info = err.error.error
            raise QmpError(command, info.class_, info.desc) from None
        self._note("<-", {"return": answer})
        return answer

    async def _execute(self, command: str, arguments: Mapping[str, Any] | None) -> Any:
        if self._client is None or self._client.runstate != Runstate.RUNNING:
            raise ConnectionResetError("no QMP connection")
        return await self._client.execute(command, dict(arguments) if arguments else None)

    def hmp(self, line: str, timeout: float = 10.0) -> str:
        """Run a command of the human monitor and return its text."""
        return str(self.execute("human-monitor-command", {"command-line": line}, timeout))

    def _await(self, future: concurrent.futures.Future[Any], budget: float, what: str) -> Any:
        deadline = time.monotonic() + budget
        while True:
            remaining = deadline - time.monotonic()
            try:
                return future.result(max(0.0, min(SLICE_SECONDS, remaining)))
            except concurrent.futures.TimeoutError:
                self._health(f"waiting for {what}")
                if remaining <= 0:
                    raise VmTimeout(what, budget, self._evidence()) from None
            except (ExecInterruptedError, ConnectionError, VmError, EOFError) as err:
                self._health(f"waiting for {what}", lost=True)
                raise VmError(
                    f"QMP connection lost while waiting for {what}: {self.close_reason or err}"
                ) from err

    # -- events -------------------------------------------------------------------------------

    def _take_event(self, message: Mapping[str, Any]) -> bool:
        with self._cond:
            index = self.events_dropped + len(self._events)
            name, data = str(message.get("event")), message.get("data", {})
            self._events.append(Event(index, time.monotonic(), name, data, message.get("timestamp", {})))
            if len(self._events) > self._max_events:
                # In lumps: removing the front one by one would be quadratic.
                lump = max(1, self._max_events // 10)
                del self._events[:lump]
                self.events_dropped += lump
            self._cond.notify_all()
        self._note("<-", message)
        return False

    def events(self, since: int = 0) -> list[Event]:
        """Return all kept events from position ``since``; also after QEMU has ended."""
        with self._cond:
            return self._events[max(0, since - self.events_dropped) :]

    def mark(self) -> int:
        """Return the position after the newest event, for ``since=`` later."""
        with self._cond:
            return self.events_dropped + len(self._events)

    def wait_event(
        self,
        name: str,
        timeout: float,
        predicate: Callable[[Event], bool] | None = None,
        since: int = 0,
    ) -> Event:
        """Return the first matching event from position ``since`` on, one that came before the call included."""
        what = f"QMP event {name}"
        deadline = time.monotonic() + timeout
        position = since
        while True:
            closed = (
                self.closed.is_set()
            )  # read first: nothing arrives after it, so the search below is final
            for event in self.events(position):
                position = event.index + 1
                if event.name == name and (predicate is None or predicate(event)):
                    return event
            if closed:
                self._health(f"waiting for {what}", lost=True)
                raise VmError(f"QMP connection ended without event {name}: {self.close_reason}")
            self._health(f"waiting for {what}", panic_only=True)
            if time.monotonic() >= deadline:
                raise VmTimeout(what, timeout, self._evidence())
            with self._cond:
                if self.mark() <= position and not self.closed.is_set():
                    self._cond.wait(max(0.0, min(SLICE_SECONDS, deadline - time.monotonic())))

    def _note(self, direction: str, message: Mapping[str, Any]) -> None:
        text = json.dumps(message, default=str)
        if len(text) > MAX_TRANSCRIPT_LINE:
            text = text[:MAX_TRANSCRIPT_LINE] + f"… ({len(text)} characters)"
        self.transcript.append(f"{time.monotonic() - self._started:10.6f} {direction} {text}")
