# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of the device tests: one QEMU per module, a fresh state per test.

A test module may set ``DEVICES`` (``-device`` values), ``RAM_SIZE`` or ``BENCH`` (arguments of Bench).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ummulab.qtest.bench import Bench
from ummulab.qtest.machine import DEFAULT_DEVICES, DEFAULT_RAM, QtestMachine


@pytest.fixture(scope="module")
def module_machine(request: pytest.FixtureRequest) -> Iterator[QtestMachine]:
    """The module's QEMU.  Use ``machine``, which resets it first."""
    devices = getattr(request.module, "DEVICES", DEFAULT_DEVICES)
    ram = getattr(request.module, "RAM_SIZE", DEFAULT_RAM)
    with QtestMachine(devices, ram_size=ram) as machine:
        yield machine


@pytest.fixture
def machine(module_machine: QtestMachine) -> QtestMachine:
    """A machine just after reset."""
    module_machine.reset()
    return module_machine


@pytest.fixture
def bench(machine: QtestMachine, request: pytest.FixtureRequest) -> Bench:
    """BASE, freshly set up."""
    return Bench(machine, **getattr(request.module, "BENCH", {}))
