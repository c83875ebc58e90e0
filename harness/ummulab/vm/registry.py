# SPDX-License-Identifier: GPL-2.0-or-later
"""Running VMs that other commands can find: ``ummulab console``, ``decode``, gdb.

Only a VM started for people is published.  Each has a short folder with its sockets and a
description that names the owner by pid *and* start time, so that a folder whose owner was
killed is known as stale, and a reused pid is never taken for the owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ummulab.errors import UserError
from ummulab.vm.config import MIB, arch_of
from ummulab.vm.errors import VmError
from ummulab.vm.memory import GuestMemory, SharedFile

SOCKET_LIMIT = 107  #: bytes of a UNIX socket path, the kernel's limit without the final NUL
CONSOLE = "console.sock"
MONITOR = "qmp.sock"
INFO = "vm.json"


@dataclass(frozen=True)
class RunningVm:
    """A published VM."""

    folder: Path
    pid: int  #: QEMU's
    arch: str
    memory_mib: int
    ram_fd: int  #: number of QEMU's descriptor of guest RAM
    command: str

    @property
    def name(self) -> str:
        """What people type to mean this VM."""
        return self.folder.name

    @property
    def console_socket(self) -> Path:
        """Socket of the console, for one more person."""
        return self.folder / CONSOLE

    @property
    def qmp_socket(self) -> Path:
        """Socket of a second QMP session, for one client at a time."""
        return self.folder / MONITOR

    def open_memory(self) -> GuestMemory:
        """Guest RAM, mapped; close it after use."""
        size = self.memory_mib * MIB
        try:
            fd = os.open(f"/proc/{self.pid}/fd/{self.ram_fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as err:
            raise VmError(f"cannot open the memory of VM {self.name}: {err.strerror}") from None
        try:
            return GuestMemory(SharedFile(fd, size), arch_of(self.arch).ram_base, size)
        finally:
            os.close(fd)


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def runtime_root() -> Path:
    """The user's folder of running VMs, made on first use and checked to be private."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    root = Path(base) / "ummulab"
    if not base or not os.path.isdir(base) or not _fits(root):
        # Neither TMPDIR nor a home: those may be too long for a socket's path.
        root = Path("/tmp") / f"ummulab-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    stat = root.lstat()
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077 or root.is_symlink():
        raise VmError(f"{root} is not a private folder of this user: remove it")
    return root


def _fits(root: Path) -> bool:
    return len(os.fsencode(root / "vm-12345678" / CONSOLE)) <= SOCKET_LIMIT


@contextmanager
def runtime_folder() -> Iterator[Path]:
    """A folder for one VM's sockets; removed at the end.  Also removes what killed owners left."""
    clean_stale()
    folder = Path(tempfile.mkdtemp(prefix="vm-", dir=runtime_root()))
    owner = {"owner": os.getpid(), "owner_start": start_time(os.getpid())}
    (folder / "owner.json").write_text(json.dumps(owner))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, facts: dict[str, Any]) -> None:
    """Describe a started VM; it is found from now on."""
    draft = folder / f"{INFO}.new"
    draft.write_text(json.dumps(facts))
    draft.rename(folder / INFO)


def _owner_alive(folder: Path) -> bool:
    try:
        owner = json.loads((folder / "owner.json").read_text())
        return bool(start_time(owner["owner"]) == owner["owner_start"] != 0)
    except (OSError, ValueError, KeyError, TypeError):
        # Made a moment ago and not yet described, or damaged: only an old one is stale.
        with contextlib.suppress(OSError):
            age = Path("/proc/self").stat().st_mtime - folder.stat().st_mtime
            return age < 60
        return True


def clean_stale() -> None:
    """Remove folders whose owner is gone (its QEMU died with it)."""
    for folder in runtime_root().glob("vm-*"):
        if not _owner_alive(folder):
            shutil.rmtree(folder, ignore_errors=True)


def running_vms() -> list[RunningVm]:
    """All published VMs of this user, oldest first."""
    found = []
    for folder in sorted(runtime_root().glob("vm-*"), key=lambda path: path.lstat().st_mtime):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads((folder / INFO).read_text())
            if _owner_alive(folder):
                names = ("pid", "arch", "memory_mib", "ram_fd", "command")
                found.append(RunningVm(folder, *(facts[name] for name in names)))
    return found


def find(name: str | None = None) -> RunningVm:
    """The VM of that name; without a name the only one running."""
    vms = running_vms()
    names = ", ".join(vm.name for vm in vms)
    if name is not None:
        for vm in vms:
            if vm.name == name:
                return vm
        raise UserError(f"no running VM is called {name!r}", hint=f"running: {names or 'none'}")
    if not vms:
        raise UserError("no VM is running", hint="start one with 'ummulab run' in another terminal")
    if len(vms) > 1:
        raise UserError("several VMs are running: say which one", hint=names)
    return vms[0]
