# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading TAP, and above all reading it when something is wrong."""

from __future__ import annotations

import pytest
from ummulab.vm.tap import parse_tap


def test_good_report() -> None:
    report = parse_tap("TAP version 13\nok 1 - a: 0, expected 0\n# note\nok 2 b # SKIP no device\n1..2\n")
    assert (report.failed, report.problems) == ([], ())
    assert [line.name for line in report.lines] == ["a: 0, expected 0", "b"]
    assert [line.name for line in report.skipped] == ["b"]


def test_failures_are_named() -> None:
    report = parse_tap("1..3\nok 1 - a\nnot ok 2 - b\nnot ok 3 - c # TODO later\n")
    assert [line.name for line in report.failed] == ["b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no plan"),
        ("ok 1 - a\n", "no plan"),
        ("1..2\nok 1 - a\n", "2 checks were planned, 1 were reported"),
        ("1..1\nok 1 - a\nok 2 - b\n", "1 checks were planned, 2 were reported"),
        ("ok 1 - a\nok 3 - b\n1..2\n", "2 checks were planned"),
        ("1..1\nok 1\nBail out! no node\n", "Bail out! no node"),
    ],
)
def test_broken_output_is_a_problem(text: str, problem: str) -> None:
    assert any(problem in said for said in parse_tap(text).problems)
