# SPDX-License-Identifier: GPL-2.0-or-later
"""Random tables and requests, device against reference model, and small readable regression files."""
