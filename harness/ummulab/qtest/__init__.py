# SPDX-License-Identifier: GPL-2.0-or-later
"""Device tests without a guest: qtest and QMP clients, a machine, a bench with tables and queues."""

from ummulab.qtest.errors import QemuDied, QmpCommandError, QtestError, QtestTimeout
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.pci import PciFunction

__all__ = ["PciFunction", "QemuDied", "QmpCommandError", "QtestError", "QtestMachine", "QtestTimeout"]
