# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m ummulab``."""

from ummulab.cli import main

main()
