# SPDX-License-Identifier: GPL-2.0-or-later
"""Layouts of the public interface on both ABIs, as section 3 of the interface's description gives them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ummulab.build import host
from ummulab.build.arch import ARCHES
from ummulab.build.paths import REPO
from ummulab.build.progress import default_reporter

INCLUDES = [f"-I{REPO}/guest/libummu/include", f"-I{REPO}/guest/libummu/src", f"-I{REPO}/guest/kmod/include"]
#: (type, member or "" for the size) -> value on aarch64, on x86_64
LAYOUT = {
    ("struct ummu_token_info", ""): (64, 64),
    ("struct ummu_token_info", "input"): (0, 0),
    ("struct ummu_token_info", "tokenVal"): (4, 4),
    ("struct ummu_token_info", "kabi_reserve"): (8, 8),
    ("struct ummu_tid_attr", ""): (64, 60),
    ("struct ummu_tid_attr", "mode"): (0, 0),
    ("struct ummu_tid_attr", "kabi_reserve"): (8, 4),
    ("struct ummu_seg_attr", ""): (64, 64),
    ("struct ummu_seg_attr", "token"): (0, 0),
    ("struct ummu_seg_attr", "e_bit"): (8, 8),
    ("struct ummu_seg_attr", "kabi_reserve"): (16, 12),
    ("ummu_log_backend_t", ""): (48, 48),
    ("ummu_log_backend_t", "name"): (0, 0),
    ("ummu_log_backend_t", "emit"): (8, 8),
    ("ummu_log_backend_t", "reserved"): (16, 16),
    ("struct ummu_tid_info", ""): (128, 128),
}
ORDER = ("aarch64", "x86_64")


def compile_for(arch: str, source: Path) -> subprocess.CompletedProcess[str]:
    """Check a C file with the compiler of guest programs."""
    compiler = f"{ARCHES[arch].cross}gcc"
    if not shutil.which(compiler):
        host.require_packages(ARCHES[arch].compiler_packages(), default_reporter())
    return subprocess.run(
        [
            compiler,
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            *INCLUDES,
            source,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )


def program(arch: str, *, wrong: int = 0) -> str:
    """Assertions of all of ``LAYOUT``; with ``wrong`` each number is off by so much."""
    lines = ["#include <stddef.h>", "#include <ummu_api.h>"]
    for (kind, member), values in LAYOUT.items():
        value = values[ORDER.index(arch)] + wrong
        what = f"offsetof({kind}, {member})" if member else f"sizeof({kind})"
        lines.append(f'_Static_assert({what} == {value}, "{kind} {member}");')
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("arch", ORDER)
def test_public_layouts(arch: str, tmp_path: Path) -> None:
    (tmp_path / "layout.c").write_text(program(arch))
    done = compile_for(arch, tmp_path / "layout.c")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arch", ORDER)
def test_wrong_layouts_are_seen(arch: str, tmp_path: Path) -> None:
    (tmp_path / "layout.c").write_text(program(arch, wrong=1))
    done = compile_for(arch, tmp_path / "layout.c")
    assert done.stderr.count("static assertion failed") == len(LAYOUT)


@pytest.mark.parametrize("arch", ORDER)
def test_the_library_asserts_them_itself(arch: str) -> None:
    done = compile_for(arch, REPO / "guest/libummu/src/abi_check.c")
    assert done.returncode == 0, done.stderr
