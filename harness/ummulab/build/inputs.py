# SPDX-License-Identifier: GPL-2.0-or-later
"""What an artifact is made from, and the key that follows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ummulab.build.paths import REPO

KEY_LENGTH = 20
#: Left behind by editors and interpreters; never part of a build.
IGNORED_SUFFIXES = (".pyc", ".swp", ".orig", ".rej", "~")


def sha256(data: bytes) -> str:
    """The hash used everywhere here."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class SourceFile:
    """One file of the checkout as it was read for the key: what is built is exactly what was hashed."""

    data: bytes
    executable: bool


@dataclass
class Inputs:
    """Named inputs of one artifact."""

    kind: str
    arch: str
    values: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: object) -> None:
        """Add a plain value."""
        self.values[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    def add_files(self, files: dict[str, SourceFile]) -> None:
        """Add files of the checkout by content and mode."""
        for name, file in files.items():
            self.values[f"file:{name}"] = sha256(file.data) + ("+x" if file.executable else "")

    @property
    def key(self) -> str:
        """The hash over everything, short enough for a folder name."""
        text = json.dumps([self.kind, self.arch, self.values], sort_keys=True)
        return sha256(text.encode())[:KEY_LENGTH]

    @property
    def entry(self) -> str:
        """Name of the artifact's folder in the cache."""
        return f"{self.kind}-{self.arch}-{self.key}"


def _walk(top: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(top):
        names[:] = sorted(name for name in names if not name.startswith(".") and name != "__pycache__")
        for name in sorted(files):
            if not name.startswith(".") and not name.endswith(IGNORED_SUFFIXES):
                yield Path(folder, name)


def read_sources(places: Iterable[str], root: Path = REPO) -> dict[str, SourceFile]:
    """Read files and whole folders of the checkout; names are relative to it, sorted."""
    found: dict[str, SourceFile] = {}
    for place in places:
        top = root / place
        for path in [top] if top.is_file() else _walk(top):
            executable = os.access(path, os.X_OK)
            found[str(path.relative_to(root))] = SourceFile(path.read_bytes(), executable)
    return dict(sorted(found.items()))


def lay_out(files: dict[str, SourceFile], target: Path, prefix: str = "", *, prune: bool = True) -> bool:
    """Make ``target`` hold exactly these files (below ``prefix`` of their names); True if anything changed.

    A file with the right content is not touched, so make and ninja rebuild only what really changed.
    With ``prune`` files that are in the way are removed, except those that a build made
    (they are not known to have come from us): the list of laid-out files is kept beside them.
    """
    changed = False
    wanted = {name.removeprefix(prefix): file for name, file in files.items() if name.startswith(prefix)}
    record = target / ".ummulab-files"
    before = record.read_text().splitlines() if record.exists() else []
    for name, file in wanted.items():
        path = target / name
        mode = 0o755 if file.executable else 0o644
        if not path.is_file() or path.read_bytes() != file.data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            changed = True
        if path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)
    if prune:
        for name in before:
            if name not in wanted:
                (target / name).unlink(missing_ok=True)
                changed = True
    target.mkdir(parents=True, exist_ok=True)
    record.write_text("".join(f"{name}\n" for name in wanted))
    return changed
