# SPDX-License-Identifier: GPL-2.0-or-later
"""Benchmarks: a table of names, one form of result."""

from __future__ import annotations

import importlib
import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ummulab.errors import UsageError

#: name -> ("module:function", one line of help).  A function takes BenchOptions and returns rows.
BENCHES: dict[str, tuple[str, str]] = {
    "grant": ("ummulab.grantbench:bench_grant", "libummu's calls in the guest: ranges, threads, batches."),
    "model": ("ummulab.fuzz.model:bench_model", "Requests compared between device and reference model."),
    "vm": ("ummulab.vm.bench:bench_vm", "Start, clone, command and per-test cost of a VM."),
    "device": ("ummulab.devicebench:bench_device", "Copies and look-ups of the device models, no guest."),
}


@dataclass(frozen=True)
class BenchOptions:
    """What a benchmark is told."""

    arch: str = "aarch64"
    repeat: int = 5
    accel: str = "auto"


@dataclass(frozen=True)
class Row:
    """One figure.  ``baseline`` is the same work done the plain way, measured in the same run."""

    name: str
    value: float
    unit: str
    baseline: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The row with ``ratio`` = value / baseline (null without a baseline)."""
        return {**asdict(self), "ratio": self.value / self.baseline if self.baseline else None}


def median_seconds(work: Callable[[], object], repeat: int) -> float:
    """Median wall time of a piece of work."""
    times = []
    for _ in range(repeat):
        start = time.monotonic()
        work()
        times.append(time.monotonic() - start)
    return statistics.median(times)


def run_bench(name: str, options: BenchOptions) -> list[Row]:
    """Run one benchmark by name."""
    if name not in BENCHES:
        raise UsageError(f"unknown benchmark {name!r}", hint=f"known: {', '.join(sorted(BENCHES))}")
    module, _, function = BENCHES[name][0].partition(":")
    rows = getattr(importlib.import_module(module), function)(options)
    return list(rows)


def rows_json(rows: Iterable[Row]) -> str:
    """The rows as a JSON list."""
    return json.dumps([row.as_json() for row in rows], indent=1)


def print_rows(title: str, rows: Iterable[Row]) -> None:
    """The rows as a table for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    table.add_column("figure")
    for column in ("value", "baseline", "ratio"):
        table.add_column(column, justify="right")
    table.add_column("unit")
    for row in rows:
        facts = row.as_json()
        numbers = [
            "" if facts[key] is None else f"{facts[key]:.4g}" for key in ("value", "baseline", "ratio")
        ]
        table.add_row(row.name, *numbers, row.unit)
    Console().print(table)
