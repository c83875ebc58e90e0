# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab run``, ``exec``, ``console`` and ``bench``."""

from __future__ import annotations

import shlex
import socket
import sys
from pathlib import Path

import click

from ummulab.errors import UserError
from ummulab.vm import registry, terminal
from ummulab.vm.accel import CHOICES
from ummulab.vm.config import ARCHES, VmConfig
from ummulab.vm.errors import VmError, VmTimeout
from ummulab.vm.loop import shared_loop
from ummulab.vm.qmp import Qmp
from ummulab.vm.session import Session
from ummulab.vm.vm import Vm

TIMEOUT_STATUS = 124
EXEC_BUDGET = 600.0

_arch = click.option(
    "--arch", envvar="GUEST_ARCH", default="aarch64", show_default=True, type=click.Choice(sorted(ARCHES))
)
_accel = click.option("--accel", default="auto", show_default=True, type=click.Choice(CHOICES))
_memory = click.option("--memory", default=256, show_default=True, metavar="MIB", type=click.IntRange(min=32))
_cpus = click.option("--cpus", default=1, show_default=True, type=click.IntRange(1, 64))


def say(text: str) -> None:
    """A line of ours for the person, kept apart from the guest's output."""
    click.echo(f"ummulab: {text}", err=True)


@click.command()
@_arch
@_accel
@_memory
@_cpus
@click.option(
    "--share",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder to show to the guest.",
)
@click.option("--trace", multiple=True, metavar="PATTERN", help="QEMU trace events to log, such as 'ummu*'.")
@click.option(
    "--trace-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to (default: qemu-trace.log).",
)
@click.option("--gdb", is_flag=True, help="Let gdb attach to the guest.")
@click.option("--icount", is_flag=True, help="Repeatable guest time.")
@click.option("--append", default="", help="More words for the kernel command line.")
@click.argument("qemu_args", nargs=-1)
def run(
    arch: str,
    accel: str,
    memory: int,
    cpus: int,
    share: Path | None,
    trace: tuple[str, ...],
    trace_file: Path | None,
    gdb: bool,
    icount: bool,
    append: str,
    qemu_args: tuple[str, ...],
) -> int:
    """Boot a VM and give its prompt.  Arguments after -- go to QEMU."""
    session = Session(arch, accel="tcg" if icount and accel == "auto" else accel)
    if share is not None:
        _require_device(session, "virtio-9p-pci", "--share")
    with registry.runtime_folder() as folder:
        if trace:
            qemu_args = (*qemu_args, "-D", str(trace_file or Path("qemu-trace.log")))
        config = VmConfig(
            arch=arch,
            memory_mib=memory,
            cpus=cpus,
            append=append,
            icount=icount,
            accel=session.accel.name,
            share=share,
            trace=trace,
            gdb_socket=folder / "gdb.sock" if gdb else None,
            extra_args=qemu_args,
        )
        vm = Vm(
            session.images,
            config,
            console_socket=folder / registry.CONSOLE,
            monitor_socket=folder / registry.MONITOR,
        )
        _interactive(vm, session, folder)
    return 0


def _require_device(session: Session, device: str, option: str) -> None:
    import subprocess

    argv = [str(session.images.qemu), "-machine", "none", "-device", "help"]
    known = subprocess.run(argv, capture_output=True, text=True, timeout=20).stdout
    if f'"{device}"' not in known:
        raise UserError(f"{option} needs a QEMU with {device}, and this one has none")


def _interactive(vm: Vm, session: Session, folder: Path) -> None:
    say(f"accelerator {session.accel.name} ({session.accel.reason})")
    vm.prepare()
    say(shlex.join(vm.argv))
    with vm:
        config = vm.config
        facts = {"pid": vm.pid, "arch": config.arch, "memory_mib": config.memory_mib, "ram_fd": vm.ram_fd}
        registry.publish(folder, {**facts, "command": shlex.join(vm.argv)})
        say(f"VM {folder.name}, up after {vm.times['boot']:.2f} s; {terminal.ESCAPE_NAME} powers off")
        if config.gdb_socket is not None:
            say(f"in gdb: target remote {config.gdb_socket}")
        if config.share is not None:
            say("in the guest: mount -t 9p -o trans=virtio share /mnt")
        reason = attach(vm)
        vm.check("at its console", panic_only=True)
        if reason == terminal.ENDED:
            vm.require_clean_exit("at its console")
        say(reason)


