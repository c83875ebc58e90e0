# SPDX-License-Identifier: GPL-2.0-or-later
"""Benchmarks: the names and the form that other tools rely on."""

from __future__ import annotations

import importlib
import json

import pytest
from ummulab import bench, grantbench
from ummulab.bench import BENCHES, Row, rows_json
from ummulab.errors import UsageError

GRANT = [
    *("grant_1", "grant_1e3", "grant_1e5", "threads_1", "threads_2", "threads_4"),
    *("batch_1000", "plbi_queue_vs_ioctl", "nop_latency"),
]


def test_json_form() -> None:
    rows = json.loads(rows_json([Row("a", 2.0, "s", 4.0), Row("b", 1.0, "s")]))
    assert rows == [
        {"name": "a", "value": 2.0, "unit": "s", "baseline": 4.0, "ratio": 0.5},
        {"name": "b", "value": 1.0, "unit": "s", "baseline": None, "ratio": None},
    ]


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown benchmark 'x'"):
        bench.run_bench("x", bench.BenchOptions())


@pytest.mark.parametrize("name", list(BENCHES))
def test_every_benchmark_can_be_found(name: str) -> None:
    module, _, function = BENCHES[name][0].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_rows_of_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeVm:
        def run(self, *_: object, **__: object) -> None:
            pass

    answer = {"seconds": 1.0, "per_second": 5.0, "single": 10.0, "batch": 2.0}
    monkeypatch.setattr(grantbench, "_run", lambda *_: answer)
    rows = {row.name: row for row in grantbench.measure(FakeVm())}  # type: ignore[arg-type]
    assert list(rows) == GRANT
    assert rows["batch_1000"].as_json()["ratio"] == 0.2
    assert rows["threads_4"].baseline == 5.0
