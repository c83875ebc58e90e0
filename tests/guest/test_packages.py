# SPDX-License-Identifier: GPL-2.0-or-later
"""libummu as packages: their content, the same bytes twice, and a client built against the unpacked one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from ummulab import packages
from ummulab.build import host
from ummulab.build.arch import build_arch
from ummulab.build.paths import REPO
from ummulab.build.progress import default_reporter
from ummulab.vm import Vm

LIBRARY = {"usr/lib64/libummu.so.1", f"usr/lib64/libummu.so.{packages.version()}"}
DEVEL = {
    *("usr/include/ummu_api.h", "usr/include/ummu_core.h", "usr/include/ummu_ext.h"),
    *("usr/lib64/libummu.so", "usr/lib64/pkgconfig/libummu.pc", "usr/share/man/man3/libummu.3"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The four files of the guest's architecture, by name without version."""
    output = tmp_path_factory.mktemp("packages")
    files = packages.make(os.environ.get("GUEST_ARCH", "aarch64"), output, default_reporter())
    assert sorted(output.iterdir()) == sorted(files), "a work folder was left"
    return {re.split(r"[-_]1\.", path.name)[0] + path.suffix: path for path in files}


def text_of(*argv: str | Path) -> str:
    return subprocess.run(list(argv), capture_output=True, text=True, check=True, timeout=60).stdout


def test_debian_content(made: dict[str, Path]) -> None:
    for name, wanted in (("libummu", LIBRARY | {"etc/ld.so.conf.d/libummu.conf"}), ("libummu-devel", DEVEL)):
        lines = text_of("dpkg-deb", "-c", made[f"{name}.deb"]).splitlines()
        assert {line.split()[5].removeprefix("./") for line in lines if line[0] in "-l"} == wanted
        assert all("root/root" in line for line in lines)
    assert "libummu (= " in text_of("dpkg-deb", "-f", made["libummu-devel.deb"], "Depends")


def test_rpm_content(made: dict[str, Path]) -> None:
    for name, wanted in (("libummu", LIBRARY), ("libummu-devel", DEVEL)):
        listed = text_of("rpm", "-qlp", made[f"{name}.rpm"]).split()
        assert {path.removeprefix("/") for path in listed} == wanted
    assert "libummu.so.1()(64bit)" in text_of("rpm", "-qp", "--provides", made["libummu.rpm"])
    assert f"libummu = {packages.version()}" in text_of("rpm", "-qp", "--requires", made["libummu-devel.rpm"])
    arch = text_of("rpm", "-qp", "--qf", "%{ARCH}", made["libummu.rpm"])
    assert arch == os.environ.get("GUEST_ARCH", "aarch64")


def test_the_same_sources_give_the_same_bytes(made: dict[str, Path], tmp_path: Path) -> None:
    again = packages.make(os.environ.get("GUEST_ARCH", "aarch64"), tmp_path, default_reporter())
    assert {p.name: p.read_bytes() for p in again} == {p.name: p.read_bytes() for p in made.values()}


def test_a_client_built_against_the_package_runs(made: dict[str, Path], vm: Vm, tmp_path: Path) -> None:
    arch = build_arch(os.environ.get("GUEST_ARCH", "aarch64"))
    host.require_packages(["gcc", *arch.compiler_packages()], default_reporter())
    for name in ("libummu.deb", "libummu-devel.deb"):
        subprocess.run(["dpkg-deb", "-x", made[name], tmp_path / "root"], check=True)
    root = tmp_path / "root"
    match = re.search(
        r"^```c\n(.*?)^```$", (REPO / "docs/libummu/README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert match
    (tmp_path / "client.c").write_text(match[1])
    flags = (root / "usr/lib64/pkgconfig/libummu.pc").read_text()
    assert "Libs: -L${libdir} -lummu" in flags
    argv = [f"{arch.cross}gcc", "-Wall", "-Werror", "-o", tmp_path / "client", tmp_path / "client.c"]
    argv += [f"-I{root}/usr/include", f"-L{root}/usr/lib64", "-lummu"]
    subprocess.run(argv, check=True, timeout=120)
    # The package's library, not the image's.
    vm.run("rm -f /usr/lib64/libummu.so*; mkdir -p /tmp/lib", check=True)
    vm.put("/tmp/lib/libummu.so.1", (root / "usr/lib64/libummu.so.1").read_bytes(), mode=0o755)
    vm.put("/tmp/client", (tmp_path / "client").read_bytes(), mode=0o755)
    result = vm.run("LD_LIBRARY_PATH=/tmp/lib /tmp/client", check=True)
    assert "a device with TID" in result.text
