# SPDX-License-Identifier: GPL-2.0-or-later
"""A small synchronous QMP client for device tests.

Device tests need neither an event loop nor a thread: a command, its answer, the events that came meanwhile.
Events are kept in order and never dropped while an answer is awaited.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ummulab.qtest.channel import DEFAULT_LIMIT_S, LineChannel
from ummulab.qtest.errors import QmpCommandError, QtestError, QtestTimeout

Json = dict[str, Any]
#: Questions sent before their answers are read: well below what the sockets hold.
_PACKET = 64


class QmpClient:
    """QMP over a line channel."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel
        self._events: deque[Json] = deque()

    def handshake(self) -> Json:
        """Read the greeting and leave negotiation mode; returns the greeting."""
        greeting = self._read("the QMP greeting", DEFAULT_LIMIT_S)
        if "QMP" not in greeting:
            raise QtestError(f"not a QMP greeting: {greeting!r}")
        self.command("qmp_capabilities")
        return greeting

    def command(self, name: str, limit_s: float = DEFAULT_LIMIT_S, **arguments: Any) -> Any:
        """Run one command and return its ``return`` value.  Argument names: ``_`` stands for ``-``."""
        self._channel.send(_line(name, arguments), limit_s)
        return self._answer(name, limit_s)

    def _answer(self, name: str, limit_s: float = DEFAULT_LIMIT_S) -> Any:
        while True:
            answer = self._read(f"the answer to QMP {name}", limit_s)
            if "event" in answer:
                self._events.append(answer)
            elif "error" in answer:
                raise QmpCommandError(name, answer["error"]["class"], answer["error"]["desc"])
            else:
                return answer["return"]

    def wait_event(self, *names: str, limit_s: float = DEFAULT_LIMIT_S) -> Json:
        """Return the first event with one of ``names``, also one that came earlier; others stay queued."""
        for event in self._events:
            if event["event"] in names:
                self._events.remove(event)
                return event
        deadline = time.monotonic() + limit_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                seen = ", ".join(e["event"] for e in self._events) or "none"
                raise QtestTimeout(f"QMP event {' or '.join(names)}", limit_s, f"events seen: {seen}")
            message = self._read(f"QMP event {' or '.join(names)}", left)
            if message.get("event") in names:
                return message
            self._events.append(message)

    def take_events(self) -> list[Json]:
        """Return and forget all events received so far."""
        events = list(self._events)
        self._events.clear()
        return events

    def qom_get(self, path: str, name: str) -> Any:
        """Read one QOM property."""
        return self.command("qom-get", path=path, property=name)

    def qom_set(self, path: str, name: str, value: Any) -> None:
        """Write one QOM property."""
        self.command("qom-set", path=path, property=name, value=value)

    def qom_ask(self, path: str, question: str, value: Any, answer: str) -> Any:
        """Write the property ``question`` and read ``answer``, sent together: one round trip instead of two."""
        lines = _line("qom-set", {"path": path, "property": question, "value": value})
        self._channel.send(lines + _line("qom-get", {"path": path, "property": answer}))
        try:
            self._answer("qom-set")
        except QmpCommandError:
            self._answer("qom-get")
            raise
        return self._answer("qom-get")

    def qom_ask_many(self, path: str, question: str, values: Sequence[Any], answer: str) -> list[Any]:
        """As :meth:`qom_ask` for many values; they travel in packets, each one round trip."""
        answers: list[Any] = []
        get = _line("qom-get", {"path": path, "property": answer})
        for start in range(0, len(values), _PACKET):
            packet = values[start : start + _PACKET]
            lines = [
                _line("qom-set", {"path": path, "property": question, "value": value}) + get
                for value in packet
            ]
            self._channel.send(b"".join(lines))
            for _ in packet:
                self._answer("qom-set")
                answers.append(self._answer("qom-get"))
        return answers

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _read(self, what: str, limit_s: float) -> Json:
        message: Json = json.loads(self._channel.receive_line(what, limit_s))
        return message


def _line(name: str, arguments: Json) -> bytes:
    message: Json = {"execute": name}
    if arguments:
        message["arguments"] = {key.replace("_", "-"): value for key, value in arguments.items()}
    return json.dumps(message).encode() + b"\n"
