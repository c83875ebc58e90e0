# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab bench device`` works and has exactly its names; no figure is judged, and the amounts are small here."""

from __future__ import annotations

import pytest
from ummulab.bench import BENCHES, BenchOptions, run_bench
from ummulab.devicebench import copies, lookups

NAMES = [
    "copy_64m_4k", "copy_64m_2m", "edu_copy_64m", "host_memcpy_64m", "lookup_hit", "lookup_miss",
    "lookup_miss_1e5_ranges", "lookup_miss_1e5_tids",
]  # fmt: skip


def test_bench_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "LENGTH", 4 << 20)
    monkeypatch.setattr(copies, "RAM", 128 << 20)
    monkeypatch.setattr(lookups, "MANY", 2000)
    monkeypatch.setattr(lookups, "_COUNT_HIT", 2000)
    monkeypatch.setattr(lookups, "_COUNT_MISS", 2000)
    rows = run_bench("device", BenchOptions(repeat=1))
    assert [row.name for row in rows] == NAMES
    assert all(row.value > 0 for row in rows)
    assert {row.unit for row in rows if "copy" in row.name or "memcpy" in row.name} == {"B/s"}
    assert {row.unit for row in rows if "lookup" in row.name} == {"ns"}
    assert all(row.baseline == rows[3].value for row in rows[:3]), (
        "one memcpy of one run is the yardstick of all"
    )
    assert "device" in BENCHES
