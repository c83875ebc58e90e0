# SPDX-License-Identifier: GPL-2.0-or-later
"""A failed test again, with its VM left open at a prompt."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ummulab.vm import Vm


def command_line(item: pytest.Item) -> str:
    """The command that runs just this test and then gives the VM's console."""
    options = [f"--guest-arch={os.environ['GUEST_ARCH']}"]
    given = item.config.getoption("--seed")
    if given is not None:
        options.append(f"--seed={given:#x}")
    words = ["-n0", "-s", "--keep-vm", *options, item.nodeid]
    ours = (item.config.rootpath / "scripts/ummulab").exists()
    launcher = "scripts/ummulab pytest" if ours else "pytest"
    return f"{launcher} {shlex.join(words)}"


def offer(config: pytest.Config, vms: Sequence[Vm]) -> None:
    """Give the terminal to the console of the test's first living VM until the person leaves."""
    from ummulab.vm import terminal
    from ummulab.vm.commands import attach

    living = [vm for vm in vms if vm.alive]
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        if not living:
            print("\nummulab: --keep-vm: no VM of this test is alive", file=sys.stderr)
        elif not (sys.stdin and sys.stdin.isatty()):
            print("\nummulab: --keep-vm: standard input is not a terminal (use -s and -n0)", file=sys.stderr)
        else:
            print(f"\nummulab: the VM of the failed test; {terminal.ESCAPE_NAME} leaves it", file=sys.stderr)
            attach(living[0])
