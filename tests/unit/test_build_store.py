# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache of built artifacts: corruption, interruption, two builders at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ummulab.build import store
from ummulab.build.inputs import Inputs
from ummulab.build.progress import QuietReporter


class Notes(QuietReporter):
    """Keeps what would be said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


class Builder:
    """Builds two files and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, target: Path) -> dict[str, str]:
        self.calls += 1
        (target / "program").write_bytes(b"content")
        (target / "share").mkdir()
        (target / "share/data").write_bytes(b"x" * 1000)
        (target / "link").symlink_to("program")
        return {"thing": "1.0"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("UMMULAB_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"


def inputs(value: str = "1") -> Inputs:
    made = Inputs("thing", "aarch64")
    made.add("value", value)
    return made


def test_built_once_and_found_again() -> None:
    build = Builder()
    first = store.get(inputs(), build, QuietReporter())
    again = store.get(inputs(), build, QuietReporter())
    assert build.calls == 1
    assert first.path == again.path
    assert again.versions == {"thing": "1.0"}
    assert again.size() == 1007


def test_another_input_is_another_entry() -> None:
    build = Builder()
    first = store.get(inputs("1"), build, QuietReporter())
    other = store.get(inputs("2"), build, QuietReporter())
    assert build.calls == 2 and first.path != other.path


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda p: (p / "program").write_bytes(b"CONTENT"), "has changed"),
        (lambda p: (p / "program").write_bytes(b"longer content"), "14 bytes instead of 7"),
        (lambda p: (p / "share/data").unlink(), "is missing"),
        (lambda p: (p / "link").unlink(), "not the link"),
        (lambda p: (p / "manifest.json").write_text("{"), "unreadable manifest"),
        (lambda p: (p / "manifest.json").write_text("[]"), "not an object"),
        (lambda p: (p / "manifest.json").write_text('{"format": 1}'), "no valid 'kind'"),
        (lambda p: (p / "manifest.json").unlink(), "unreadable manifest"),
    ],
)
def test_corrupt_entry_is_told_in_one_line_and_made_again(damage: object, says: str) -> None:
    build, notes = Builder(), Notes()
    entry = store.get(inputs(), build, notes)
    assert callable(damage)
    damage(entry.path)
    again = store.get(inputs(), build, notes)
    assert build.calls == 2
    assert len(notes.lines) == 1 and says in notes.lines[0] and "\n" not in notes.lines[0]
    assert (again.path / "program").read_bytes() == b"content"
    assert [path.name for path in store.entries_dir().iterdir()] == [entry.path.name]


def test_thorough_check_sees_a_change_behind_an_equal_stamp() -> None:
    entry = store.get(inputs(), Builder(), QuietReporter())
    program = entry.path / "program"
    stat = program.stat()
    program.write_bytes(b"CONTENT")
    os.utime(program, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(store.Corrupt, match="has changed"):
        store.verify(entry.path, thorough=True)


def test_new_time_stamp_with_the_same_content_is_accepted() -> None:
    build, notes = Builder(), Notes()
    entry = store.get(inputs(), build, notes)
    os.utime(entry.path / "program", ns=(1, 1))
    assert store.get(inputs(), build, notes).path == entry.path
    assert build.calls == 1 and notes.lines == []
    assert store.read_manifest(entry.path)["files"]["program"]["mtime_ns"] == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_interrupted_build_leaves_nothing(error: type[BaseException]) -> None:
    def broken(target: Path) -> dict[str, str]:
        (target / "half").write_bytes(b"half")
        raise error

    with pytest.raises(error):
        store.get(inputs(), broken, QuietReporter())
    assert list(store.entries_dir().iterdir()) == []
    build = Builder()
    store.get(inputs(), build, QuietReporter())
    assert build.calls == 1


KILLED = """
import sys, time
from ummulab.build import store
from ummulab.build.inputs import Inputs
from ummulab.build.progress import QuietReporter
def build(target):
    (target / "half").write_bytes(b"half")
    print("building", flush=True)
    time.sleep(600)
made = Inputs("thing", "aarch64"); made.add("value", "1")
store.get(made, build, QuietReporter())
"""


def test_killed_build_is_made_again_without_its_leftovers() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"building\n"
        child.send_signal(signal.SIGKILL)
    assert [path.name[:5] for path in store.entries_dir().iterdir()] == [".new-"]
    entry = store.get(inputs(), Builder(), QuietReporter())
    assert [path.name for path in store.entries_dir().iterdir()] == [entry.path.name]


def _slow_build(target: Path) -> dict[str, str]:
    (target / f"by-{os.getpid()}").touch()
    time.sleep(0.3)
    return {}


def _get_slowly(_: int) -> str:
    entry = store.get(inputs(), _slow_build, QuietReporter())
    return ",".join(entry.manifest["files"])


def test_two_builders_at_once_build_once() -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        results = pool.map_async(_get_slowly, range(3)).get(timeout=60)
    assert len(set(results)) == 1 and results[0].startswith("by-")


def test_read_only_cache_works() -> None:
    entry = store.get(inputs(), Builder(), QuietReporter())
    found = store.find(inputs(), QuietReporter())
    assert found is not None and found.path == entry.path
