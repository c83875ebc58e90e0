# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMU process: start, death notice, and no survivors when the harness dies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ummulab.vm.errors import VmError
from ummulab.vm.loop import LoopThread

STDERR_TAIL_LINES = 10

# setpriv arms the parent-death signal in the child itself; the shell then closes the window between
# fork and that call: if the harness died meanwhile, the parent is another process and QEMU never starts.
# (A Python preexec_fn would do the same, but forking a threaded interpreter is deprecated.)
_GUARD = 'test "$PPID" = "$1" || exit 125; shift; exec "$@"'


def guarded(argv: Sequence[str]) -> list[str]:
    """Wrap a command line so that the process is killed when this process dies, however it dies."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise VmError("setpriv not found (Debian package util-linux)")
    return [setpriv, "--pdeathsig", "KILL", "/bin/sh", "-c", _GUARD, "guard", str(os.getpid()), *argv]


class QemuProcess:
    """A running QEMU.  It is our direct child, so its pid cannot be reused before we reap it."""

    def __init__(
        self,
        loop: LoopThread,
        argv: Sequence[str],
        *,
        pass_fds: Sequence[int],
        stderr_path: Path | None,
        on_exit: Callable[[], None],
    ) -> None:
        self.argv = list(argv)
        self.exited = threading.Event()
        self.returncode: int | None = None
        self._loop = loop
        self._on_exit = on_exit
        self._stderr_fd = _open_stderr(stderr_path)
        # The parent-death signal follows the *thread* that forked; the loop's thread lives as long as we do.
        try:
            loop.call(self._spawn, tuple(pass_fds))
        except OSError as err:
            os.close(self._stderr_fd)
            raise VmError(f"cannot start {argv[0]}: {err.strerror}") from err

    @property
    def pid(self) -> int:
        """Process id of QEMU (the guard execs, it does not fork)."""
        return self._popen.pid

    def _spawn(self, pass_fds: tuple[int, ...]) -> None:
        self._popen = subprocess.Popen(
            guarded(self.argv),
            stdin=subprocess.DEVNULL,
            stdout=self._stderr_fd,
            stderr=self._stderr_fd,
            pass_fds=pass_fds,
            # Ctrl-C in the terminal belongs to us: QEMU is stopped in order, or by the death signal.
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._loop.loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        self._loop.loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.returncode = self._popen.wait()
        self.exited.set()
        self._on_exit()

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Send a signal, unless the process has ended (checked in the thread that reaps it: no pid reuse)."""

        def send() -> None:
            if not self.exited.is_set():
                os.kill(self.pid, sig)

        with contextlib.suppress(ProcessLookupError):
            self._loop.call(send)

    def wait(self, timeout: float) -> int | None:
        """Wait for the end; returns the exit status, negative for a signal, None when the time is over."""
        self.exited.wait(timeout)
        return self.returncode

    def state(self) -> str:
        """One word on what the process does now, from the kernel's point of view."""
        if self.exited.is_set():
            return f"ended with {describe_exit(self.returncode)}"
        try:
            letter = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "gone"
        names = {
            "R": "running",
            "S": "sleeping",
            "T": "stopped by a signal",
            "t": "traced",
            "D": "in disk wait",
        }
        return names.get(letter, letter)

    def is_stopped(self) -> bool:
        """Whether a signal or a debugger holds the process, so that it cannot answer."""
        return self.state() in ("stopped by a signal", "traced")

    def stderr_text(self, limit: int = 65536) -> str:
        """Return the end of what QEMU wrote to its stderr and stdout."""
        size = os.fstat(self._stderr_fd).st_size
        data = os.pread(self._stderr_fd, limit, max(0, size - limit))
        return data.decode(errors="replace")

    def stderr_tail(self) -> list[str]:
        """Return the last lines of QEMU's stderr."""
        return self.stderr_text().splitlines()[-STDERR_TAIL_LINES:]

    def close(self) -> None:
        """Release the log file; call after the process has ended."""
        if self._stderr_fd >= 0:
            os.close(self._stderr_fd)
            self._stderr_fd = -1


def _open_stderr(path: Path | None) -> int:
    # A file, never a pipe: an undrained pipe blocks QEMU.  Without a log folder nothing shall be left behind.
    if path is None:
        return os.memfd_create("ummulab-stderr")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)


def describe_exit(code: int | None) -> str:
    """Say an exit status in words: ``status 1`` or ``signal SIGKILL``."""
    if code is None:
        return "no status"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
        return f"signal {-code}"
    return f"status {code}"
