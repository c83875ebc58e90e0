# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters of the device models, read through QOM without touching guest-visible state."""

from __future__ import annotations

from ummulab.vm.errors import QmpError
from ummulab.vm.qmp import Qmp

PERIPHERALS = "/machine/peripheral"
# Models name their statistics stat-<what>.
PREFIX = "stat-"


def device_counters(qmp: Qmp, timeout: float = 5.0) -> dict[str, dict[str, int]]:
    """Return {device id: {counter: value}} of all devices that have an id and counters."""
    counters: dict[str, dict[str, int]] = {}
    for child in qmp.execute("qom-list", {"path": PERIPHERALS}, timeout):
        if not str(child["type"]).startswith("child<"):
            continue
        path = f"{PERIPHERALS}/{child['name']}"
        values = {}
        for prop in qmp.execute("qom-list", {"path": path}, timeout):
            name = str(prop["name"])
            if name.startswith(PREFIX):
                try:
                    values[name.removeprefix(PREFIX)] = int(
                        qmp.execute("qom-get", {"path": path, "property": name}, timeout)
                    )
                except (QmpError, TypeError, ValueError):
                    continue
        if values:
            counters[str(child["name"])] = values
    return counters


def format_counters(counters: dict[str, dict[str, int]]) -> str:
    """One line per device; zeros are left out."""
    lines = []
    for device, values in counters.items():
        shown = ", ".join(f"{name}={value}" for name, value in sorted(values.items()) if value)
        lines.append(f"  {device}: {shown or 'all zero'}")
    return "\n".join(lines)
