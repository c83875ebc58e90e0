# SPDX-License-Identifier: GPL-2.0-or-later
"""Templates: a guest booted once and saved, from which every test gets a fresh copy.

Keyed by everything in it (QEMU, kernel, image, machine, devices, command line), made once
under a lock, checked before use, made again when damaged.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ummulab.vm.config import VmConfig
from ummulab.vm.errors import StateError, VmTimeout
from ummulab.vm.state import FORMAT, SavedState, config_key, images_key, load_state, remove_state
from ummulab.vm.vm import BOOT_BUDGET, Vm

if TYPE_CHECKING:
    from ummulab.build import Images

LOCK_BUDGET = 2 * BOOT_BUDGET


class Templates:
    """The templates of one set of images, kept in a folder of the cache."""

    def __init__(self, images: Images, folder: Path) -> None:
        self._images = images
        self._folder = folder
        self._checked: dict[str, SavedState] = {}

    def key(self, config: VmConfig) -> str:
        """Hash of everything a template depends on."""
        facts = {"format": FORMAT, "config": config_key(config), "images": images_key(self._images.hashes)}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def get(self, config: VmConfig) -> SavedState:
        """Return the template for a config; boots and saves a VM if there is none yet."""
        key = self.key(config)
        if key in self._checked:
            return self._checked[key]
        path = self._folder / key
        try:
            state = load_state(path, self._images.hashes)
        except StateError:
            with _locked(self._folder / f"{key}.lock"):
                state = self._make(path, config)
        with contextlib.suppress(OSError):
            (path / ".used").touch()  # for `ummulab images gc`
        self._checked[key] = state
        return state

    def _make(self, path: Path, config: VmConfig) -> SavedState:
        try:
            return load_state(path, self._images.hashes)  # another process made it meanwhile
        except StateError:
            remove_state(path)
        for leftover in self._folder.glob(
            f".{path.name}.*"
        ):  # of a process that was killed: we hold the lock
            remove_state(leftover)
        with Vm(self._images, config) as vm:
            vm.run("true")  # the programs every command needs are then in the guest's page cache
            vm.save(path, extra={"made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        return load_state(path, self._images.hashes)

    def clone(self, config: VmConfig, *, log_dir: Path | None = None) -> Vm:
        """Return a not yet started copy-on-write clone of the template."""
        return Vm(self._images, state=self.get(config), log_dir=log_dir)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file; the kernel frees it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + LOCK_BUDGET
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise VmTimeout(f"another process to finish the template ({path})", LOCK_BUDGET) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)
