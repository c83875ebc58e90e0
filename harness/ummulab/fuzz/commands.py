# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab fuzz``."""

from __future__ import annotations

from pathlib import Path

import click

from ummulab.errors import UserError


@click.group()
def fuzz() -> None:
    """Fuzz parts of ummulab for a bounded time."""


@fuzz.command("device")
@click.option("--minutes", type=click.FloatRange(0.1, 24 * 60), default=10, show_default=True)
@click.option(
    "--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run one input again."
)
def fuzz_device(minutes: float, replay: Path | None) -> None:
    """QEMU's generic fuzzer with sanitizers, on the registers and the memory of both devices.

    The first time it builds a QEMU of its own (about 12 minutes on 2 cores).
    """
    from ummulab.fuzz import device

    if replay:
        said = device.replay(replay)
        if said:
            click.echo(said)
            raise UserError(f"{replay} still breaks a device")
        click.echo(f"{replay}: nothing happens")
        return
    result = device.fuzz(minutes)
    click.echo(f"{result.executions} inputs in {result.seconds:.0f} s, {len(result.findings)} findings")
    if result.findings:
        raise UserError(
            f"found {', '.join(map(str, result.findings))}",
            hint=f"run one again: scripts/ummulab fuzz device --replay FILE (log: {result.log})",
        )
