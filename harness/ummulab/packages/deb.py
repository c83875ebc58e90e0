# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian packages by dpkg-deb."""

from __future__ import annotations

import os
from pathlib import Path

from ummulab.build import process
from ummulab.packages import MAINTAINER, NAMES, SUMMARY, Package, copy_files, epoch, version


def control(package: Package, arch: str) -> str:
    """The control file."""
    lines = [
        f"Package: {package.name}",
        f"Version: {version()}",
        f"Architecture: {NAMES[arch][0]}",
        f"Maintainer: {MAINTAINER}",
        "Section: libs",
        "Priority: optional",
    ]
    depends = [f"{name} (= {number})" for name, _, number in (r.partition(" = ") for r in package.requires)]
    if package.name == "libummu":
        depends.append("libc6")
    lines.append(f"Depends: {', '.join(depends)}")
    lines += [f"Description: {SUMMARY}", " Part of ummulab; written from the published interface."]
    return "\n".join(lines) + "\n"


def build(package: Package, arch: str, tree: Path, work: Path, output: Path) -> Path:
    """Make one .deb."""
    root = work / f"deb-{package.name}"
    copy_files(package, tree, root)
    if package.name == "libummu":
        # Debian's loader does not look into /usr/lib64 by itself.
        conf = root / "etc/ld.so.conf.d/libummu.conf"
        conf.parent.mkdir(parents=True)
        conf.write_text("/usr/lib64\n")
        trigger = root / "DEBIAN/triggers"
        trigger.parent.mkdir()
        trigger.write_text("activate-noawait ldconfig\n")
    (root / "DEBIAN").mkdir(exist_ok=True)
    (root / "DEBIAN/control").write_text(control(package, arch))
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.name.startswith("libummu.so") else 0o644)
    target = output / f"{package.name}_{version()}_{NAMES[arch][0]}.deb"
    process.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, target],
        process.log_path(f"packages-deb-{arch}"),
        f"packing {target.name}",
        env={"SOURCE_DATE_EPOCH": str(epoch()), "PATH": os.environ.get("PATH", "")},
        append=False,
    )
    return target
