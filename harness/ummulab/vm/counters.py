# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters of the device models, read through QOM without touching guest-visible state."""

from __future__ import annotations

from ummulab.vm.qmp import Qmp

PERIPHERALS = "/machine/peripheral"
#: A model with many counters gives them all in one property …
DICTIONARY = "counters"
#: … otherwise each is a read-only property of this type.
COUNTER_TYPE = "uint64"


def device_counters(qmp: Qmp, timeout: float = 5.0) -> dict[str, dict[str, int]]:
    """Return {device id: {counter: value}} of all our devices that have an id and counters."""
    counters: dict[str, dict[str, int]] = {}
    for child in qmp.execute("qom-list", {"path": PERIPHERALS}, timeout):
        if str(child["type"]).startswith("child<ummu"):
            values = _counters_of(qmp, f"{PERIPHERALS}/{child['name']}", timeout)
            if values:
                counters[str(child["name"])] = values
    return counters


def _counters_of(qmp: Qmp, path: str, timeout: float) -> dict[str, int]:
    properties = {str(p["name"]): str(p["type"]) for p in qmp.execute("qom-list", {"path": path}, timeout)}
    if DICTIONARY in properties:
        values = qmp.execute("qom-get", {"path": path, "property": DICTIONARY}, timeout)
        return {str(name): value for name, value in values.items() if isinstance(value, int)}
    names = [name for name, kind in properties.items() if kind == COUNTER_TYPE]
    return {name: int(qmp.execute("qom-get", {"path": path, "property": name}, timeout)) for name in names}


def format_counters(counters: dict[str, dict[str, int]]) -> str:
    """One line per device; zeros are left out."""
    lines = []
    for device, values in counters.items():
        shown = ", ".join(f"{name}={value}" for name, value in sorted(values.items()) if value)
        lines.append(f"  {device}: {shown or 'all zero'}")
    return "\n".join(lines)
