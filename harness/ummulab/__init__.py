# SPDX-License-Identifier: GPL-2.0-or-later
"""ummulab: build, boot, drive and explain a UMMU that exists only in QEMU."""

__version__ = "0.1.0"
