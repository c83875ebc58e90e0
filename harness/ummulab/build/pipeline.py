# SPDX-License-Identifier: GPL-2.0-or-later
"""The steps of a build in their order."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ummulab.build import Images, guest, host, image, qemu, store
from ummulab.build.arch import build_arch
from ummulab.build.debian import Fetcher
from ummulab.build.kernel import Kernel
from ummulab.build.progress import Reporter

#: What is in the cache after a first build of one architecture, packages and Python environment included.
EVERYTHING_GIB = 3.5


class Pipeline:
    """Everything for one guest architecture; each part is made when it is asked for."""

    def __init__(self, arch: str, reporter: Reporter, *, debug: bool = False) -> None:
        self.arch = build_arch(arch)
        self._reporter = reporter
        self._debug = debug
        self._fetcher = Fetcher(reporter)

    @cached_property
    def _kernel(self) -> Kernel:
        return Kernel(self.arch.name, self._fetcher, self._reporter, debug=self._debug)

    def qemu_entry(self, *, variant: str = "") -> store.Entry:
        """QEMU as a cache entry."""
        return qemu.ensure(self.arch.name, self._fetcher, self._reporter, variant=variant)

    def qemu(self, *, variant: str = "") -> Path:
        """QEMU's program."""
        return self.qemu_entry(variant=variant).path / qemu.program_name(self.arch, variant)

    def kernel_entry(self) -> store.Entry:
        """The kernel as a cache entry."""
        return self._kernel.ensure()

    def image_entry(self) -> store.Entry:
        """The initramfs as a cache entry, with everything it is made of."""
        kind = "image-debug" if self._debug else "image"
        parts = guest.ensure(self._kernel, self._reporter)
        return image.ensure(self.arch, parts, self._fetcher, self._reporter, kind)

    def entries(self) -> dict[str, store.Entry]:
        """All that a VM needs."""
        if not store.entries_dir().exists():
            host.require_disk(EVERYTHING_GIB, "building everything")  # not only after ten minutes of work
        return {"qemu": self.qemu_entry(), "kernel": self.kernel_entry(), "image": self.image_entry()}

    def images(self) -> Images:
        """The paths a VM is started with."""
        entries = self.entries()
        return images_of(self.arch.name, {name: entry.path for name, entry in entries.items()}, entries)


def images_of(arch: str, folders: dict[str, Path], entries: dict[str, store.Entry]) -> Images:
    """Put the paths together."""
    program = build_arch(arch).qemu
    versions: dict[str, str] = {}
    for entry in entries.values():
        versions |= entry.versions
    return Images(
        arch=arch,
        qemu=folders["qemu"] / program,
        qemu_datadir=folders["qemu"] / "share",
        kernel=folders["kernel"] / "kernel",
        initrd=folders["image"] / "initrd",
        hashes={
            "qemu": entries["qemu"].manifest["files"][program]["sha256"],
            "kernel": entries["kernel"].manifest["files"]["kernel"]["sha256"],
            "initrd": entries["image"].manifest["files"]["initrd"]["sha256"],
        },
        versions=versions,
    )
