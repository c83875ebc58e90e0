# SPDX-License-Identifier: GPL-2.0-or-later
"""Decoded objects as rows, and rows as a table for people or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ummulab.decode.view import Problem
from ummulab.layouts import Entry


@dataclass
class Report:
    """A titled list of rows.  ``columns`` are the keys that the table form shows; JSON has all of them."""

    title: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, entry: Entry | None = None, **values: Any) -> None:
        """A row; with an entry it also holds its address, raw words and fields."""
        if entry is not None:
            values = {**values, "addr": entry.addr, "words": entry.hex_words(), "fields": entry.fields}
        self.rows.append(values)

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "title": self.title,
            "rows": self.rows,
            "problems": [{"path": p.path, "addr": p.addr, "text": p.text} for p in self.problems],
        }


_HEX = frozenset(
    {"addr", "first", "last", "va", "pa", "ipa", "desc", "base", "size", "eid", "tag", "tid", "value"}
)


def text_of(key: str, value: Any) -> str:
    """A cell: addresses in hexadecimal, lists joined."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int) and key in _HEX:
        return f"{value:#x}"
    if isinstance(value, dict):
        return " ".join(
            f"{k}={v:#x}" if isinstance(v, int) and v > 9 else f"{k}={v}" for k, v in value.items() if v
        )
    if isinstance(value, list | tuple):
        return " ".join(text_of(key, v) for v in value)
    return str(value)


def print_reports(reports: Iterable[Report], *, as_json: bool, console: Console, raw: bool = False) -> int:
    """Print reports; returns the number of problems."""
    reports = list(reports)
    if as_json:
        body = [r.as_json() for r in reports]
        console.file.write(json.dumps(body[0] if len(body) == 1 else body, indent=1) + "\n")
        return sum(len(r.problems) for r in reports)
    for report in reports:
        console.print(_table(report, raw=raw))
        if not report.rows:
            console.print("  (none)", highlight=False)
        for problem in report.problems:
            console.print(Text(f"damaged: {problem}", style="red"))
    return sum(len(r.problems) for r in reports)


def _table(report: Report, *, raw: bool) -> Table:
    columns = (*report.columns, "words") if raw and "words" not in report.columns else report.columns
    table = Table(title=report.title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name not in ("fields", "words", "meaning"))
    for row in report.rows:
        table.add_row(*(Text(text_of(c, row.get(c, ""))) for c in columns))
    return table
