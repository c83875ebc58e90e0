# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad surroundings: each ends with one clear line and leaves nothing running."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ummulab import cli
from ummulab.build import debian, host, process
from ummulab.build.debian import Fetcher
from ummulab.build.locks import locked
from ummulab.build.paths import cache_dir, writable
from ummulab.build.pipeline import Pipeline
from ummulab.build.progress import QuietReporter
from ummulab.errors import UserError

QUIET = QuietReporter()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UMMULAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def release(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    monkeypatch.setattr(host, "os_release", lambda: values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"ID": "fedora", "VERSION_ID": "42", "PRETTY_NAME": "Fedora 42"},
        {"ID": "debian", "VERSION_ID": "11"},
    ],
)
def test_not_debian(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    release(monkeypatch, **values)
    with pytest.raises(UserError, match="not a Debian system") as caught:
        host.require_packages(["gcc"], QUIET)
    assert "UMMULAB_IMAGES" in (caught.value.hint or "")


def test_packages_that_are_missing_are_found() -> None:
    assert host.missing_packages(["base-files", "no-such-package-here", "dpkg"]) == ["no-such-package-here"]


def test_no_root_and_no_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    release(monkeypatch, ID="debian", VERSION_ID="12")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UserError, match="no sudo") as caught:
        host.require_packages(["no-such-package-here"], QUIET)
    assert caught.value.hint == "run as root: apt-get install no-such-package-here"


def test_full_disk_is_told_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1 << 20))
    with pytest.raises(UserError, match=r"4\.0 GiB needed, 0\.0 GiB free"):
        host.require_disk(4.0, "building")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_full_disk_at_a_write_of_our_own(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(**_: object) -> None:
        raise OSError(number, os.strerror(number), "/cache/entries/x")

    monkeypatch.setattr(cli.app, "main", write)
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    assert end.value.code == 1 and out == ""
    assert err.splitlines()[0] == f"ummulab: error: {os.strerror(number)}: /cache/entries/x"
    assert "UMMULAB_CACHE" in err.splitlines()[1] and "Traceback" not in err


def test_another_error_of_the_system_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(**_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(cli.app, "main", fault)
    with pytest.raises(OSError, match="Bad file descriptor"):
        cli.main()


def test_first_build_says_at_once_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1 << 30))
    with pytest.raises(UserError, match=r"building everything: 3\.5 GiB needed, 1\.0 GiB free"):
        Pipeline("aarch64", QUIET).entries()
    assert not (cache_dir() / "downloads").exists()


def test_full_disk_is_told_after_it_happened(tmp_path: Path) -> None:
    script = "echo 'cc1: error: x.o: No space left on device'; exit 1"
    with pytest.raises(UserError, match="no disk space left"):
        process.run(["sh", "-c", script], tmp_path / "log", "compiling")


def test_unreachable_mirror_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Err:1 http://x trixie\n  Temporary failure resolving 'x'\nE: Failed to fetch\n")
    told = host.network_hint(UserError("fetching failed: E: x"), log)
    assert "cannot be reached" in told.message and "UMMULAB_DEBIAN_MIRROR" in (told.hint or "")


