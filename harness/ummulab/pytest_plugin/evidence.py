# SPDX-License-Identifier: GPL-2.0-or-later
"""What a failed test shows of its VMs.  Nothing here may raise: the test's own error is the news."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ummulab.errors import UserError

if TYPE_CHECKING:
    from ummulab.vm import Vm

LINES = 40
TRANSCRIPT_LINES = 30
LINE_LIMIT = 400
QMP_SECONDS = 3.0
#: Reports of `ummulab decode` that say what the hardware would have used.
TABLES = ("tct", "mapt", "eventq")
TABLE_LINES = 80


def sections(vms: Sequence[Vm]) -> list[tuple[str, str]]:
    """Report sections, the guest's own words first."""
    found = []
    for number, vm in enumerate(vms, 1):
        name = f"VM {number}" if len(vms) > 1 else "VM"
        for title, get in _SOURCES:
            try:
                text = get(vm).rstrip()
            except (UserError, OSError, KeyError, ValueError, AttributeError) as error:
                lines = str(error).splitlines()
                text = f"not available: {lines[0] if lines else type(error).__name__}"
            if text:
                found.append((f"{name}: {title}", text))
    return found


def properties(vms: Sequence[Vm]) -> list[tuple[str, object]]:
    """JUnit properties: what was tested, and where the time went (seconds)."""
    first = vms[0].images
    found: list[tuple[str, object]] = [
        (f"version_{name}", text) for name, text in sorted(first.versions.items())
    ]
    found += [(f"sha256_{name}", digest) for name, digest in sorted(first.hashes.items())]
    for phase in ("boot", "exec"):
        found.append((f"seconds_{phase}", round(sum(vm.times[phase] for vm in vms), 4)))
    return found


def _kernel_log(vm: Vm) -> str:
    return "\n".join(vm.kernel_log.tail(LINES))


def _console(vm: Vm) -> str:
    return "\n".join(vm.console_tail.lines(LINES))


def _transcript(vm: Vm) -> str:
    lines = list(vm.qmp.transcript)[-TRANSCRIPT_LINES:]
    return "\n".join(line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]}…" for line in lines)


def _counters(vm: Vm) -> str:
    from ummulab.vm.counters import device_counters, format_counters

    return format_counters(device_counters(vm.qmp, QMP_SECONDS)) if vm.alive else ""


def _tables(vm: Vm) -> str:
    if not vm.alive:
        return ""
    from io import StringIO

    from rich.console import Console

    from ummulab.decode import reports
    from ummulab.decode.report import print_reports
    from ummulab.decode.source import device_view

    out = StringIO()
    view = device_view(_Commands(vm), vm.memory)
    for kind in TABLES:
        print_reports(
            reports.KINDS[kind](view, reports.Filter(None, None, None, None, 8)),
            as_json=False,
            console=Console(file=out, width=160, highlight=False, soft_wrap=True),
        )
    lines = out.getvalue().splitlines()
    more = [f"… {len(lines) - TABLE_LINES} more lines: ummulab decode"] if len(lines) > TABLE_LINES else []
    return "\n".join([*lines[:TABLE_LINES], *more])


class _Commands:
    """A VM's QMP in the form the decoder wants."""

    def __init__(self, vm: Vm) -> None:
        self._qmp = vm.qmp

    def command(self, name: str, **arguments: object) -> object:
        """One command and its answer."""
        return self._qmp.execute(name, arguments, QMP_SECONDS)


def _qemu(vm: Vm) -> str:
    return vm.stderr_text()


_SOURCES: tuple[tuple[str, Callable[[Vm], str]], ...] = (
    ("kernel log", _kernel_log),
    ("console", _console),
    ("QEMU's stderr", _qemu),
    ("QMP", _transcript),  # before we ask more ourselves
    ("device counters", _counters),
    ("what the UMMU sees", _tables),
)
