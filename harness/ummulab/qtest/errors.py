# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors of the qtest layer.  Each says what was awaited and shows the evidence."""

from __future__ import annotations


class QtestError(RuntimeError):
    """Something went wrong between the test and QEMU."""


class QemuDied(QtestError):
    """QEMU ended (or never got going); carries its exit status and the end of its stderr."""

    def __init__(self, doing: str, status: int | None, stderr_tail: str) -> None:
        self.doing = doing
        self.status = status
        self.stderr_tail = stderr_tail
        how = "is still running but closed its socket" if status is None else f"ended with status {status}"
        super().__init__(f"QEMU {how} while {doing}\n{stderr_tail.rstrip() or '(no output on stderr)'}")


class QtestTimeout(QtestError):
    """A bounded wait ran out."""

    def __init__(self, what: str, limit_s: float, evidence: str = "") -> None:
        self.what = what
        super().__init__(f"waited {limit_s:g} s for {what}" + (f"\n{evidence.rstrip()}" if evidence else ""))


class QmpCommandError(QtestError):
    """QEMU answered a QMP command with an error object."""

    def __init__(self, command: str, error_class: str, description: str) -> None:
        self.command = command
        self.error_class = error_class
        self.description = description
        super().__init__(f"QMP {command}: {error_class}: {description}")
