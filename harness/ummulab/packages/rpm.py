# SPDX-License-Identifier: GPL-2.0-or-later
"""RPM packages by rpmbuild, from an installed tree."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ummulab.build import process
from ummulab.packages import LICENCE, NAMES, SUMMARY, Package, copy_files, epoch, version

RELEASE = "1"
_HEAD = """\
%global debug_package %{{nil}}
%global __os_install_post %{{nil}}
%global _build_id_links none
Name: {name}
Version: {version}
Release: {release}
Summary: {summary}
License: {licence}
AutoReqProv: no
{more}
%description
{summary}.
Part of ummulab; written from the published interface.

%install
cp -a {root}/. %{{buildroot}}/

%files
{files}
"""


def spec(package: Package, root: Path) -> str:
    """The spec file."""
    more = [f"Requires: {need}" for need in package.requires]
    if package.name == "libummu":
        more.append("Provides: libummu.so.1()(64bit)")
    text = _HEAD.format(
        name=package.name,
        version=version(),
        release=RELEASE,
        summary=SUMMARY,
        licence=LICENCE,
        root=root,
        more="".join(f"{line}\n" for line in more),
        files="\n".join(f"%attr(-,root,root) /{name}" for name in package.files),
    )
    scripts = "\n%post -p /sbin/ldconfig\n\n%postun -p /sbin/ldconfig\n" if package.name == "libummu" else ""
    return text + scripts


def build(package: Package, arch: str, tree: Path, work: Path, output: Path) -> Path:
    """Make one .rpm."""
    root, top = work / f"rpm-{package.name}", work / f"rpmbuild-{package.name}"
    copy_files(package, tree, root)
    name = f"{package.name}-{version()}-{RELEASE}.{NAMES[arch][1]}.rpm"
    (work / f"{package.name}.spec").write_text(spec(package, root))
    command: list[str | Path] = ["rpmbuild", "-bb", "--nodeps", f"--target={NAMES[arch][1]}-linux"]
    for macro in (
        f"_topdir {top}",
        "_buildhost ummulab",
        "use_source_date_epoch_as_buildtime 1",
        "clamp_mtime_to_source_date_epoch 1",
        "_binary_payload w6.xzdio",
    ):
        command += ["--define", macro]
    process.run(
        [*command, work / f"{package.name}.spec"],
        process.log_path(f"packages-rpm-{arch}"),
        f"packing {name}",
        env={
            "SOURCE_DATE_EPOCH": str(epoch()),
            "HOME": str(work),
            "PATH": os.environ.get("PATH", ""),
        },
        append=False,
    )
    target = output / name
    shutil.move(next((top / "RPMS").rglob(name)), target)
    return target
