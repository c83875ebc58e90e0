# SPDX-License-Identifier: GPL-2.0-or-later
"""The style checkers of the trees our C code belongs to: QEMU's and Linux's checkpatch.pl."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from ummulab.build import host, qemu, sources
from ummulab.build.arch import DEFAULT_ARCH
from ummulab.build.debian import Fetcher
from ummulab.build.kernel import Kernel
from ummulab.build.locks import locked
from ummulab.build.progress import Reporter
from ummulab.build.store import BUILDERS
from ummulab.errors import UserError

CHECKPATCH = "scripts/checkpatch.pl"
LIMIT_SECONDS = 300
_COMMON = ("--no-tree", "--terse", "--no-summary", "--color=never", "--file")


def qemu_checkpatch(reporter: Reporter) -> list[str]:
    """Command that checks files in QEMU's style, its source fetched and unpacked when missing."""
    host.require_packages(["perl", "xz-utils"], reporter)
    source = qemu.find_source(Fetcher(reporter))
    folder = source.folder()
    tree = folder / "src"
    # A long build holds the tree's lock; who only reads what is there already need not wait for it.
    if not (tree / sources.COMPLETE).exists():
        with locked(BUILDERS, reporter, shared=True), locked(folder.name, reporter):
            qemu.unpack_source(source, folder, reporter)
    return ["perl", str(tree / CHECKPATCH), *_COMMON]


def kernel_checkpatch(reporter: Reporter) -> list[str]:
    """Command that checks files in the kernel's style, strictly; the source as above."""
    host.require_packages(["perl", "xz-utils"], reporter)
    kernel = Kernel(DEFAULT_ARCH, Fetcher(reporter), reporter)
    with locked(BUILDERS, reporter, shared=True):
        tree = kernel.unpack_source()
    return ["perl", str(tree / CHECKPATCH), "--strict", *_COMMON]


def findings(command: Sequence[str], files: Sequence[Path]) -> list[str]:
    """Run a checker over files; one line per finding."""
    try:
        done = subprocess.run(
            [*command, *map(str, files)], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[1]}: not done after {LIMIT_SECONDS} s") from None
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode and not lines:
        raise UserError(f"{command[1]} failed: {done.stderr.strip() or 'no message'}")
    return lines
