# SPDX-License-Identifier: GPL-2.0-or-later
"""Unpacked source trees in the cache's work folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ummulab.build import process
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter, Step

COMPLETE = ".ummulab-complete"


def work_dir() -> Path:
    """Where trees and build folders are kept between builds."""
    return cache_dir() / "work"


def unpack(
    script: str, arguments: list[Path], target: Path, what: str, seconds: float, reporter: Reporter
) -> Path:
    """Make ``target`` by a shell line that unpacks into ``$OUT``; an interrupted one is made again.

    The caller holds a lock for ``target``.
    """
    if (target / COMPLETE).exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    writable(target)
    log = process.log_path(f"unpack-{target.parent.name}")
    with reporter.step(f"unpacking {what}", seconds) as step:
        process.run(
            ["bash", "-euo", "pipefail", "-c", script, "unpack", *arguments],
            log,
            f"unpacking {what}",
            step=step,
            env={"OUT": str(target)},
            append=False,
        )
    (target / COMPLETE).touch()
    return target


def mirror_tree(source: Path, target: Path, step: Step) -> None:
    """Copy a user's tree, without its git data; files with the same size and time are left alone."""
    wanted = set()
    for folder, names, files in os.walk(source):
        names[:] = [name for name in names if name not in (".git", "build")]
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        step.tick()
        for name in files:
            old, new = Path(folder, name), here / name
            wanted.add(new)
            stat = old.lstat()
            if new.is_symlink() or not new.exists() or _stamp(new) != (stat.st_size, stat.st_mtime_ns):
                new.unlink(missing_ok=True)
                shutil.copy2(old, new, follow_symlinks=False)
    for folder, _, files in os.walk(target):
        for name in files:
            if Path(folder, name) not in wanted:
                Path(folder, name).unlink()


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def tree_identity(source: Path) -> list[str]:
    """A cheap fingerprint of a user's tree: names, sizes and times."""
    lines = []
    for folder, names, files in os.walk(source):
        names[:] = sorted(name for name in names if name not in (".git", "build"))
        for name in sorted(files):
            path = Path(folder, name)
            stat = path.lstat()
            lines.append(f"{path.relative_to(source)} {stat.st_size} {stat.st_mtime_ns}")
    return lines
