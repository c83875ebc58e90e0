# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine without a running CPU: the test is firmware, operating system and driver in one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ummulab.build.arch import guest_arch
from ummulab.qtest.arch import Arch, arch_by_name
from ummulab.qtest.errors import QtestError, QtestTimeout
from ummulab.qtest.pci import PciBus, PciFunction
from ummulab.qtest.process import QemuProcess, SharedRam, find_qemu, firmware_options
from ummulab.qtest.protocol import QtestClient
from ummulab.qtest.qmp import QmpClient

DEFAULT_DEVICES = ("ummu,id=ummu0", "ummu-accel,id=accel0,ummu=ummu0,eid=0x100")
DEFAULT_RAM = 64 << 20
_MIGRATION_LIMIT_S = 60.0
#: Memory is a shared file that both sides map, so only device state travels.
_CAPABILITIES = [{"capability": "x-ignore-shared", "state": True}]
VENDOR = 0x1234


class QtestMachine:
    """QEMU under ``-accel qtest`` with our devices, guest RAM mapped into this process."""

    def __init__(
        self,
        devices: Sequence[str] = DEFAULT_DEVICES,
        *,
        arch: str | None = None,
        qemu: Path | None = None,
        ram_size: int = DEFAULT_RAM,
        extra: Sequence[str] = (),
    ) -> None:
        self.arch: Arch = arch_by_name(arch or guest_arch())
        self.devices = tuple(devices)
        self._qemu = qemu or find_qemu(self.arch.name)
        self._extra = tuple(extra)
        self.ram_size = ram_size
        self.ram = SharedRam(ram_size)
        self.functions: list[PciFunction] = []
        try:
            self._process = self._start()
        except BaseException:
            self.ram.close()
            raise
        try:
            self.qmp.handshake()
            self.enumerate()
        except BaseException:
            self.close()
            raise

    # ---- life --------------------------------------------------------------------------------

    def _start(self, extra: Sequence[str] = ()) -> QemuProcess:
        argv = [
            str(self._qemu),
            *firmware_options(self._qemu),
            *self.arch.machine,
            "-accel",
            "qtest",
            "-nodefaults",
            "-display",
            "none",
            "-machine",
            "memory-backend=ram0",
            "-m",
            f"{self.ram_size >> 20}M",
            "-object",
            f"memory-backend-file,id=ram0,size={self.ram_size},mem-path=/proc/self/fd/{self.ram.fd},share=on",
        ]
        for device in self.devices:
            argv += ["-device", device]
        return QemuProcess([*argv, *self._extra, *extra], self.ram)

    def close(self) -> None:
        """End QEMU and give the memory back."""
        self._process.kill()
        self.ram.close()

    def __enter__(self) -> QtestMachine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def qtest(self) -> QtestClient:
        """The qtest client of the current process."""
        return self._process.qtest

    @property
    def qmp(self) -> QmpClient:
        """The QMP client of the current process."""
        return self._process.qmp

    @property
    def process(self) -> QemuProcess:
        """The current QEMU process."""
        return self._process

    # ---- reset, save, restore ----------------------------------------------------------------

    def reset(self) -> None:
        """Reset the whole machine and place the BARs again; memory keeps its contents."""
        self.qmp.take_events()
        self.qmp.command("system_reset")
        self.qmp.wait_event("RESET")
        self.enumerate()

    def save(self, path: Path) -> None:
        """Stop the machine and write its device state to a file.  Memory stays where it is, shared."""
        self.qmp.command("stop")
        self.qmp.command("migrate-set-capabilities", capabilities=_CAPABILITIES)
        self.qmp.command("migrate", uri=f"file:{path}")
        self._await_migration()

    def load(self, path: Path, *, run: bool = True) -> None:
        """Replace the (stopped) QEMU by a new process that continues from the file."""
        now = self.qtest.clock_step(1)
        self._process.kill()
        self._process = self._start(["-incoming", "defer"])
        self.qmp.handshake()
        # The clock of qtest starts at 0 in a new process; deadlines in the file are absolute.
        self.qtest.clock_set(now)
        self.qmp.command("migrate-set-capabilities", capabilities=_CAPABILITIES)
        self.qmp.command("migrate-incoming", uri=f"file:{path}")
        self._await_migration()
        for function in self.functions:
            function.qtest = self.qtest
        if run:
            self.qmp.command("cont")

    def save_and_load(self, *, run: bool = True) -> None:
        """Save, end QEMU, and go on in a new process."""
        with tempfile.TemporaryDirectory(prefix="ummulab-") as folder:
            path = Path(folder) / "state"
            self.save(path)
            self.load(path, run=run)

    def _await_migration(self) -> None:
        deadline = time.monotonic() + _MIGRATION_LIMIT_S
        while True:
            info = self.qmp.command("query-migrate")
            status = info.get("status", "none")
            if status == "completed":
                return
            if status in ("failed", "cancelled"):
                reason = info.get("error-desc", "no reason given")
                raise QtestError(f"migration {status}: {reason}\n{self._process.stderr_tail()}")
            if time.monotonic() > deadline:
                raise QtestTimeout("the migration to end", _MIGRATION_LIMIT_S, f"status: {status}")
            time.sleep(0.002)

    # ---- devices -----------------------------------------------------------------------------

    def enumerate(self) -> None:
        """Find the functions of bus 0, place BARs and enable those of ours."""
        self.arch.prepare(self.qtest)
        bus = PciBus(self.qtest, self.arch.ecam, self.arch.mmio32, self.arch.mmio64)
        self.functions = [f for f in bus.scan() if f.vendor == VENDOR]
        for function in self.functions:
            bus.place_bars(function)
            function.enable()

    def function(self, device: int, number: int = 0) -> PciFunction:
        """The ``number``-th function with this device id (0x554d UMMU, 0x5541 accelerator)."""
        found = [f for f in self.functions if f.device == device]
        if number >= len(found):
            raise QtestError(
                f"the machine has {len(found)} functions {VENDOR:04x}:{device:04x}, wanted #{number}"
            )
        return found[number]

    # ---- memory (physical addresses) ---------------------------------------------------------

    def offset(self, address: int, length: int) -> int:
        """Offset in the memory file of a physical range; QtestError if it is not all RAM."""
        start = address - self.arch.ram_base
        if start < 0 or start + length > self.ram_size:
            raise QtestError(f"{address:#x}+{length:#x} is not RAM of this machine")
        return start

    def read_memory(self, address: int, length: int) -> bytes:
        """Read physical memory."""
        start = self.offset(address, length)
        return self.ram.map[start : start + length]

    def write_memory(self, address: int, data: bytes) -> None:
        """Write physical memory."""
        start = self.offset(address, len(data))
        self.ram.map[start : start + len(data)] = data
