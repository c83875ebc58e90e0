# SPDX-License-Identifier: GPL-2.0-or-later
"""From an empty machine to everything a VM needs.

The rest of the package calls :func:`ensure`; what it returns is complete and verified.
The work is done in modules that are imported only then.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ummulab.build.progress import Reporter

DEFAULT_ARCH = "aarch64"


@dataclass(frozen=True)
class Images:
    """The files of one guest architecture."""

    arch: str
    qemu: Path
    qemu_datadir: Path
    kernel: Path
    initrd: Path
    hashes: dict[str, str] = field(default_factory=dict)  #: SHA-256 of qemu, kernel and initrd
    versions: dict[str, str] = field(default_factory=dict)


def ensure(arch: str = DEFAULT_ARCH, *, debug: bool = False, progress: Reporter | None = None) -> Images:
    """Everything for a VM of this architecture: prebuilt (UMMULAB_IMAGES), from the cache, or built now.

    ``debug`` selects the kernel with sanitizers and lock checking.
    """
    from ummulab.build import pipeline, prebuilt
    from ummulab.build.progress import default_reporter

    reporter = progress or default_reporter()
    given = os.environ.get("UMMULAB_IMAGES")
    if given and not debug:
        return prebuilt.use(Path(given), arch, reporter)
    return pipeline.Pipeline(arch, reporter, debug=debug).images()


def ensure_qemu(arch: str = DEFAULT_ARCH, *, variant: str = "", progress: Reporter | None = None) -> Path:
    """Only QEMU, for tests without a guest; ``variant`` "asan" has sanitizers, "fuzz" is QEMU's fuzzer."""
    from ummulab.build import pipeline, prebuilt
    from ummulab.build.progress import default_reporter

    reporter = progress or default_reporter()
    given = os.environ.get("UMMULAB_IMAGES")
    if given and not variant:
        return prebuilt.use(Path(given), arch, reporter).qemu
    return pipeline.Pipeline(arch, reporter).qemu(variant=variant)
