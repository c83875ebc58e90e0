# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual machine as an object: start it, talk to it, know at once when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pexpect import fdpexpect

from ummulab.vm.channel import Channel, LogPipe, Pump, Tail
from ummulab.vm.command import CommandPort, Result
from ummulab.vm.config import VmConfig, Wiring, build_argv
from ummulab.vm.counters import device_counters, format_counters
from ummulab.vm.errors import GuestPanic, QmpError, VmDied, VmError, VmTimeout
from ummulab.vm.klog import KernelLog, KernelReport
from ummulab.vm.loop import shared_loop
from ummulab.vm.memory import GuestMemory, PrivateMapping, SharedFile
from ummulab.vm.process import QemuProcess, describe_exit
from ummulab.vm.qmp import Qmp
from ummulab.vm.state import SavedState, StateWriter, copy_sparse

if TYPE_CHECKING:
    from ummulab.build import Images

EVIDENCE_LINES = 30
GREETING_BUDGET = 20.0
BOOT_BUDGET = 90.0
RUN_BUDGET = 30.0
MIGRATE_BUDGET = 60.0
STOP_BUDGET = 5.0
# What belongs to a death (log, stderr) is there this long after it at the latest.
AFTERMATH_SECONDS = 2.0


class Vm:
    """One QEMU with its guest.  Use as a context manager; nothing is left behind at its end.

    ``state`` starts a copy of a saved VM instead of booting.  ``log_dir`` receives
    kernel.log, console.log and qemu.log.  Times are seconds everywhere.
    """

    def __init__(
        self,
        images: Images,
        config: VmConfig | None = None,
        *,
        state: SavedState | None = None,
        log_dir: Path | None = None,
        console_socket: Path | None = None,
        monitor_socket: Path | None = None,
        boot_timeout: float = BOOT_BUDGET,
    ) -> None:
        self.images = images
        self.config = config or (state.config if state is not None else VmConfig(arch=images.arch))
        self.state = state
        self.log_dir = log_dir
        self.boot_timeout = boot_timeout
        self.argv: list[str] = []
        #: seconds spent in "boot" (start to first answer), "exec" (guest commands)
        self.times: dict[str, float] = {"boot": 0.0, "exec": 0.0}
        self._sockets = (console_socket, monitor_socket)
        self._loop = shared_loop()
        self._resources = ExitStack()
        self._process: QemuProcess | None = None
        self._stopping = False
        self._in_evidence = False
        self.kernel_log = KernelLog(self._log_file("kernel.log"))
        self.console_tail = Tail(self._log_file("console.log"))
        self.qmp = Qmp(self._loop, health=self.check, evidence=self.evidence)

    # -- life -------------------------------------------------------------------------------

    def __enter__(self) -> Vm:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Vm:
        """Start QEMU and wait until the guest's shell answers."""
        if self._process is not None:
            raise VmError("this VM was started already")
        begin = time.monotonic()
        try:
            self._launch()
            if self.state is not None:
                self._load_state(self.state)
            self.commands.sync(self.boot_timeout, "the guest to boot and its shell to answer")
        except BaseException:
            self.kill()
            raise
        self.times["boot"] = time.monotonic() - begin
        return self

    def prepare(self) -> None:
        """Make everything that QEMU inherits and ``argv``; ``start`` does it when nobody has."""
        channels = {name: self._channel() for name in ("qmp", "cmd", "console")}
        serial = LogPipe()
        self._resources.callback(serial.close)
        ram = self._open_ram()
        wiring = Wiring(
            qmp=channels["qmp"].child_fd,
            serial=serial.child_fd,
            cmd=channels["cmd"].child_fd,
            console=channels["console"].child_fd,
            ram=ram,
            ram_private=self._private_ram(),
            incoming=self.state is not None,
            console_socket=self._sockets[0],
            monitor_socket=self._sockets[1],
        )
        self.argv = build_argv(self.images, self.config, wiring)
        self._channels = channels
        self._serial = serial
        self._wiring = wiring

    def _launch(self) -> None:
        if not self.argv:
            self.prepare()
        channels = self._channels
        self._process = QemuProcess(
            self._loop,
            self.argv,
            pass_fds=self._wiring.pass_fds(),
            stderr_path=None if self.log_dir is None else self.log_dir / "qemu.log",
            on_exit=lambda: None,
        )
        self._resources.callback(self._process.close)
        self._serial.started()
        for channel in channels.values():
            channel.started()
        Pump(self._loop, self._serial.ours, self.kernel_log.feed, self.kernel_log.finish)
        self._console_sock = channels["console"].ours
        self._console_pump = Pump(self._loop, self._console_sock, self.console_tail.write, lambda: None)
        self.commands = CommandPort(channels["cmd"].ours, health=self.check, evidence=self.evidence)
        self.qmp.connect(channels["qmp"].ours.dup(), GREETING_BUDGET)
        self._open_memory(self._ram_fd)

    def _channel(self) -> Channel:
        channel = Channel()
        self._resources.callback(channel.close)
        return channel

    def _private_ram(self) -> bool:
        return self.state is not None and not self.state.ram_in_stream

    def _open_ram(self) -> int:
        if self.state is not None and not self.state.ram_in_stream:
            fd = os.open(self.state.ram, os.O_RDONLY | os.O_CLOEXEC)
        else:
            fd = os.memfd_create("ummulab-ram")
            os.ftruncate(fd, self.config.memory_bytes)
        self._resources.callback(os.close, fd)
        self._ram_fd = fd
        return fd

    def _open_memory(self, fd: int) -> None:
        size = self.config.memory_bytes
        backing = PrivateMapping(self.pid, fd, size) if self._private_ram() else SharedFile(fd, size)
        self.memory = GuestMemory(backing, self.config.ram_base, size)
        self._resources.callback(self.memory.close)

    def _log_file(self, name: str) -> BinaryIO | None:
        if self.log_dir is None:
            return None
        self.log_dir.mkdir(parents=True, exist_ok=True)
        file = (self.log_dir / name).open("wb")
        self._resources.callback(file.close)
        return file

    @property
    def pid(self) -> int:
        """QEMU's process id."""
        return self._running().pid

    @property
    def ram_fd(self) -> int:
        """QEMU's file descriptor of guest RAM (the same number as ours)."""
        return self._ram_fd

    def _running(self) -> QemuProcess:
        if self._process is None:
            raise VmError("this VM was not started")
        return self._process

    def stop(self, timeout: float = STOP_BUDGET) -> None:
        """Power off hard but in order (QMP quit), then make sure that the process is gone."""
        process = self._process
        if process is None:
            self._release()
            return
        self._stopping = True
        if not process.exited.is_set() and not process.is_stopped() and not self.qmp.closed.is_set():
            try:
                self.qmp.execute("quit", timeout=timeout)
                process.wait(timeout)
            except VmError:
                pass  # it would not listen; it is killed below
        self.kill()

    def kill(self) -> None:
        """End QEMU with SIGKILL if it still runs, and release everything."""
        self._stopping = True
        process = self._process
        if process is not None:
            process.kill(signal.SIGKILL)
            if process.wait(STOP_BUDGET) is None:
                raise VmError(f"QEMU (pid {process.pid}) did not end after SIGKILL: it is {process.state()}")
            self.kernel_log.eof.wait(AFTERMATH_SECONDS)
            if self.qmp.connected:
                self.qmp.closed.wait(AFTERMATH_SECONDS)
        self._release()

    def _release(self) -> None:
        self._loop.call(lambda: None)  # what the I/O thread has begun with our files is over
        self._resources.close()

    def wait_exit(self, timeout: float) -> int:
        """Wait until QEMU ends by itself (guest power-off); returns its exit status."""
        process = self._running()
        self._stopping = True
        deadline = time.monotonic() + timeout
        while process.wait(min(0.25, timeout)) is None:
            self.check("waiting for QEMU to end", panic_only=True)
            if time.monotonic() >= deadline:
                self._stopping = False
                raise VmTimeout("QEMU to end", timeout, self.evidence())
        self.check("waiting for QEMU to end", panic_only=True)
        assert process.returncode is not None
        return process.returncode

    def require_clean_exit(self, what: str) -> None:
        """Raise VmDied unless QEMU ended because the guest powered off."""
        if self.wait_exit(STOP_BUDGET) != 0:
            process = self._running()
            raise VmDied(what, describe_exit(process.returncode), process.stderr_tail())

    # -- health -----------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether QEMU runs."""
        return self._process is not None and not self._process.exited.is_set()

    @property
    def kernel_reports(self) -> list[KernelReport]:
        """Lines of the kernel log that report a fault: BUG, KASAN, WARNING, Oops …"""
        return self.kernel_log.reports

    def check(self, what: str = "checking on it", *, panic_only: bool = False, lost: bool = False) -> None:
        """Raise GuestPanic or VmDied if the guest has panicked or QEMU has ended unasked."""
        process = self._process
        if process is None:
            return
        if lost:  # QEMU's sockets close a moment before its end can be seen
            process.wait(AFTERMATH_SECONDS)
        if process.exited.is_set():
            self.kernel_log.eof.wait(AFTERMATH_SECONDS)
        if self.kernel_log.panicked.is_set():
            raise GuestPanic(self.kernel_log.panic_reason(), self.kernel_log.panic_text())
        if process.exited.is_set() and not panic_only and not self._stopping:
            raise VmDied(what, describe_exit(process.returncode), process.stderr_tail())

    def evidence(self) -> str:
        """What can be seen of the VM now, as text for an error message."""
        parts = []
        if self._process is not None:
            parts.append(f"QEMU: pid {self._process.pid}, {self._process.state()}")
        if self.alive and not self._in_evidence:
            parts += self._live_evidence()
        for title, lines in (
            ("kernel log", self.kernel_log.tail(EVIDENCE_LINES)),
            ("console", self.console_tail.lines(EVIDENCE_LINES)),
            ("QEMU's stderr", self._process.stderr_tail() if self._process is not None else []),
        ):
            if any(line.strip() for line in lines):
                parts.append(f"last lines of {title}:\n" + "\n".join(f"  {line}" for line in lines))
        return "\n".join(parts)

    def _live_evidence(self) -> list[str]:
        self._in_evidence = True
        try:
            status = self.qmp.execute("query-status", timeout=1.0)
            parts = [f"QMP status: {status.get('status')}"]
            counters = format_counters(device_counters(self.qmp, timeout=1.0))
            return [*parts, f"device counters:\n{counters}"] if counters else parts
        except VmError as err:
            return [f"QMP status: no answer ({str(err).splitlines()[0]})"]
        finally:
            self._in_evidence = False

    def stderr_text(self) -> str:
        """What QEMU wrote to stderr and stdout so far."""
        return self._process.stderr_text() if self._process is not None else ""

    # -- guest ------------------------------------------------------------------------------

    def run(
        self,
        command: str | Sequence[str],
        timeout: float = RUN_BUDGET,
        *,
        input: bytes | None = None,
        check: bool = False,
    ) -> Result:
        """Run a command in the guest and return status, stdout, stderr (bytes) and duration.

        A string is a shell script, a sequence a program with arguments.  stdin is ``input`` or empty.
        Raises VmTimeout (the command is then killed in the guest and the VM stays usable),
        CommandFailed with ``check``, GuestPanic, VmDied.
        """
        self._running()
        try:
            result = self.commands.run(command, timeout=timeout, input=input, check=check)
        finally:
            self.check("running a guest command")
        self.times["exec"] += result.duration
        return result

    def put(self, path: str, data: bytes, *, mode: int | None = None, timeout: float = RUN_BUDGET) -> None:
        """Write a file in the guest."""
        quoted = _quote(path)
        script = f"cat >{quoted}" + (f" && chmod {mode:o} {quoted}" if mode is not None else "")
        self.run(script, timeout, input=data, check=True)

    def get(self, path: str, *, timeout: float = RUN_BUDGET) -> bytes:
        """Read a file of the guest."""
        return self.run(f"cat <{_quote(path)}", timeout, check=True).stdout

    def console(self) -> fdpexpect.fdspawn:
        """Return a pexpect object on the console (hvc0, a shell with a tty); it may be taken once."""
        spawn = fdpexpect.fdspawn(self.console_fd(), timeout=RUN_BUDGET, use_poll=True, maxread=65536)
        spawn.logfile_read = self.console_tail
        return spawn

    def console_fd(self) -> int:
        """Stop reading the console and return its file descriptor; later output is the caller's."""
        self._console_pump.detach()
        self._console_sock.setblocking(True)
        return self._console_sock.fileno()

    def set_console_size(self, columns: int, rows: int) -> None:
        """Tell the guest's console tty how large the terminal is."""
        size = f"cols {columns} rows {rows}"
        self.run(f"echo {size} >/run/console-size && stty -F /dev/hvc0 {size}", check=True)

    # -- saved states -----------------------------------------------------------------------

    def save(self, path: Path, *, extra: dict[str, Any] | None = None) -> None:
        """Save the VM into a folder (see ummulab.vm.state); it continues afterwards."""
        if not self.config.cloneable():
            raise VmError("a VM with --share, --gdb, --trace or extra arguments cannot be saved")
        in_stream = self._private_ram()
        self.qmp.execute("stop")
        try:
            with StateWriter(path) as writer:
                self._migrate_out(writer.work / "state", ignore_shared=not in_stream)
                if not in_stream:
                    with (writer.work / "ram").open("xb") as ram:
                        copy_sparse(self._ram_fd, ram.fileno(), self.config.memory_bytes)
                writer.commit(self.config, self.images.hashes, in_stream, extra or {})
        except BaseException:
            with contextlib.suppress(VmError):  # the first error is the news
                self._continue()
            raise
        self._continue()

    def _continue(self) -> None:
        """Let the guest run again; a failed migration needs a moment to be over."""
        deadline = time.monotonic() + STOP_BUDGET
        while True:
            try:
                self.qmp.execute("cont")
                return
            except QmpError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def _migrate_out(self, path: Path, *, ignore_shared: bool) -> None:
        mark = self.qmp.mark()
        self._migration_setup(ignore_shared)
        with path.open("xb") as file:
            self.qmp.execute("migrate", {"uri": f"file:{_fd_path(file.fileno())}"})
            self._migration_wait("saving", mark)

    def _load_state(self, state: SavedState) -> None:
        mark = self.qmp.mark()
        self._migration_setup(not state.ram_in_stream)
        with state.stream.open("rb") as file:
            self.qmp.execute("migrate-incoming", {"uri": f"file:{_fd_path(file.fileno())}"})
            self._migration_wait("loading", mark)
        self.qmp.execute("cont")

    def _migration_setup(self, ignore_shared: bool) -> None:
        wanted = {"events": True, "x-ignore-shared": ignore_shared}
        capabilities = [{"capability": name, "state": state} for name, state in wanted.items()]
        self.qmp.execute("migrate-set-capabilities", {"capabilities": capabilities})

    def _migration_wait(self, verb: str, mark: int) -> None:
        event = self.qmp.wait_event(
            "MIGRATION",
            MIGRATE_BUDGET,
            lambda e: e.data.get("status") in ("completed", "failed", "cancelled"),
            mark,
        )
        if event.data["status"] != "completed":
            reason = self.qmp.execute("query-migrate").get("error-desc", event.data["status"])
            raise VmError(f"{verb} the VM's state failed: {reason}")


def _fd_path(fd: int) -> str:
    # QEMU runs as the same user and may open our descriptor by name: any path works, commas and all.
    return f"/proc/{os.getpid()}/fd/{fd}"


def _quote(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
