# SPDX-License-Identifier: GPL-2.0-or-later
"""libummu as packages: ``libummu`` and ``libummu-devel``, for dpkg and for rpm, for each architecture.

Paths are those clients of openEuler's library expect (/usr/lib64).  The same sources give the same
bytes: times are SOURCE_DATE_EPOCH, or the newest commit's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ummulab.build import host, process
from ummulab.build.arch import build_arch
from ummulab.build.paths import REPO, writable
from ummulab.build.progress import Reporter, jobs
from ummulab.errors import UserError

SOURCE = REPO / "guest/libummu"
TOOLS = ("make", "gcc", "dpkg-dev", "rpm")
#: Architecture names of the two package systems.
NAMES = {"aarch64": ("arm64", "aarch64"), "x86_64": ("amd64", "x86_64")}
SUMMARY = "Share process memory with devices behind a UMMU"
MAINTAINER = "ummulab <ummulab@localhost>"
LICENCE = "MIT"
#: What belongs to the package that programs are built with; the rest is the library itself.
_DEVEL = re.compile(r"^(usr/include/|usr/share/man/|usr/lib64/pkgconfig/|usr/lib64/libummu\.so$)")


@dataclass(frozen=True)
class Package:
    """One package: its name, what it needs, and its files below the tree."""

    name: str
    requires: tuple[str, ...]
    files: tuple[str, ...]


def version() -> str:
    """The library's version, from its Makefile."""
    found = re.search(r"^VERSION := (\S+)$", (SOURCE / "Makefile").read_text(), re.MULTILINE)
    if not found:
        raise UserError(f"{SOURCE}/Makefile: no VERSION")
    return found[1]


def epoch() -> int:
    """Seconds since 1970 that stand in all time stamps."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    done = subprocess.run(["git", "-C", REPO, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 0


def build_tree(arch_name: str, target: Path, reporter: Reporter) -> None:
    """Compile the library for an architecture and install it below ``target``."""
    arch = build_arch(arch_name)
    host.require_packages([*TOOLS, *arch.compiler_packages()], reporter)
    log = process.log_path(f"packages-{arch_name}")
    log.unlink(missing_ok=True)
    with reporter.step(f"building libummu for {arch_name}", 5) as step:
        command: list[str | Path] = ["make", "-C", SOURCE, f"-j{jobs()}", "install", f"DESTDIR={target}"]
        # No path of this machine in the debug information: the same bytes everywhere.
        flags = f"-O2 -g -ffile-prefix-map={SOURCE}=."
        command += [f"BUILD={target.parent / 'build'}", f"CC={arch.cross}gcc", f"CFLAGS={flags}"]
        process.run(command, log, f"building libummu for {arch_name}", step=step)
    stamp = epoch()
    for path in sorted(target.rglob("*"), reverse=True):
        os.utime(path, (stamp, stamp), follow_symlinks=False)


def split(tree: Path) -> tuple[Package, Package]:
    """Divide an installed tree into the library and what programs are built with."""
    files = [
        str(path.relative_to(tree)) for path in sorted(tree.rglob("*")) if path.is_symlink() or path.is_file()
    ]
    devel = tuple(name for name in files if _DEVEL.match(name))
    return (
        Package("libummu", (), tuple(name for name in files if name not in devel)),
        Package("libummu-devel", (f"libummu = {version()}",), devel),
    )


def make(arch: str, output: Path, reporter: Reporter) -> list[Path]:
    """Build both packages in both formats; returns the four files."""
    from ummulab.packages import deb, rpm

    work = writable(output / f".work-{arch}")
    try:
        tree = work / "tree"
        build_tree(arch, tree, reporter)
        made = []
        for package in split(tree):
            made.append(deb.build(package, arch, tree, work, output))
            made.append(rpm.build(package, arch, tree, work, output))
        return made
    finally:
        shutil.rmtree(work, ignore_errors=True)


def copy_files(package: Package, tree: Path, target: Path) -> None:
    """Copy a package's files, links and times kept."""
    for name in package.files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, target / name, follow_symlinks=False)
