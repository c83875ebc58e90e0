# SPDX-License-Identifier: GPL-2.0-or-later
"""What our documents promise: command lines and links, found so that tests can hold them to it.

A code block (indented or fenced) is *run* by the tests when the line before it, blank lines apart, is
``<!-- run -->`` (no guest needed) or ``<!-- run guest -->``.  Every other line that begins with
``scripts/ummulab`` or ``make`` is checked to name existing commands, options and targets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ummulab.cli import app

LAUNCHER = "scripts/ummulab"
_MARK = re.compile(r"^<!-- run( guest)? -->$")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$")
#: Passed on by the launcher to the tools of the same name.
TOOLS = ("python", "pytest", "ruff", "mypy")


@dataclass(frozen=True)
class Command:
    """One command line of a document."""

    document: Path
    line: int
    text: str  #: as in the document, without prompt and comment
    mark: str  #: "", "run" or "run guest"

    @property
    def where(self) -> str:
        """For messages and test names."""
        return f"{self.document.name}:{self.line}"


def documents(root: Path) -> list[Path]:
    """All Markdown files of the repository."""
    return sorted([root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")])


def commands(document: Path) -> list[Command]:
    """The command lines in a document's code blocks."""
    found = []
    for line, text, mark in _code_lines(document.read_text().splitlines()):
        words = text.removeprefix("$ ").strip()
        start = re.sub(r"^(\w+=\S+ +)*", "", words)
        if start.startswith((f"{LAUNCHER} ", "make ")) or (mark and words):
            found.append(Command(document, line, _without_comment(words), mark))
    return found


def _code_lines(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    fenced = False
    mark = ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            mark = mark if fenced else ""
        elif fenced or (line.startswith("    ") and line.strip()):
            yield number, line.strip(), mark
        elif match := _MARK.match(line):
            mark = f"run{match[1] or ''}"
        elif line.strip():
            mark = ""


def _without_comment(text: str) -> str:
    # Two blanks before it: a single " #" may belong to the command.
    return re.sub(r"\s{2,}#.*$", "", text)


def problem(command: Command, targets: set[str]) -> str:
    """What is wrong with a command line, or "" if it could run; ``targets`` are the Makefile's."""
    words = shlex.split(command.text)
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    for stop in ("|", ">", "&&", "&", "<", "2>", ";"):
        if stop in words:
            words = words[: words.index(stop)]
    if not words:
        return ""
    if command.mark and {"clean", "gc"} & set(words):
        return "marked to be run, and would remove what was built"
    if words[0] == "make":
        goals = [w for w in words[1:] if "=" not in w and not w.startswith("-")]
        unknown = [goal for goal in goals if goal not in targets]
        return f"no make target {unknown}" if unknown else ""
    if words[0] != LAUNCHER or words[1:2] == ["COMMAND"]:
        return ""
    return _ummulab_problem(words[1:])


def _ummulab_problem(words: list[str]) -> str:
    command: click.Command = app
    context = click.Context(app)
    if words and words[0] in TOOLS:
        return ""
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name!r}"
        command, context = found, click.Context(found, parent=context)
    known = {"--help", "-h", "--version"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            known |= {*parameter.opts, *parameter.secondary_opts}
    for word in words:
        if word == "--":
            break
        if word.startswith("-") and word.partition("=")[0] not in known and not re.fullmatch(r"-\d+", word):
            return f"no option {word} of {command.name}"
    return ""


def broken_links(document: Path) -> list[str]:
    """Relative links whose file or heading does not exist."""
    text = document.read_text()
    bad = []
    for target in _LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            bad.append(target)
    return bad


def _anchors(document: Path) -> set[str]:
    anchors = set()
    for line in document.read_text().splitlines():
        if match := _HEADING.match(line):
            words = re.sub(r"[^\w\- ]", "", match[1].lower())
            anchors.add(words.replace(" ", "-"))
    return anchors
