# SPDX-License-Identifier: GPL-2.0-or-later
"""Command lines of the documents that need a VM: those marked ``<!-- run guest -->``."""

from __future__ import annotations

import subprocess

import pytest
from ummulab import doccheck
from ummulab.build.paths import REPO

RUN = [c for d in doccheck.documents(REPO) for c in doccheck.commands(d) if c.mark == "run guest"]


def test_there_are_some() -> None:
    assert RUN


@pytest.mark.parametrize("command", RUN, ids=lambda command: command.where)
def test_command_line_runs(command: doccheck.Command) -> None:
    done = subprocess.run(command.text, shell=True, cwd=REPO, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
