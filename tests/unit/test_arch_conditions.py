# SPDX-License-Identifier: GPL-2.0-or-later
"""What depends on the guest's architecture stands in one file per component, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

#: Component -> its one file that may ask for an architecture ("" = none may).
C_COMPONENTS = {
    "qemu-device/hw/ummu": "",
    "guest/kmod/ummu": "ummu_arch.h",
    "guest/kmod/accel": "accel_arch.h",
    "guest/kmod/compat": "",
    "guest/kmod/include": "",
    "guest/libummu": "src/arch.h",
    "guest/accel": "",
    "guest/tools": "",
}
PYTHON_COMPONENTS = {
    "harness/ummulab/build": "arch.py",
    "harness/ummulab/vm": "accel.py",
    "harness/ummulab/qtest": "arch.py",
    "harness/ummulab/pytest_plugin": "features.py",
    "harness/ummulab/decode": "",
    "harness/ummulab/model": "",
    "harness/ummulab/fuzz": "",
    "tests/device": "",
    "tests/guest": "",
}
_C_CONDITION = re.compile(
    r"^\s*#\s*(?:el)?if.*\b(?:__aarch64__|__arm__|__x86_64__|__amd64__|__i386__|CONFIG_ARM64\w*|CONFIG_X86\w*"
    r"|TARGET_(?:AARCH64|ARM|X86_64|I386)|HOST_(?:AARCH64|X86_64)|__BYTE_ORDER__)\b",
    re.MULTILINE,
)
_PYTHON_CONDITION = re.compile(r"(?:==|!=|\bin\b|\bcase\b)\s*\(?[\"'](?:aarch64|arm64|x86_64|amd64)[\"']")


def conditions(folder: str, patterns: tuple[str, ...], regex: re.Pattern[str]) -> set[str]:
    """Files below a folder, relative to it, that ask for an architecture."""
    top = REPO / folder
    assert top.is_dir(), f"{folder}: the component is gone, so is what this test checks"
    return {
        str(path.relative_to(top))
        for pattern in patterns
        for path in top.rglob(pattern)
        if regex.search(path.read_text(errors="replace"))
    }


@pytest.mark.parametrize("folder", C_COMPONENTS)
def test_c_asks_for_the_architecture_in_one_header(folder: str) -> None:
    assert conditions(folder, ("*.c", "*.h", "*.S"), _C_CONDITION) <= {C_COMPONENTS[folder]}


@pytest.mark.parametrize("folder", PYTHON_COMPONENTS)
def test_python_asks_for_the_architecture_in_one_module(folder: str) -> None:
    assert conditions(folder, ("*.py",), _PYTHON_CONDITION) <= {PYTHON_COMPONENTS[folder]}


def test_every_c_file_belongs_to_a_component() -> None:
    known = tuple(f"{folder}/" for folder in C_COMPONENTS)
    names = [
        str(path.relative_to(REPO))
        for top in ("guest", "qemu-device")
        for pattern in ("*.c", "*.h")
        for path in (REPO / top).rglob(pattern)
    ]
    assert [name for name in names if not name.startswith(known)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#ifdef __aarch64__\n", True),
        ("  #  if defined(CONFIG_X86_64)\n", True),
        ("#elif defined(A) && defined(TARGET_X86_64)\n", True),
        ("#ifndef CONFIG_ARM64\n", True),
        ("/* as on __aarch64__ */\n", False),
        ("#ifdef CONFIG_PCI\n", False),
    ],
)
def test_c_conditions_are_seen(text: str, found: bool) -> None:
    assert bool(_C_CONDITION.search(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('if arch == "x86_64":', True),
        ("x = arch != 'aarch64'", True),
        ('case "aarch64":', True),
        ('arch: str = "aarch64"', False),
        ('"x86_64": Arch(', False),
    ],
)
def test_python_conditions_are_seen(text: str, found: bool) -> None:
    assert bool(_PYTHON_CONDITION.search(text)) == found
