# SPDX-License-Identifier: GPL-2.0-or-later
"""One QEMU process with its qtest and QMP channels and its guest RAM as a shared memory file."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ummulab.qtest.channel import LineChannel
from ummulab.qtest.errors import QemuDied, QtestError
from ummulab.qtest.protocol import QtestClient
from ummulab.qtest.qmp import QmpClient

_STDERR_TAIL = 4000
_PR_SET_PDEATHSIG = 1


class SharedRam:
    """Guest RAM in an anonymous memory file: QEMU maps it shared, so do we."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = os.memfd_create("ummulab-ram", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)

    def close(self) -> None:
        """Unmap and forget the file."""
        with contextlib.suppress(BufferError):  # a test may still hold a memoryview; the process owns it then
            self.map.close()
        os.close(self.fd)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class QemuProcess:
    """Starts QEMU, ends it, and turns its death into an error that says why."""

    def __init__(self, argv: Sequence[str], ram: SharedRam) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        qtest_ours, qtest_theirs = socket.socketpair()
        qmp_ours, qmp_theirs = socket.socketpair()
        inherited = (qtest_theirs.fileno(), qmp_theirs.fileno(), ram.fd)
        self.argv = [
            *argv,
            "-chardev",
            f"socket,id=ummulab-qtest,fd={inherited[0]}",
            "-qtest",
            "chardev:ummulab-qtest",
            # By default QEMU writes each command to stderr, several system calls for each.
            "-qtest-log",
            "none",
            "-chardev",
            f"socket,id=ummulab-qmp,fd={inherited[1]}",
            "-mon",
            "chardev=ummulab-qmp,mode=control",
        ]
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=inherited,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            for sock in (qtest_ours, qmp_ours):
                sock.close()
            self._stderr.close()
            raise QtestError(f"cannot start {argv[0]}: {error.strerror}") from error
        finally:
            qtest_theirs.close()
            qmp_theirs.close()
        self.qtest = QtestClient(LineChannel(qtest_ours, "the qtest socket", self.stderr_tail, self._died))
        self.qmp = QmpClient(LineChannel(qmp_ours, "the QMP socket", self.stderr_tail, self._died))

    @property
    def pid(self) -> int:
        """Process id of QEMU."""
        return self._process.pid

    def stderr_tail(self) -> str:
        """The last part of what QEMU printed, and before it what QEMU itself said if a sanitizer has said more."""
        size = os.fstat(self._stderr.fileno()).st_size
        if size <= _STDERR_TAIL:
            return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")
        tail = os.pread(self._stderr.fileno(), _STDERR_TAIL, size - _STDERR_TAIL).decode(errors="replace")
        head = os.pread(self._stderr.fileno(), min(size - _STDERR_TAIL, 1 << 20), 0).decode(errors="replace")
        own = [line for line in head.splitlines() if line.startswith(("qemu-system", "ummu"))]
        return "\n".join([*own[-10:], tail])

    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return self._process.poll()

    def _died(self, doing: str) -> QemuDied:
        try:
            status: int | None = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            status = None
        return QemuDied(doing, status, self.stderr_tail())

    def wait(self, limit_s: float) -> int:
        """Wait for QEMU to end and return its status."""
        try:
            return self._process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise QtestError(
                f"QEMU {self.pid} did not end within {limit_s:g} s\n{self.stderr_tail()}"
            ) from None

    def kill(self) -> None:
        """End QEMU and release everything; safe to call twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.qtest.close()
        self.qmp.close()
        self._stderr.close()

    def quit(self, limit_s: float = 10.0) -> int:
        """Let QEMU end by itself (leak checkers report then) and return its status."""
        with contextlib.suppress(QemuDied):
            self.qmp.command("quit", limit_s)
        return self.wait(limit_s)


def find_qemu(arch: str) -> Path:
    """The QEMU to test: UMMULAB_QEMU if set, else the one the build keeps in the cache.

    With UMMULAB_QEMU_ASAN=1 the latter is the variant with sanitizers.
    """
    named = os.environ.get("UMMULAB_QEMU")
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK):
            raise QtestError(f"UMMULAB_QEMU={named} is not an executable file")
        return path
    from ummulab.build import ensure_qemu

    asan = os.environ.get("UMMULAB_QEMU_ASAN", "0") not in ("", "0")
    return Path(ensure_qemu(arch, variant="asan" if asan else ""))


def firmware_options(qemu: Path) -> list[str]:
    """Where a QEMU of ours has its firmware; q35 does not start without."""
    share = qemu.parent / "share"
    return ["-L", str(share)] if share.is_dir() else []
