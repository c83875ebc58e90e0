# SPDX-License-Identifier: GPL-2.0-or-later
"""TAP, the output of the kernel's selftests, read from programs in the guest."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"^(not )?ok (\d+)(?: -)?\s*(.*?)(?:\s+#\s*(SKIP|TODO|XFAIL)\b\s*(.*))?$")
_PLAN = re.compile(r"^1\.\.(\d+)")


@dataclass(frozen=True)
class TapLine:
    """One check of a program."""

    number: int
    ok: bool
    name: str
    directive: str  #: SKIP, TODO, XFAIL or ""


@dataclass(frozen=True)
class TapReport:
    """All checks of a program.  ``problems`` says what is wrong with the output itself."""

    lines: tuple[TapLine, ...]
    planned: int | None
    problems: tuple[str, ...]

    @property
    def failed(self) -> list[TapLine]:
        """Checks that failed; a SKIP is none, a TODO neither."""
        return [line for line in self.lines if not line.ok and not line.directive]

    @property
    def skipped(self) -> list[TapLine]:
        """Checks that were not made."""
        return [line for line in self.lines if line.directive == "SKIP"]


def parse_tap(text: str) -> TapReport:
    """Read a program's output.  A missing plan or number is a problem: the program may have died half-way."""
    lines: list[TapLine] = []
    planned: int | None = None
    problems: list[str] = []
    for raw in text.splitlines():
        if match := _PLAN.match(raw):
            planned = int(match[1])
        elif match := _LINE.match(raw):
            lines.append(TapLine(int(match[2]), not match[1], match[3], match[4] or ""))
        elif raw.startswith("Bail out!"):
            problems.append(raw)
    if planned is None:
        problems.append("no plan: the program did not come to its end")
    elif [line.number for line in lines] != list(range(1, planned + 1)):
        problems.append(f"{planned} checks were planned, {len(lines)} were reported")
    return TapReport(tuple(lines), planned, tuple(problems))
