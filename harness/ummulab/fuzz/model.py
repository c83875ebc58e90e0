# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab fuzz model``, ``ummulab replay`` and ``ummulab bench model``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ummulab.bench import BenchOptions, Row
from ummulab.fuzz import differential as d
from ummulab.qtest.machine import QtestMachine

QUESTIONS = 400


def hunt(
    seconds: float, start: int, output: Path, note: Callable[[str], None] = print
) -> tuple[int, list[Path]]:
    """Compare on random recipes for a time; returns (requests, files of minimal findings)."""
    requests, found = 0, []
    deadline = time.monotonic() + seconds
    seed = start
    with QtestMachine() as machine:
        while time.monotonic() < deadline:
            finding = d.first_finding(machine, d.random_recipe(seed, QUESTIONS))
            requests += QUESTIONS
            if finding:
                small = d.shrink(machine, finding)
                path = output / f"model-{seed:#x}.yaml"
                d.save(small, path)
                found.append(path)
                note(f"seed {seed:#x}: {small.text} ({path})")
            seed += 1
    return requests, found


def replay(path: Path) -> list[str]:
    """What device and model say differently about a saved recipe; empty: they agree."""
    recipe = d.load(path)
    with QtestMachine() as machine:
        bench, view = d.apply(machine, recipe)
        return [f"{question}: {text}" for question, text in d.ask(bench, view, recipe.questions) if text]


def bench_model(options: BenchOptions) -> list[Row]:
    """``requests_per_s``: requests answered by device and model and compared, images included."""
    begin = time.monotonic()
    requests = 0
    with QtestMachine() as machine:
        for seed in range(4 * options.repeat):
            bench, view = d.apply(machine, d.random_recipe(seed, QUESTIONS))
            requests += len(list(d.ask(bench, view, d.random_recipe(seed, QUESTIONS).questions)))
    return [Row("requests_per_s", requests / (time.monotonic() - begin), "1/s")]
