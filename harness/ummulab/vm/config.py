# SPDX-License-Identifier: GPL-2.0-or-later
"""What a VM is made of, and the QEMU command line that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ummulab.vm.errors import VmError

if TYPE_CHECKING:
    from ummulab.build import Images

MIB = 1 << 20
DEFAULT_DEVICES = ("ummu,id=ummu0", "ummu-accel,id=accel0,ummu=ummu0,eid=0x100")
# A panic ends QEMU (panic=-1 resets, -no-reboot turns the reset into an exit) instead of hanging the test.
BASE_APPEND = "oops=panic panic=-1 printk.time=1"
ICOUNT = "shift=3,sleep=off"
# What else would bring the host's time and randomness into the guest.
REPEATABLE = (
    *("-seed", "1", "-rtc", "base=2026-01-01,clock=vm"),
    *("-global", "virtio-serial-pci.ioeventfd=off"),  # notifications are handled in the guest's own time
)


@dataclass(frozen=True)
class Arch:
    """How QEMU's machine of one guest architecture is called and laid out."""

    name: str
    machine: str
    cpu: str
    console: str
    ram_base: int
    ram_split: int  #: RAM beyond this size continues elsewhere; we do not go there
    tcg_append: str = ""  #: kernel options that are right under TCG only

    def append(self, accel: str) -> str:
        """Kernel command line of this architecture."""
        special = f" {self.tcg_append}" if self.tcg_append and accel == "tcg" else ""
        return f"console={self.console} {BASE_APPEND}{special}"


ARCHES = {
    # neoverse-n1: hardware access/dirty flags and LSE atomics, and none of the pointer
    # authentication that makes "max" slow under TCG.
    "aarch64": Arch("aarch64", "virt,gic-version=3", "neoverse-n1", "ttyAMA0", 0x4000_0000, 255 << 30),
    # TCG's time stamp counter never stops or jumps but does not say so; other clocks cost an exit per look.
    # And a busy host may be late with the ticks whose absence the kernel takes for a broken timer.
    "x86_64": Arch("x86_64", "q35", "max", "ttyS0", 0, 2 << 30, "tsc=reliable no_timer_check"),
}


def arch_of(name: str) -> Arch:
    """Return the description of a guest architecture or say which ones exist."""
    try:
        return ARCHES[name]
    except KeyError:
        raise VmError(f"unknown guest architecture {name!r} (known: {', '.join(ARCHES)})") from None


@dataclass(frozen=True)
class VmConfig:
    """Everything that decides how a guest behaves; equal configs share a template."""

    arch: str = "aarch64"
    memory_mib: int = 256
    cpus: int = 1
    cpu_model: str = ""
    devices: tuple[str, ...] = DEFAULT_DEVICES
    append: str = ""
    icount: bool = False
    accel: str = "tcg"
    share: Path | None = None
    trace: tuple[str, ...] = ()
    gdb_socket: Path | None = None
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        arch = arch_of(self.arch)
        if not self.memory_mib >= 32 or self.memory_bytes > arch.ram_split:
            raise VmError(f"memory of {self.memory_mib} MiB is outside 32..{arch.ram_split // MIB}")
        if not 1 <= self.cpus <= 64:
            raise VmError(f"{self.cpus} CPUs is outside 1..64")

    @property
    def memory_bytes(self) -> int:
        """Size of guest RAM in bytes."""
        return self.memory_mib * MIB

    @property
    def ram_base(self) -> int:
        """Guest physical address of the first byte of RAM."""
        return arch_of(self.arch).ram_base

    def cloneable(self) -> bool:
        """Whether a saved state of such a VM can be used again (a shared folder or debugger cannot)."""
        return self.share is None and self.gdb_socket is None and not self.trace and not self.extra_args


