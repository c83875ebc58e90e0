# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong with a VM; each error carries the evidence, not only the fact."""

from __future__ import annotations

from collections.abc import Sequence

from ummulab.errors import UserError


class VmError(UserError):
    """Base of all VM errors.  The first line of the text says what happened, evidence follows."""


class VmDied(VmError):
    """QEMU ended although nobody asked it to."""

    def __init__(self, what: str, exit_text: str, stderr_tail: Sequence[str]) -> None:
        self.stderr_tail = list(stderr_tail)
        text = f"QEMU ended ({exit_text}) while {what}"
        if stderr_tail:
            text += "\nlast lines of QEMU's stderr:\n" + "\n".join(f"  {line}" for line in stderr_tail)
        super().__init__(text)


class GuestPanic(VmError):
    """The guest kernel panicked; the text holds the stack."""

    def __init__(self, reason: str, trace: str) -> None:
        self.reason = reason
        self.trace = trace
        super().__init__(f"guest panic: {reason}\n{trace}")


class VmTimeout(VmError):
    """A wait is over its budget; says what was awaited and what was seen instead."""

    def __init__(self, what: str, budget: float, evidence: str = "", partial: bytes = b"") -> None:
        self.what = what
        self.budget = budget
        self.partial = partial
        text = f"timed out after {budget:g} s waiting for {what}"
        super().__init__(f"{text}\n{evidence}" if evidence else text)


class QmpError(VmError):
    """QEMU refused a QMP command."""

    def __init__(self, command: str, error_class: str, description: str) -> None:
        self.command = command
        self.error_class = error_class
        self.description = description
        super().__init__(f"QMP {command}: {description}")


class CommandFailed(VmError):
    """A guest command ended with a status other than 0 although ``check=True`` was given."""

    def __init__(self, command: str, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
        text = f"guest command failed with status {status}: {command}"
        for name, data in (("stdout", stdout), ("stderr", stderr)):
            if data:
                tail = data[-2000:].decode(errors="replace").rstrip()
                text += f"\n{name}:\n" + "\n".join(f"  {line}" for line in tail.splitlines())
        super().__init__(text)


class StateError(VmError):
    """A saved state is damaged, foreign or from another build."""
