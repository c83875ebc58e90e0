# SPDX-License-Identifier: GPL-2.0-or-later
"""What `ummulab images gc` and `make clean` remove, and what they must leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ummulab.build import housekeeping, sources, store
from ummulab.build.inputs import Inputs
from ummulab.build.progress import QuietReporter
from ummulab.errors import UserError

HOUR = 3600.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UMMULAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entry(value: str, hours: float) -> Path:
    """An artifact of 1000 bytes that was used some hours ago."""
    made = Inputs("thing", "aarch64")
    made.add("value", value)

    def build(target: Path) -> dict[str, str]:
        (target / "data").write_bytes(b"x" * 1000)
        return {}

    folder = store.get(made, build, QuietReporter()).path
    return aged(folder, hours)


def aged(folder: Path, hours: float) -> Path:
    then = time.time() - hours * HOUR
    for path in (folder / ".used", folder):
        if path.exists():
            os.utime(path, (then, then))
    return folder


def template(cache: Path, name: str, hours: float) -> Path:
    folder = cache / housekeeping.TEMPLATES / name
    folder.mkdir(parents=True)
    (folder / "ram").write_bytes(b"x" * 500)
    (folder / ".used").touch()
    return aged(folder, hours)


def test_only_what_was_not_used_goes(cache: Path) -> None:
    kept = [entry("new", 1), template(cache, "new", 1)]
    gone = [entry("old", 30), template(cache, "old", 30)]
    freed = housekeeping.collect(24, QuietReporter())
    assert [path.exists() for path in (*kept, *gone)] == [True, True, False, False]
    assert freed >= 1500


def test_all_goes_and_downloads_stay(cache: Path) -> None:
    gone = [entry("new", 0), template(cache, "new", 0)]
    lock = cache / housekeeping.TEMPLATES / "new.lock"
    lock.touch()
    download = cache / "downloads/source.tar"
    download.parent.mkdir()
    download.write_bytes(b"y" * 10)
    work = sources.work_dir() / "tree"
    work.mkdir(parents=True)
    (work / "file").write_bytes(b"z" * 10)
    housekeeping.collect(0, QuietReporter())
    assert housekeeping.remove_work(QuietReporter()) == 10
    assert [path.exists() for path in (*gone, lock, work, download)] == [False] * 4 + [True]


def test_an_empty_cache_is_no_error(cache: Path) -> None:
    assert housekeeping.collect(0, QuietReporter()) == 0
    assert housekeeping.remove_work(QuietReporter()) == 0
    assert not cache.exists() or not list(cache.glob("entries/*"))


def test_work_folders_of_a_running_build_stay(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = sources.work_dir() / "tree"
    monkeypatch.setattr(housekeeping, "BUILD_SECONDS", 0.3)

    def build(_: Path) -> dict[str, str]:
        work.mkdir(parents=True)
        with pytest.raises(UserError, match="still holds"):
            housekeeping.remove_work(QuietReporter())
        return {"there": str(work.exists())}

    made = store.get(Inputs("thing", "aarch64"), build, QuietReporter())
    assert made.versions == {"there": "True"}
