# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands in the guest over the command port: a plain shell behind a virtio-serial port.

Nothing else travels there: no echo, no prompt, no kernel message.  Each request carries a
random mark and each answer a header with lengths, so every byte of the output is exact.

The shell runs a command as a background job of its own session and reads the next line at
once.  That keeps the port usable while a command runs: a command over its budget is killed
from the same shell.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pexpect
from pexpect import fdpexpect

from ummulab.vm.errors import CommandFailed, VmError, VmTimeout
from ummulab.vm.qmp import Health

SLICE_SECONDS = 0.25
CHUNK = 1 << 20
KILL_BUDGET = 10.0
# The kernel of the guest refuses a single argument beyond 128 KiB.
MAX_SCRIPT = 100_000

# Every process costs milliseconds under TCG: no folder to make, one "stat" for both sizes, clean-up last.
_SCRIPT = (
    "T=/tmp/.ummulab-{mark}; {receive}"
    "( setsid sh -c {script} <{stdin} >$T.o 2>$T.e & p=$!; echo $p >$T.p; wait $p; s=$?; "
    "echo; echo {mark} A $s `stat -c %s $T.o $T.e`; cat $T.o $T.e; echo {mark} Z; rm -f $T.*"
    " ) </dev/null 2>/dev/null &\n"
)
_KILL = "{{ kill -KILL -`cat /tmp/.ummulab-{mark}.p`; }} 2>/dev/null\n"


@dataclass(frozen=True)
class Result:
    """What a guest command left: its status (128 + signal when killed), output and time in seconds."""

    status: int
    stdout: bytes
    stderr: bytes
    duration: float

    @property
    def text(self) -> str:
        """stdout as text."""
        return self.stdout.decode(errors="replace")


