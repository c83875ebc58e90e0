# SPDX-License-Identifier: GPL-2.0-or-later
"""What a test can need beyond a VM, and whether this guest and host have it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence

import pytest

#: name -> (does it exist for this guest architecture?, the reason when it does not)
FEATURES: dict[str, tuple[Callable[[str], bool], str]] = {
    "shared_translation": (
        lambda arch: arch == "aarch64",
        "the UMMU can walk a process's own page table only if it has Arm's format",
    ),
    "root": (lambda _: os.geteuid() == 0, "only root may do this on the host"),
    "unshare": (lambda _: shutil.which("unshare") is not None, "the host has no unshare(1)"),
}


def missing(wanted: Sequence[str], arch: str) -> str:
    """The reason why a test cannot run here, or "".  An unknown name is an error of the test."""
    for name in wanted:
        if name not in FEATURES:
            raise pytest.UsageError(f"needs({name!r}): unknown, known are {', '.join(sorted(FEATURES))}")
        have, reason = FEATURES[name]
        if not have(arch):
            return f"needs {name}: {reason} (guest {arch})"
    return ""
