# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache of built artifacts: one folder per key, complete or absent, verified before use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ummulab.build.inputs import Inputs
from ummulab.build.locks import locked
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter

MANIFEST = "manifest.json"
#: Lock that every builder shares; who removes the work folders takes it alone.
BUILDERS = "builders"
FORMAT = 1

#: Fills an empty folder; returns the versions to record.
Builder = Callable[[Path], dict[str, str]]


@dataclass(frozen=True)
class Entry:
    """One artifact."""

    path: Path
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        """What it is filed under."""
        return str(self.manifest["key"])

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what is inside."""
        return dict(self.manifest["versions"])

    def size(self) -> int:
        """Bytes of its files."""
        return sum(int(facts.get("size", 0)) for facts in self.manifest["files"].values())


class Corrupt(Exception):
    """An entry does not hold what its manifest says."""


def hash_file(path: Path) -> str:
    """SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entries_dir() -> Path:
    """Where the entries are."""
    return cache_dir() / "entries"


def describe(folder: Path) -> dict[str, dict[str, Any]]:
    """Facts of every file below ``folder``, for a manifest."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            files[name] = {"link": os.readlink(path)}
        elif path.is_file() and name not in (MANIFEST, ".used"):
            stat = path.stat()
            files[name] = {
                "sha256": hash_file(path),
                "size": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
                "mode": stat.st_mode & 0o777,
            }
    return files


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest in one step: readers see the old one or the new one."""
    temporary = folder / f".{MANIFEST}.{os.getpid()}"
    temporary.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    temporary.replace(folder / MANIFEST)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest and check its shape."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise Corrupt(f"{folder.name}: unreadable manifest ({type(error).__name__})") from None
    expected = {"format": int, "kind": str, "arch": str, "key": str, "versions": dict, "files": dict}
    if not isinstance(manifest, dict):
        raise Corrupt(f"{folder.name}: the manifest is not an object")
    for name, kind in expected.items():
        if not isinstance(manifest.get(name), kind):
            raise Corrupt(f"{folder.name}: the manifest has no valid {name!r}")
    if manifest["format"] != FORMAT:
        raise Corrupt(f"{folder.name}: manifest format {manifest['format']}, this ummulab knows {FORMAT}")
    return manifest


def verify(folder: Path, *, thorough: bool = False) -> Entry:
    """Check an entry against its manifest.

    A file whose size and time stamp are the recorded ones counts as good; any other is hashed again, and a
    good one (a copied cache, for example) gets its new stamp recorded.  ``thorough`` hashes everything.
    """
    manifest = read_manifest(folder)
    restamped = False
    for name, facts in manifest["files"].items():
        path = folder / name
        if "link" in facts:
            if not path.is_symlink() or os.readlink(path) != facts["link"]:
                raise Corrupt(f"{folder.name}: {name} is not the link it was")
            continue
        try:
            stat = path.stat(follow_symlinks=False)
        except OSError:
            raise Corrupt(f"{folder.name}: {name} is missing") from None
        if stat.st_size != facts["size"]:
            raise Corrupt(f"{folder.name}: {name} has {stat.st_size} bytes instead of {facts['size']}")
        if thorough or stat.st_mtime_ns != facts["mtime_ns"]:
            if hash_file(path) != facts["sha256"]:
                raise Corrupt(f"{folder.name}: {name} has changed since it was built")
            restamped |= stat.st_mtime_ns != facts["mtime_ns"]
            facts["mtime_ns"] = stat.st_mtime_ns
    if restamped:
        write_manifest(folder, manifest)
    return Entry(folder, manifest)


def find(inputs: Inputs, reporter: Reporter) -> Entry | None:
    """The verified entry for these inputs; a corrupt one is reported, removed and counts as absent."""
    folder = entries_dir() / inputs.entry
    if not folder.exists():
        return None
    try:
        entry = verify(folder)
    except Corrupt as error:
        reporter.note(f"cache: {error}; making it again")
        discard(folder)
        return None
    _mark_used(folder)
    return entry


def discard(folder: Path) -> None:
    """Remove a folder so that nobody sees half of it."""
    grave = folder.with_name(f".gone-{folder.name}-{os.getpid()}")
    try:
        folder.rename(grave)
    except FileNotFoundError:
        return
    shutil.rmtree(grave, ignore_errors=True)


def get(inputs: Inputs, build: Builder, reporter: Reporter) -> Entry:
    """The entry for these inputs, built now if it is not there.

    The builder fills a temporary folder, which is renamed when complete: an interrupted build leaves
    no entry.
    """
    found = find(inputs, reporter)
    if found:
        return found
    with locked(BUILDERS, reporter, shared=True), locked(inputs.entry, reporter):
        found = find(inputs, reporter)
        if found:
            return found
        for leftover in entries_dir().glob(f".new-{inputs.entry}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        folder = entries_dir() / inputs.entry
        temporary = writable(entries_dir() / f".new-{inputs.entry}-{os.getpid()}")
        try:
            versions = build(temporary)
            manifest = {
                "format": FORMAT,
                "kind": inputs.kind,
                "arch": inputs.arch,
                "key": inputs.key,
                "inputs": inputs.values,
                "versions": versions,
                "files": describe(temporary),
            }
            write_manifest(temporary, manifest)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return Entry(folder, manifest)


def _mark_used(folder: Path) -> None:
    # A coarse stamp is enough for garbage collection, and keeps the fast path free of writes.
    used = folder / ".used"
    try:
        if not used.exists() or time.time() - used.stat().st_mtime > 3600:
            used.touch()
    except OSError:
        return  # a read-only cache works as well


def all_entries() -> Iterator[Path]:
    """Folders of all complete entries, by name."""
    if entries_dir().is_dir():
        yield from sorted(path for path in entries_dir().iterdir() if not path.name.startswith("."))
