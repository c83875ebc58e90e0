# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of the guest tests come from the plugin; here is what these tests add."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from ummulab.build.paths import REPO

LAUNCHER = str(REPO / "scripts/ummulab")


@dataclass(frozen=True)
class Run:
    """What a command of ours did."""

    status: int
    stdout: str
    stderr: str

    @property
    def last(self) -> str:
        """The last line of stderr that is not a hint: the message."""
        lines = [line for line in self.stderr.splitlines() if not line.startswith("ummulab: hint:")]
        return lines[-1] if lines else ""


Ummulab = Callable[..., Run]


@pytest.fixture
def ummulab() -> Ummulab:
    """Runs ``scripts/ummulab`` as a person would: ``ummulab("exec", "--", "true", env={…}, stdin="…")``."""

    def run(*words: str, env: dict[str, str] | None = None, stdin: str = "", limit: float = 180) -> Run:
        done = subprocess.run(
            [LAUNCHER, *words],
            env={**os.environ, "NO_COLOR": "1", **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    return run
