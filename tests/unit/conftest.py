# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of several unit test files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from libummu_host.host import Host, build, loaded


@pytest.fixture(scope="session")
def libummu_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libummu for the host, with the stand-in for the device node."""
    return build(tmp_path_factory.mktemp("libummu"))


@pytest.fixture
def lib(libummu_file: Path) -> Iterator[Host]:
    """A freshly loaded libummu."""
    with loaded(libummu_file) as host:
        yield host