def attach(vm: Vm) -> str:
    """Give the terminal to the console of a VM until the person leaves or the VM ends."""

    def resize() -> None:
        vm.set_console_size(*terminal.terminal_size())

    resize()
    fd = vm.console_fd()
    with terminal.on_resize(resize) as poll_resize:

        def tick() -> bool:
            vm.check("at its console", panic_only=True)
            if vm.alive:
                poll_resize()
            return vm.alive

        # What the guest said before we came, its prompt included.
        terminal.write_all(sys.stdout.fileno(), vm.console_tail.data().lstrip(b"\r\n"))
        return terminal.pass_through(fd, tick)


@click.command()
@click.argument("name", required=False)
def console(name: str | None) -> int:
    """Attach to the console of a running VM (started by 'ummulab run')."""
    vm = registry.find(name)
    if _console_taken(vm):
        raise UserError(f"somebody else is attached to the console of {vm.name} already")
    with socket.socket(socket.AF_UNIX) as sock:
        _connect(sock, vm.console_socket, vm)
        say(f"console of {vm.name}; {terminal.ESCAPE_NAME} leaves, the VM keeps running")
        sock.sendall(b"\r")
        say(terminal.pass_through(sock.fileno(), lambda: True))
    return 0


def _connect(sock: socket.socket, path: Path, vm: registry.RunningVm) -> None:
    sock.settimeout(5.0)
    try:
        sock.connect(str(path))
    except OSError as err:
        raise UserError(f"VM {vm.name} does not answer: {err.strerror or err}") from None
    sock.settimeout(None)


def _console_taken(vm: registry.RunningVm) -> bool:
    def health(what: str, *, panic_only: bool = False, lost: bool = False) -> None:
        if lost or registry.start_time(vm.pid) == 0:
            raise VmError(f"VM {vm.name} ended while {what}")

    qmp = Qmp(shared_loop(), health=health, evidence=lambda: "")
    sock = socket.socket(socket.AF_UNIX)
    _connect(sock, vm.qmp_socket, vm)
    qmp.connect(sock, 5.0, f"VM {vm.name} to answer on its QMP socket (is another client there?)")
    try:
        chardevs = qmp.execute("query-chardev")
    finally:
        qmp.close()
    return any(
        c["label"] == "console-more" and not c["filename"].startswith("disconnected") for c in chardevs
    )


@click.command(name="exec")
@_arch
@_accel
@_memory
@_cpus
@click.option(
    "--timeout", default=EXEC_BUDGET, show_default=True, metavar="SECONDS", type=click.FloatRange(min=0.1)
)
@click.option("-i", "--stdin", "use_stdin", is_flag=True, help="Give our standard input to the command.")
@click.option("--boot", is_flag=True, help="Boot a VM instead of cloning the template.")
@click.option("--icount", is_flag=True, help="Repeatable guest time.")
@click.argument("command", nargs=-1, required=True)
def exec_command(
    arch: str,
    accel: str,
    memory: int,
    cpus: int,
    timeout: float,
    use_stdin: bool,
    boot: bool,
    icount: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND in a fresh VM; its output and exit status become ours.

    One argument is a script for the guest's shell, several are a program with its arguments.
    """
    data = sys.stdin.buffer.read() if use_stdin else None
    session = Session(arch, accel="tcg" if icount and accel == "auto" else accel)
    config = VmConfig(arch=arch, memory_mib=memory, cpus=cpus, icount=icount, accel=session.accel.name)
    what = command[0] if len(command) == 1 else command
    with session.fresh(config, boot=boot) as vm:
        try:
            result = vm.run(what, timeout, input=data)
        except VmTimeout as err:
            _pass_output(err.partial, b"")
            err.exit_code = TIMEOUT_STATUS
            raise
        reports = list(vm.kernel_reports)
    _pass_output(result.stdout, result.stderr)
    for report in reports:
        say(f"the guest kernel reported: {report.text}")
    return result.status


def _pass_output(stdout: bytes, stderr: bytes) -> None:
    for stream, data in ((sys.stdout, stdout), (sys.stderr, stderr)):
        stream.flush()
        terminal.write_all(stream.fileno(), data)


@click.command()
@click.argument("name")
@_arch
@_accel
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
@click.option("--repeat", default=5, show_default=True, type=click.IntRange(1, 1000))
def bench(name: str, arch: str, accel: str, as_json: bool, repeat: int) -> int:
    """Run the benchmark NAME."""
    from ummulab.bench import BENCHES, BenchOptions, print_rows, rows_json, run_bench

    rows = run_bench(name, BenchOptions(arch=arch, repeat=repeat, accel=accel))
    if as_json:
        click.echo(rows_json(rows))
    else:
        print_rows(f"{name}: {BENCHES[name][1]}", rows)
    return 0
