# SPDX-License-Identifier: GPL-2.0-or-later
"""Byte channels between the harness and QEMU: connected socket pairs handed over by number.

No name in any file system and no port number: nothing to collide, nothing to clean up, no length limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Callable
from io import FileIO
from typing import BinaryIO

from ummulab.vm.loop import LoopThread

TAIL_BYTES = 256 * 1024
READ_BYTES = 256 * 1024


class Tail:
    """The last bytes of a stream, bounded; optionally the whole stream in a file."""

    def __init__(self, log_file: BinaryIO | None = None, limit: int = TAIL_BYTES) -> None:
        self._data = bytearray()
        self._limit = limit
        self._file = log_file
        self._lock = threading.Lock()
        self.total = 0

    def write(self, data: bytes) -> None:
        """Append; also the interface pexpect wants of a log file."""
        with self._lock:
            self.total += len(data)
            self._data += data
            # Cut rarely: moving the front on each write would be quadratic.
            if len(self._data) > 2 * self._limit:
                del self._data[: len(self._data) - self._limit]
            if self._file is not None:
                self._file.write(data)

    def flush(self) -> None:
        """Flush the file behind, if any."""
        if self._file is not None:
            self._file.flush()

    def data(self) -> bytes:
        """Return the last bytes."""
        with self._lock:
            return bytes(self._data[-self._limit :])

    def lines(self, count: int = 30) -> list[str]:
        """Return the last lines as text."""
        text = self.data().decode(errors="replace")
        return text.replace("\r\n", "\n").split("\n")[-count:]


class Channel:
    """Our end of a socket pair plus, until QEMU runs, the other end."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    @property
    def child_fd(self) -> int:
        """The number QEMU inherits."""
        return self.theirs.fileno()

    def started(self) -> None:
        """Close the child's end here, so that QEMU's death shows as end of file."""
        self.theirs.close()

    def close(self) -> None:
        """Close what is still open."""
        with contextlib.suppress(OSError):
            self.theirs.close()
        with contextlib.suppress(OSError):
            self.ours.close()


class LogPipe:
    """Like :class:`Channel`, from QEMU to us only.

    A serial port hands over single bytes.  A socket counts some hundred bytes for each of them and is soon
    full, and the guest then waits in real time for us to read; a pipe takes a million.
    """

    BYTES = 1 << 20

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self.ours = os.fdopen(reader, "rb", buffering=0)
        with contextlib.suppress(OSError):  # more than this system allows: 64 KiB must do
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, self.BYTES)

    @property
    def child_fd(self) -> int:
        """The number QEMU inherits."""
        return self._writer

    def started(self) -> None:
        """Close the child's end here, so that QEMU's death shows as end of file."""
        writer, self._writer = self._writer, -1
        if writer >= 0:
            os.close(writer)

    def close(self) -> None:
        """Close what is still open."""
        self.started()
        self.ours.close()


class Pump:
    """Moves everything a socket or pipe delivers into a function, in the I/O thread."""

    def __init__(
        self,
        loop: LoopThread,
        sock: socket.socket | FileIO,
        sink: Callable[[bytes], None],
        on_eof: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._sink = sink
        self._on_eof = on_eof
        self._active = False
        self.ended = threading.Event()
        os.set_blocking(sock.fileno(), False)
        if isinstance(sock, socket.socket):
            sock.setblocking(False)
        loop.call(self._start)

    def _start(self) -> None:
        self._loop.loop.add_reader(self._sock.fileno(), self._readable)
        self._active = True

    def _readable(self) -> None:
        try:
            data = os.read(self._sock.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._sink(data)
            return
        self._stop()
        self.ended.set()
        self._on_eof()

    def _stop(self) -> None:
        if self._active:
            self._active = False
            self._loop.loop.remove_reader(self._sock.fileno())

    def detach(self) -> None:
        """Stop reading and leave the socket to somebody else."""
        self._loop.call(self._stop)
