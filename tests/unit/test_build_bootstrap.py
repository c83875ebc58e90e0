# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/bootstrap.py: the Python environment, made once, and one clear line when it cannot be made."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest
from ummulab.build.paths import REPO, cache_dir

SCRIPT = REPO / "scripts/bootstrap.py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UMMULAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bootstrap() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("OSError: [Errno 28] No space left on device\n", "no disk space left"),
        (
            "WARNING: … Temporary failure in name resolution\nERROR: No matching distribution",
            "cannot be reached",
        ),
        ("NewConnectionError: …\nERROR: No matching distribution", "cannot be reached"),
        ("SSLError: [SSL: CERTIFICATE_VERIFY_FAILED]\nERROR: No matching distribution", "PIP_CERT"),
        ("ERROR: No matching distribution found for x\n", "ERROR: No matching distribution found for x"),
        ("", "pip failed"),
    ],
)
def test_reason_is_one_line(bootstrap: ModuleType, tmp_path: Path, log: str, says: str) -> None:
    (tmp_path / "log").write_text(log)
    reason = bootstrap.reason(tmp_path / "log")
    assert says in reason and "\n" not in reason


def test_full_disk_is_seen_although_the_log_is_cut(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").touch()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 4096))
    assert "no disk space left" in bootstrap.reason(tmp_path / "log")


def test_the_cache_folder_is_the_same_as_the_commands(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for explicit, base in (("/a/b", ""), ("", "/xdg"), ("", "")):
        monkeypatch.setenv("UMMULAB_CACHE", explicit)
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert bootstrap.cache_dir() == cache_dir()


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--version"],
        env={**os.environ, "UMMULAB_CACHE": str(tmp_path / "file/cache")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert (
        done.stderr.startswith("ummulab: error: cannot write to the cache folder")
        and done.stderr.count("\n") == 1
    )


def test_second_one_says_that_it_waits(
    bootstrap: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lock"
    with path.open("w") as mine, path.open("w") as other:
        fcntl.flock(mine, fcntl.LOCK_EX)
        thread = threading.Thread(target=bootstrap.take, args=(other,))
        thread.start()
        deadline = time.monotonic() + 30
        said = ""
        while "waiting for another ummulab" not in said:
            assert time.monotonic() < deadline, said
            said += capsys.readouterr().err
            time.sleep(0.01)
        fcntl.flock(mine, fcntl.LOCK_UN)
        thread.join(30)
        assert not thread.is_alive()


def test_a_step_holds_the_lock_until_it_has_ended(bootstrap: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = 'echo before; exec 1>&-; read line <"$0"'
    os.mkfifo(tmp_path / "go")
    with path.open("w") as lock, (tmp_path / "log").open("w") as out:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(
            target=bootstrap.run_logged, args=(["sh", "-c", script, str(tmp_path / "go")], out, lock)
        )
        thread.start()
        go = (tmp_path / "go").open("w")  # opens when the step has opened its end
    with path.open("w") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        go.write("on\n")
        go.close()
        thread.join(30)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
