# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things are: the checkout and the cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from ummulab.errors import UserError

#: The checkout this package runs from.
REPO = Path(__file__).resolve().parents[3]


def cache_dir() -> Path:
    """The cache folder; scripts/bootstrap.py has the same rule."""
    explicit = os.environ.get("UMMULAB_CACHE")
    if explicit:
        return Path(explicit).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ummulab"


def writable(path: Path) -> Path:
    """Make a folder below the cache, or say in one line why that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create {path}: {error.strerror}",
            hint="set UMMULAB_CACHE to a folder you may write to",
        ) from None
    return path
