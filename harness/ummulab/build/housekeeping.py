# SPDX-License-Identifier: GPL-2.0-or-later
"""Cleaning the cache and checking archives."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from ummulab.build import prebuilt, sources, store
from ummulab.build.locks import locked
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter

#: Where saved VMs are kept, below the cache folder.
TEMPLATES = "templates"
#: How long to wait for a running build before its folders are removed.
BUILD_SECONDS = 60.0


def tree_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def last_use(folder: Path) -> float:
    """When an entry was made or used last."""
    used = folder / ".used"
    return max(folder.stat().st_mtime, used.stat().st_mtime if used.exists() else 0.0)


def collect(hours: float, reporter: Reporter) -> int:
    """Remove entries and saved templates that were not used for ``hours``; returns the bytes freed."""
    freed = 0
    for folder in store.all_entries():
        if hours and time.time() - last_use(folder) < hours * 3600:
            continue
        # The builder's lock: an entry that is being made or looked for now is not pulled away.
        with locked(folder.name, reporter, limit=BUILD_SECONDS):
            freed += tree_size(folder)
            store.discard(folder)
    # A clone keeps its template's files open: removing one under it does no harm.
    for folder in sorted((cache_dir() / TEMPLATES).glob("*")):
        if not hours or time.time() - last_use(folder) >= hours * 3600:
            freed += tree_size(folder) if folder.is_dir() else folder.lstat().st_size
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    return freed


def remove_work(reporter: Reporter) -> int:
    """Remove unpacked sources and build folders; returns the bytes freed."""
    freed = 0
    with locked(store.BUILDERS, reporter, limit=BUILD_SECONDS):
        for folder in sorted(sources.work_dir().glob("*")):
            freed += tree_size(folder)
            shutil.rmtree(folder, ignore_errors=True)
    return freed


def verify_archive(archive: Path, arch: str) -> None:
    """Unpack an archive into a temporary folder and check every hash."""
    with tempfile.TemporaryDirectory(dir=writable(cache_dir())) as folder:
        prebuilt.unpack_archive(archive, arch, Path(folder))
