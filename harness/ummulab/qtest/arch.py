# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things are on the machine of each guest architecture."""

from __future__ import annotations

from dataclasses import dataclass

from ummulab.qtest.errors import QtestError
from ummulab.qtest.protocol import QtestClient

_Q35_CONFIG_ADDRESS = 0xCF8
_Q35_CONFIG_DATA = 0xCFC
_Q35_PCIEXBAR = 0x60  # of function 00:00.0


@dataclass(frozen=True)
class Arch:
    """Addresses and options of one machine type (QEMU: hw/arm/virt.c, hw/pci-host/q35.c)."""

    name: str
    machine: tuple[str, ...]
    ram_base: int
    #: first RAM offset that no firmware area overlays
    ram_usable: int
    ecam: int
    mmio32: int
    mmio64: int
    #: an address where the machine has nothing at all
    hole: int
    #: bytes from address 0 on that read as zeros and are not RAM (virt's empty flash); a damaged address may
    #: well point there
    zeros: int = 0

    def prepare(self, qtest: QtestClient) -> None:
        """What firmware does before configuration space is reachable."""
        if self.name == "x86_64":
            qtest.port_write(_Q35_CONFIG_ADDRESS, 0x80000000 | (_Q35_PCIEXBAR + 4))
            qtest.port_write(_Q35_CONFIG_DATA, self.ecam >> 32)
            qtest.port_write(_Q35_CONFIG_ADDRESS, 0x80000000 | _Q35_PCIEXBAR)
            qtest.port_write(_Q35_CONFIG_DATA, (self.ecam & 0xFFFFFFFF) | 1)


ARCHES = {
    "aarch64": Arch(
        name="aarch64",
        machine=("-machine", "virt,gic-version=3", "-cpu", "max"),
        ram_base=0x40000000,
        ram_usable=0x200000,
        ecam=0x4010000000,
        mmio32=0x10000000,
        mmio64=0x8000000000,
        hole=0x3F800000000,
        zeros=128 << 20,
    ),
    "x86_64": Arch(
        name="x86_64",
        # Slots are driven by their own registers, as on virt, not by ACPI.
        machine=(
            *("-machine", "q35", "-cpu", "max", "-vga", "none"),
            *("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"),
        ),
        ram_base=0,
        ram_usable=0x1000000,
        ecam=0xB0000000,
        mmio32=0xC0000000,
        mmio64=0x8000000000,
        hole=0x3F800000000,
    ),
}


def arch_by_name(name: str) -> Arch:
    """Look an architecture up; QtestError names the known ones."""
    try:
        return ARCHES[name]
    except KeyError:
        raise QtestError(f"unknown architecture '{name}', known: {', '.join(ARCHES)}") from None
