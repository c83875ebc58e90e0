# SPDX-License-Identifier: GPL-2.0-or-later
"""Documents are held to what they say: links, command lines, generated parts."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from ummulab import doccheck
from ummulab.build.paths import REPO
from ummulab.cli import COMMANDS

DOCUMENTS = doccheck.documents(REPO)
LINES = [command for document in DOCUMENTS for command in doccheck.commands(document)]
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (REPO / "Makefile").read_text(), re.MULTILINE))
WRONG = {command.where: said for command in LINES if (said := doccheck.problem(command, TARGETS))}
RUN = [command for command in LINES if command.mark == "run" and command.where not in WRONG]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_links(document: Path) -> None:
    assert doccheck.broken_links(document) == []


def test_command_lines_name_what_exists() -> None:
    assert len(LINES) > 20
    assert WRONG == {}


def test_no_line_that_is_run_cleans_the_cache() -> None:
    """Tests run on the user's own cache: an example of cleaning it may be shown, never run."""
    assert [c.where for c in RUN if re.search(r"\bclean\b|\bgc\b|\brm\b|--refresh", c.text)] == []


@pytest.mark.parametrize("command", RUN, ids=lambda command: command.where)
def test_command_line_runs(command: doccheck.Command) -> None:
    done = subprocess.run(
        command.text,
        shell=True,
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr


def test_every_command_is_in_the_table_of_tools() -> None:
    table = (REPO / "docs/tools/README.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in table and f"`ummulab {name}`" not in table] == []


def test_every_make_target_is_explained() -> None:
    text = (REPO / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert phony
    silent = [
        name
        for name in phony[1].replace("\\\n", " ").split()
        if not re.search(rf"^{name}:.*## ", text, re.MULTILINE)
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scripts/ummulab nonsense", "no command 'nonsense'"),
        ("scripts/ummulab run --nonsense", "no option --nonsense of run"),
        ("scripts/ummulab images nonsense", "no command 'nonsense'"),
        ("make nonsense", "no make target ['nonsense']"),
        ("GUEST_ARCH=x86_64 make run-vm", ""),
        ("scripts/ummulab exec -- ls --anything", ""),
        ("scripts/ummulab decode --help | head", ""),
    ],
)
def test_the_checker_itself(text: str, said: str) -> None:
    assert doccheck.problem(doccheck.Command(Path("x.md"), 1, text, ""), TARGETS) == said


@pytest.mark.parametrize("text", ["make clean", "scripts/ummulab images gc --all"])
def test_nothing_that_removes_things_is_run(text: str) -> None:
    assert "would remove" in doccheck.problem(doccheck.Command(Path("x.md"), 1, text, "run"), TARGETS)
    assert doccheck.problem(doccheck.Command(Path("x.md"), 1, text, ""), TARGETS) == ""


def test_the_parser_itself(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\ntext\n\n    scripts/ummulab run  # a comment\n\n<!-- run -->\n\n    echo hi\n\ntext\n\n"
        "```sh\n$ scripts/ummulab exec -- sh -c 'echo #1'\nother\n```\n"
        "[a](#a-page) [b](#none) [c](gone.md) [d](page.md)\n"
    )
    found = [(c.line, c.text, c.mark) for c in doccheck.commands(page)]
    assert found == [
        (4, "scripts/ummulab run", ""),
        (8, "echo hi", "run"),
        (13, "scripts/ummulab exec -- sh -c 'echo #1'", ""),
    ]
    assert doccheck.broken_links(page) == ["#none", "gone.md"]
