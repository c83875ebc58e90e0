# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual machines: start, drive, watch, save and clone them."""

from __future__ import annotations

from ummulab.vm.command import Result
from ummulab.vm.config import DEFAULT_DEVICES, VmConfig
from ummulab.vm.errors import (
    CommandFailed,
    GuestPanic,
    QmpError,
    StateError,
    VmDied,
    VmError,
    VmTimeout,
)
from ummulab.vm.qmp import Event, Qmp
from ummulab.vm.state import SavedState, load_state
from ummulab.vm.template import Templates
from ummulab.vm.vm import Vm

__all__ = [
    "DEFAULT_DEVICES",
    "CommandFailed",
    "Event",
    "GuestPanic",
    "Qmp",
    "QmpError",
    "Result",
    "SavedState",
    "StateError",
    "Templates",
    "Vm",
    "VmConfig",
    "VmDied",
    "VmError",
    "VmTimeout",
    "load_state",
]