@dataclass
class Wiring:
    """File descriptors that QEMU inherits."""

    qmp: int
    serial: int
    cmd: int
    console: int
    ram: int
    ram_private: bool = False  #: copy-on-write over a read-only file
    incoming: bool = False
    console_socket: Path | None = None  #: a listening socket beside ``console``
    monitor_socket: Path | None = None  #: a second, listening QMP socket
    fds: tuple[int, ...] = field(default=())

    def pass_fds(self) -> tuple[int, ...]:
        """All descriptors to hand over."""
        return (self.qmp, self.serial, self.cmd, self.console, self.ram, *self.fds)


def escape(path: Path | str) -> str:
    """Double the commas of a value inside a QEMU option list."""
    return str(path).replace(",", ",,")


def build_argv(images: Images, config: VmConfig, wiring: Wiring) -> list[str]:
    """Return the whole QEMU command line."""
    arch = arch_of(config.arch)
    argv = [
        str(images.qemu),
        "-L",
        str(images.qemu_datadir),
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
    ]
    argv += ["-machine", f"{arch.machine},memory-backend=ram", "-cpu", config.cpu_model or arch.cpu]
    argv += ["-accel", config.accel, "-smp", str(config.cpus), "-m", f"{config.memory_mib}M", "-no-reboot"]
    if config.icount:
        argv += ["-icount", ICOUNT, *REPEATABLE]
    argv += ["-object", _ram_object(config, wiring)]
    append = " ".join(filter(None, (arch.append(config.accel), config.append)))
    argv += ["-kernel", str(images.kernel), "-initrd", str(images.initrd), "-append", append]
    argv += _channel_args(wiring)
    for device in config.devices:
        argv += ["-device", device]
    argv += _option_args(config)
    if wiring.incoming:
        argv += ["-incoming", "defer"]
    return [*argv, *config.extra_args]


def _ram_object(config: VmConfig, wiring: Wiring) -> str:
    # The descriptor's name under /proc: no path to clean up, and no trouble with commas or length.
    mode = "share=off,readonly=on,rom=off" if wiring.ram_private else "share=on"
    return f"memory-backend-file,id=ram,size={config.memory_mib}M,mem-path=/proc/self/fd/{wiring.ram},{mode}"


def _channel_args(wiring: Wiring) -> list[str]:
    console = ["-chardev", f"socket,id=console,fd={wiring.console}"]
    if wiring.console_socket is not None:
        # A hub gives each of its back ends everything: the owner's terminal and one more person's.
        path = escape(wiring.console_socket)
        console = ["-chardev", f"socket,id=console-own,fd={wiring.console}"]
        console += ["-chardev", f"socket,id=console-more,path={path},server=on,wait=off"]
        console += ["-chardev", "hub,id=console,chardevs.0=console-own,chardevs.1=console-more"]
    args = ["-chardev", f"socket,id=qmp,fd={wiring.qmp}", "-mon", "chardev=qmp,mode=control"]
    klog = f"file,id=klog,path=/proc/self/fd/{wiring.serial},append=on"
    args += ["-chardev", klog, "-serial", "chardev:klog"]
    args += ["-device", "virtio-serial-pci,id=vser0"]
    args += ["-chardev", f"socket,id=cmd,fd={wiring.cmd}"]
    args += [*console, "-device", "virtconsole,chardev=console"]
    args += ["-device", "virtserialport,chardev=cmd,name=ummulab.cmd"]
    if wiring.monitor_socket is not None:
        args += ["-chardev", f"socket,id=qmp2,path={escape(wiring.monitor_socket)},server=on,wait=off"]
        args += ["-mon", "chardev=qmp2,mode=control"]
    return args


def _option_args(config: VmConfig) -> list[str]:
    args: list[str] = []
    if config.share is not None:
        args += ["-fsdev", f"local,id=share,path={escape(config.share)},security_model=none"]
        args += ["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"]
    for pattern in config.trace:
        args += ["-trace", pattern]
    if config.gdb_socket is not None:
        args += ["-chardev", f"socket,id=gdb,path={escape(config.gdb_socket)},server=on,wait=off"]
        args += ["-gdb", "chardev:gdb"]
    return args
