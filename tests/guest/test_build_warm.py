# SPDX-License-Identifier: GPL-2.0-or-later
"""With a filled cache nothing is built and nothing is fetched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ummulab import build
from ummulab.build import Images
from ummulab.build.paths import REPO
from ummulab.build.progress import QuietReporter, Step


class Watching(QuietReporter):
    """Notes every step; a filled cache has none."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def note(self, text: str) -> None:
        self.steps.append(text)

    @contextmanager
    def step(self, text: str, seconds: float) -> Iterator[Step]:
        self.steps.append(text)
        with super().step(text, seconds) as step:
            yield step


def test_nothing_is_built_again(images: Images) -> None:
    watching = Watching()
    again = build.ensure(images.arch, progress=watching)
    assert watching.steps == []
    assert again == images


def test_program_of_the_image_is_of_the_guests_architecture(images: Images) -> None:
    described = subprocess.run(
        [str(images.qemu), "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert images.arch in images.qemu.name
    assert images.versions["qemu"].split(":")[-1].split("+")[0] in described.stdout


@pytest.mark.needs("root", "unshare")
def test_offline_with_a_filled_cache(images: Images) -> None:
    assert images.initrd.exists()
    done = subprocess.run(
        ["unshare", "--net", REPO / "scripts/ummulab", "exec", "--", "uname", "-m"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "GUEST_ARCH": images.arch},
    )
    assert (done.returncode, done.stdout) == (0, f"{images.arch}\n"), done.stderr
