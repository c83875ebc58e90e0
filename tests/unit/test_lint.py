# SPDX-License-Identifier: GPL-2.0-or-later
"""Every language's linter, formatter and the rules of this repository, run as tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ummulab import codegen
from ummulab.build import style
from ummulab.build.progress import default_reporter

REPO = Path(__file__).resolve().parents[2]
PYTHON = ["harness", "tests", "scripts"]
#: A few lines over are fine, a file that has grown into two is not.
MAX_LINES = 650
CODE = {".c", ".h", ".py", ".yaml"}
SPDX = {".c", ".h", ".py", ".sh", ".mak"}


def tracked() -> list[Path]:
    """Files under version control, and new ones that are not ignored."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=True).stdout.split("\0")
    return [REPO / name for name in names if name and (REPO / name).is_file()]


def generated() -> set[Path]:
    """What the code generator writes; its style is the generator's business."""
    return {REPO / name for name in codegen.OUTPUTS}


def c_files(folder: str) -> list[Path]:
    """C sources written by hand below a folder."""
    skip = generated()
    files = [p for p in tracked() if p.suffix in (".c", ".h") and p.is_relative_to(REPO / folder)]
    return sorted(p for p in files if p not in skip and not p.name.endswith("_trace.h"))


def run_tool(*argv: str) -> str:
    """Output of a Python tool, empty when it has nothing to say."""
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=REPO, capture_output=True, text=True, timeout=300
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(
    "argv",
    [["ruff", "check", "-q", *PYTHON], ["ruff", "format", "--check", "-q", *PYTHON], ["mypy"]],
    ids=["ruff", "format", "mypy"],
)
def test_lint_python(argv: list[str]) -> None:
    assert run_tool(*argv) == ""


def row_of_a_list(finding: str) -> bool:
    """A macro for an X-macro list, such as ``#define ROW(code, name) { code, #name },``: cannot have parentheses."""
    where, _, text = finding.partition(": ")
    if "Macros with complex values" not in text:
        return False
    name, number = where.rsplit(":", 1)
    lines = Path(name).read_text().splitlines()[int(number) - 1 :]
    while lines[0].endswith("\\"):
        lines[:2] = [lines[0][:-1] + lines[1]]
    return lines[0].rstrip().endswith(",")


def test_lint_model_in_qemu_style() -> None:
    files = c_files("qemu-device")
    assert len(files) > 20
    found = [
        line
        for line in style.findings(style.qemu_checkpatch(default_reporter()), files)
        if not row_of_a_list(line)
    ]
    assert not found, "\n".join(found)


def test_lint_modules_in_kernel_style() -> None:
    files = c_files("guest/kmod")
    assert len(files) > 20
    assert not (found := style.findings(style.kernel_checkpatch(default_reporter()), files)), "\n".join(found)


def test_lint_checkers_do_find_things(tmp_path: Path) -> None:
    """A checker that stays silent about bad code would make the two tests above worthless."""
    bad = tmp_path / "bad.c"
    bad.write_text("int f( void ) {\nif(x) return(0);\n}   \n")
    for command in (style.qemu_checkpatch(default_reporter()), style.kernel_checkpatch(default_reporter())):
        assert len(style.findings(command, [bad])) >= 3


def test_lint_licence_in_every_file() -> None:
    missing = [
        str(path.relative_to(REPO))
        for path in tracked()
        if (path.suffix in SPDX or path.name in ("Makefile", "meson.build", "Kconfig"))
        and "SPDX-License-Identifier:" not in path.read_text()[:400]
    ]
    assert missing == []


def test_lint_file_sizes() -> None:
    skip = generated()
    long = {
        str(path.relative_to(REPO)): lines
        for path in tracked()
        if path.suffix in CODE
        and path not in skip
        and "spec" not in path.parts
        and (lines := path.read_text().count("\n")) > MAX_LINES
    }
    assert long == {}


def test_lint_text_files() -> None:
    """No trailing blanks, no missing final newline, no path of somebody's machine."""
    problems = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            problems.append(f"{path.relative_to(REPO)}: not text")
            continue
        name = path.relative_to(REPO)
        if text and not text.endswith("\n"):
            problems.append(f"{name}: no newline at the end")
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                problems.append(f"{name}:{number}: trailing blanks")
            if "/root/" + "scratch" in line or "/work/" + "main" in line:
                problems.append(f"{name}:{number}: a path of one machine")
    assert problems == []
