# SPDX-License-Identifier: GPL-2.0-or-later
"""A line-based channel over one end of a socketpair, with a limit on every wait.

The other end is inherited by QEMU.  No path, no port: nothing to clean up, nothing for two runs to collide
on, and the end of QEMU is seen at once as end of file.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from ummulab.qtest.errors import QtestTimeout

#: Seconds any single answer may take.  Generous: a loaded machine is not a failure.
DEFAULT_LIMIT_S = 30.0


class LineChannel:
    """Send bytes, receive lines."""

    def __init__(
        self, sock: socket.socket, name: str, evidence: Callable[[], str], died: Callable[[str], Exception]
    ) -> None:
        """``evidence`` is shown when a wait runs out; ``died(doing)`` makes the error for a closed peer."""
        self._sock = sock
        self._name = name
        self._evidence = evidence
        self._died = died
        self._pending = bytearray()
        self._scanned = 0

    def send(self, data: bytes, limit_s: float = DEFAULT_LIMIT_S) -> None:
        """Send all of ``data``."""
        self._sock.settimeout(limit_s)
        try:
            self._sock.sendall(data)
        except TimeoutError:
            raise QtestTimeout(f"{self._name} to take {len(data)} bytes", limit_s, self._evidence()) from None
        except OSError:
            raise self._died(f"sending to {self._name}") from None

    def receive_line(self, what: str, limit_s: float = DEFAULT_LIMIT_S) -> bytes:
        """Return the next line without its end."""
        self._sock.settimeout(limit_s)
        while True:
            end = self._pending.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._pending[:end])
                del self._pending[: end + 1]
                self._scanned = 0
                return line
            self._scanned = len(self._pending)
            try:
                data = self._sock.recv(1 << 20)
            except TimeoutError:
                raise QtestTimeout(f"{what} on {self._name}", limit_s, self._evidence()) from None
            except OSError:
                data = b""
            if not data:
                raise self._died(f"waiting for {what}")
            self._pending += data

    def close(self) -> None:
        """Close our end."""
        self._sock.close()
