# SPDX-License-Identifier: GPL-2.0-or-later
"""What each guest architecture is called by Debian, Linux and QEMU."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from ummulab.errors import UsageError


@dataclass(frozen=True)
class BuildArch:
    """Names and files of one guest architecture."""

    name: str
    debian: str
    kernel: str  #: Linux's ARCH=
    triplet: str
    image: str  #: kernel file to boot, relative to the kernel's output folder
    cross_packages: tuple[str, ...]
    firmware: tuple[tuple[str, str], ...] = ()  #: (Debian package, file in it) that QEMU loads at start

    @property
    def cross(self) -> str:
        """Prefix of the compiler; Debian has the prefixed names for the native one too."""
        return f"{self.triplet}-"

    @property
    def target(self) -> str:
        """QEMU's name of the target."""
        return f"{self.name}-softmmu"

    @property
    def qemu(self) -> str:
        """Name of QEMU's program."""
        return f"qemu-system-{self.name}"

    def compiler_packages(self) -> tuple[str, ...]:
        """Debian packages for a compiler that makes guest programs on this host."""
        return ("gcc", "libc6-dev") if host_arch() == self.name else self.cross_packages


ARCHES = {
    "aarch64": BuildArch(
        name="aarch64",
        debian="arm64",
        kernel="arm64",
        triplet="aarch64-linux-gnu",
        image="arch/arm64/boot/Image",
        cross_packages=("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"),
    ),
    "x86_64": BuildArch(
        name="x86_64",
        debian="amd64",
        kernel="x86",
        triplet="x86_64-linux-gnu",
        # The ELF file: QEMU enters it by its PVH note, without set-up code and decompression.
        image="vmlinux",
        cross_packages=("gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"),
        firmware=(
            ("seabios", "usr/share/seabios/bios-256k.bin"),
            ("qemu-system-data", "usr/share/qemu/pvh.bin"),
            ("qemu-system-data", "usr/share/qemu/linuxboot_dma.bin"),
            ("qemu-system-data", "usr/share/qemu/kvmvapic.bin"),
        ),
    ),
}
DEFAULT_ARCH = "aarch64"


def build_arch(name: str) -> BuildArch:
    """Look an architecture up, or say which ones there are."""
    try:
        return ARCHES[name]
    except KeyError:
        known = ", ".join(ARCHES)
        raise UsageError(f"unknown guest architecture {name!r}: GUEST_ARCH is one of {known}") from None


def guest_arch() -> str:
    """The architecture asked for by the environment."""
    return build_arch(os.environ.get("GUEST_ARCH") or DEFAULT_ARCH).name


def host_arch() -> str:
    """This machine, in our names."""
    machine = platform.machine()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine.lower(), machine)