class CommandPort:
    """The harness's end of the port.  Safe to use from several threads: commands wait for each other."""

    def __init__(self, sock: socket.socket, *, health: Health, evidence: Callable[[], str]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._health = health
        self._evidence = evidence
        self._lock = threading.Lock()
        self._broken = False

    # -- public -------------------------------------------------------------------------------

    def sync(self, timeout: float, what: str = "the shell on the command port") -> None:
        """Wait until the shell answers; also finds the way back after an answer that never came."""
        with self._locked(timeout, what):
            self._sync(time.monotonic() + timeout, timeout, what)

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float,
        input: bytes | None = None,
        check: bool = False,
    ) -> Result:
        """Run a command; a string is a shell script, a sequence is a program with its arguments."""
        script = command if isinstance(command, str) else shlex.join(command)
        if "\0" in script:
            raise VmError("a guest command cannot contain a NUL byte")
        if len(script.encode()) > MAX_SCRIPT:
            raise VmError(
                f"guest command of {len(script.encode())} bytes is too long (limit {MAX_SCRIPT}): use put()"
            )
        what = f"guest command: {shorten(script)}"
        with self._locked(timeout, what):
            result = self._run(script, timeout, input, what)
        if check and result.status != 0:
            raise CommandFailed(shorten(script), result.status, result.stdout, result.stderr)
        return result

    # -- one exchange -------------------------------------------------------------------------

    def _locked(self, timeout: float, what: str) -> _Held:
        if not self._lock.acquire(timeout=timeout):
            raise VmTimeout(f"the command port to be free for {what}", timeout, self._evidence())
        return _Held(self._lock)

    def _run(self, script: str, timeout: float, data: bytes | None, what: str) -> Result:
        start = time.monotonic()
        deadline = start + timeout
        if self._broken:
            self._sync(deadline, timeout, f"the command port to recover before {what}")
        mark = secrets.token_hex(8)
        receive = "" if data is None else f"echo {mark} R; head -c {len(data)} >$T.i; "
        stdin = "/dev/null" if data is None else "$T.i"
        line = _SCRIPT.format(mark=mark, receive=receive, stdin=stdin, script=shlex.quote(script))
        self._broken = True  # until the whole answer is there
        try:
            self._send(line.encode(), deadline, timeout, what)
            if data is not None:
                # The shell may read ahead: the input follows only after "head" has taken over the port.
                self._expect(mark.encode() + rb" R\n", deadline, timeout, what)
                self._send(data, deadline, timeout, what)
            status, stdout, stderr = self._answer(mark, deadline, timeout, what)
        except VmTimeout as err:
            err.partial = self._kill(mark)
            raise
        self._broken = False
        return Result(status, stdout, stderr, time.monotonic() - start)

    def _answer(self, mark: str, deadline: float, timeout: float, what: str) -> tuple[int, bytes, bytes]:
        head, rest = self._expect(mark.encode() + rb" A (\d+) (\d+) (\d+)\n", deadline, timeout, what)
        status, out_size, err_size = (int(text) for text in head.groups())
        end = f"{mark} Z\n".encode()
        size = out_size + err_size + len(end)
        payload = self._read(rest, size, deadline, timeout, what)
        if payload[size - len(end) :] != end:
            raise VmError(f"broken answer on the command port to {what}: end mark missing")
        return status, bytes(payload[:out_size]), bytes(payload[out_size : out_size + err_size])

    def _kill(self, mark: str) -> bytes:
        """Kill a command that is over its budget; returns the output it had, if it can be had."""
        what = "a killed guest command to end"
        deadline = time.monotonic() + KILL_BUDGET
        try:
            self._send(_KILL.format(mark=mark).encode(), deadline, KILL_BUDGET, what)
            _, stdout, stderr = self._answer(mark, deadline, KILL_BUDGET, what)
        except VmTimeout:
            return b""  # the port stays marked as broken: the next command looks for the shell first
        self._broken = False
        return stdout + stderr

    def _sync(self, deadline: float, timeout: float, what: str) -> None:
        mark = secrets.token_hex(8)
        self._send(f"\necho {mark} S\n".encode(), deadline, timeout, what)
        self._expect(mark.encode() + rb" S\n", deadline, timeout, what)
        self._broken = False

    # -- bytes --------------------------------------------------------------------------------

    def _expect(
        self, pattern: bytes, deadline: float, timeout: float, what: str
    ) -> tuple[re.Match[bytes], bytes]:
        """Wait for a header with pexpect; returns the match and what was read beyond it."""
        # One object per header: its buffers then never hold more than one read beyond the match.
        spawn = fdpexpect.fdspawn(self._fd, timeout=None, maxread=65536, use_poll=True)
        expected = [re.compile(pattern), pexpect.TIMEOUT, pexpect.EOF]
        while True:
            left = deadline - time.monotonic()
            try:
                index = spawn.expect(expected, timeout=max(0.0, min(SLICE_SECONDS, left)))
            except OSError:  # a reset by the peer is an end as well
                index = 2
            if index == 0:
                match = spawn.match
                assert isinstance(match, re.Match)
                return match, bytes(spawn.buffer)
            self._not_yet(index == 2, left, timeout, what)

    def _read(self, start: bytes, size: int, deadline: float, timeout: float, what: str) -> bytearray:
        """Read a payload of known size in large pieces (pexpect's buffer would cost more with each one)."""
        data = bytearray(start)
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while len(data) < size:
            left = deadline - time.monotonic()
            if left > 0 and poll.poll(1000 * min(SLICE_SECONDS, left)):
                try:
                    piece = os.read(self._fd, min(CHUNK, size - len(data)))
                except ConnectionError:
                    piece = b""
                data += piece
                if piece:
                    continue
                self._not_yet(True, left, timeout, what)
            self._not_yet(False, left, timeout, f"{what} ({len(data)} of {size} bytes of the answer)")
        return data

    def _send(self, data: bytes, deadline: float, timeout: float, what: str) -> None:
        view = memoryview(data)
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        while view:
            left = deadline - time.monotonic()
            if left > 0 and poll.poll(1000 * min(SLICE_SECONDS, left)):
                try:
                    view = view[os.write(self._fd, view[:CHUNK]) :]
                    continue
                except ConnectionError:
                    self._not_yet(True, left, timeout, what)
            self._not_yet(False, left, timeout, f"the guest to take {len(view)} bytes for {what}")

    def _not_yet(self, ended: bool, left: float, timeout: float, what: str) -> None:
        self._health(f"waiting for {what}", lost=ended)
        if ended:
            raise VmError(f"command port closed while waiting for {what}")
        if left <= 0:
            raise VmTimeout(what, timeout, self._evidence())


class _Held:
    """Releases an already taken lock at the end of a ``with`` block."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def shorten(script: str, limit: int = 200) -> str:
    """One line of a script for messages."""
    line = " ".join(script.split())
    return line if len(line) <= limit else line[:limit] + "…"