def test_unreachable_mirror_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 9 of this very machine: refused at once.
    monkeypatch.setenv("UMMULAB_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    debian.mirror.cache_clear()
    try:
        with pytest.raises(UserError, match="mirror cannot be reached"):
            Fetcher(QUIET).get("busybox-static:arm64")
    finally:
        debian.mirror.cache_clear()
    assert not list((cache_dir() / "downloads").glob("*"))


def test_cache_in_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot create .*Not a directory"):
        writable(tmp_path / "file/cache")


def test_failing_tool_gives_the_line_that_tells_and_the_log(tmp_path: Path) -> None:
    script = "echo compiling; echo 'a.c:3: error: x undeclared'; echo 'make: *** [a.o] Error 1'; exit 2"
    with pytest.raises(UserError, match=r"^compiling failed: a\.c:3: error: x undeclared") as caught:
        process.run(["sh", "-c", script], tmp_path / "log", "compiling")
    assert str(tmp_path / "log") in (caught.value.hint or "")
    assert "make: ***" in (tmp_path / "log").read_text()


class Interrupting(process.Step):
    """Presses Ctrl-C as soon as the tool has said something."""

    def update(self, done: int, total: int) -> None:
        raise KeyboardInterrupt

    def tick(self) -> None:
        pass


def test_interrupt_ends_the_tool_and_its_children(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; echo '[1/2] x'; wait"
    with pytest.raises(KeyboardInterrupt):
        process.run(
            ["sh", "-c", script],
            tmp_path / "log",
            "compiling",
            step=Interrupting(),
            parse=process.ninja_progress,
        )
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while not ended(child):
        assert time.monotonic() < deadline, f"process {child} still runs after the interrupt"
        time.sleep(0.02)


def test_lock_says_that_it_waits_and_gives_up() -> None:
    notes: list[str] = []

    class Reporter(QuietReporter):
        def note(self, text: str) -> None:
            notes.append(text)

    release_it = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with locked("thing", QUIET):
            held.set()
            release_it.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(10)
        with (
            pytest.raises(UserError, match="another ummulab still holds"),
            locked("thing", Reporter(), limit=0.3),
        ):
            pass
    finally:
        release_it.set()
        thread.join()
    assert notes == ["waiting for another ummulab that is working on thing"]
    with locked("thing", QUIET, limit=0.3):
        pass


BUILDER = """
import sys
from pathlib import Path
from ummulab.build import process
from ummulab.build.locks import locked
from ummulab.build.progress import QuietReporter, Step
class Telling(Step):
    def update(self, done, total): print("running", flush=True)
    def tick(self): pass
with locked("thing", QuietReporter()):
    process.run(["sh", "-c", sys.argv[1]], Path(sys.argv[2]), "compiling", step=Telling(),
                parse=process.ninja_progress)
"""


def start_builder(script: str, log: Path) -> subprocess.Popen[bytes]:
    """A process that holds the lock "thing" and runs a tool, which has said something."""
    child = subprocess.Popen([sys.executable, "-c", BUILDER, script, str(log)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"running\n"
    return child


def ended(pid: int) -> bool:
    """Gone, or dead and waiting for whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_killed_builder_takes_its_tool_along(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/tool; echo '[1/2] x'; exec sleep 600"
    with start_builder(script, tmp_path / "log") as child:
        child.kill()
    tool = int((tmp_path / "tool").read_text())
    deadline = time.monotonic() + 30
    while not ended(tool):
        assert time.monotonic() < deadline, f"process {tool} goes on after its builder was killed"
        time.sleep(0.02)


def test_lock_stays_while_the_tool_of_a_killed_builder_still_writes(tmp_path: Path) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    script = f"trap '' TERM; echo '[1/2] x'; {wait}; echo done > {tmp_path}/out"
    with start_builder(script, tmp_path / "log") as child:
        child.kill()
    with pytest.raises(UserError, match="still holds"), locked("thing", QUIET, limit=0.5):
        pass
    assert not (tmp_path / "out").exists()
    (tmp_path / "go").touch()
    with locked("thing", QUIET, limit=30):
        assert (tmp_path / "out").exists()


def test_shared_lock_keeps_only_exclusive_ones_out() -> None:
    with (
        locked("thing", QUIET, shared=True),
        locked("thing", QUIET, 0.3, shared=True),
        pytest.raises(UserError, match="still holds"),
        locked("thing", QUIET, limit=0.3),
    ):
        pass


def write_sources(etc: Path, name: str, text: str) -> None:
    path = etc / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "sources.list.d/debian.sources",
            "Types: deb\n# a comment\nURIs: http://mirror.test/debian/\nSuites: trixie trixie-updates\n"
            "Components: main\n\nTypes: deb\nURIs: http://mirror.test/security\nSuites: trixie-security\n"
            "Components: main\n",
            "http://mirror.test/debian",
        ),
        (
            "sources.list",
            "# deb http://no/ x main\ndeb [arch=amd64] http://m.test/d bookworm main contrib\n",
            "http://m.test/d",
        ),
        ("sources.list", "deb http://vendor.test/apt stable nonfree\n", None),
        ("sources.list.d/x.list", "deb http://sec.test bookworm-security main\n", None),
    ],
)
def test_mirror_is_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, found: str | None
) -> None:
    monkeypatch.delenv("UMMULAB_DEBIAN_MIRROR", raising=False)
    write_sources(tmp_path, "sources.list", "")
    write_sources(tmp_path, name, text)
    if found:
        assert debian.mirror(tmp_path) == found
    else:
        with pytest.raises(UserError, match="no Debian mirror"):
            debian.mirror(tmp_path)


def fake_download(folder: Path) -> Path:
    (folder / "pkg.deb").parent.mkdir(parents=True)
    (folder / "pkg.deb").write_bytes(b"deb")
    Fetcher(QUIET)._record(folder, "1.0")
    return folder / "pkg.deb"


def test_download_is_used_without_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb = fake_download(cache / "downloads/deb-thing_arm64")

    def no_processes(*_: object, **__: object) -> None:
        raise AssertionError("a filled cache must not start anything")

    monkeypatch.setattr(subprocess, "Popen", no_processes)
    got = Fetcher(QUIET).get("thing:arm64")
    assert got.version == "1.0" and got.file(".deb") == deb
    os.utime(deb, ns=(1, 1))
    assert Fetcher(QUIET).get("thing:arm64").identity == got.identity


@pytest.mark.parametrize("damage", [b"DEB", b"longer", None])
def test_damaged_download_is_not_used(cache: Path, damage: bytes | None) -> None:
    deb = fake_download(cache / "downloads/deb-thing_arm64")
    if damage is None:
        deb.unlink()
    else:
        deb.write_bytes(damage)
    assert Fetcher(QUIET)._read("thing:arm64", deb.parent) is None
    (deb.parent / debian.RECORD).write_text("{}")
    assert Fetcher(QUIET)._read("thing:arm64", deb.parent) is None
