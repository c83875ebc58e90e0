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


@fuzz.command("model")
@click.option("--minutes", type=click.FloatRange(0.01, 24 * 60), default=10, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="The first seed; each image adds one.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=Path("findings"),
    show_default=True, help="Folder for minimal images of findings.",
)  # fmt: skip
def fuzz_model(minutes: float, seed: int, output: Path) -> None:
    """Ask device and reference model the same on damaged tables, and shrink what they differ on."""
    from ummulab.fuzz import model

    requests, found = model.hunt(60 * minutes, seed, output, click.echo)
    click.echo(f"{requests} requests from seed {seed:#x} on, {len(found)} findings")
    if found:
        raise UserError(f"device and model differ: {found[0]}", hint="again: scripts/ummulab replay FILE")


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def replay(files: tuple[Path, ...]) -> None:
    """Ask device and reference model again what saved FILES ask."""
    from ummulab.fuzz import model

    differ = 0
    for path in files:
        said = model.replay(path)
        differ += bool(said)
        click.echo(f"{path}: {'; '.join(said) or 'device and model agree'}")
    if differ:
        raise UserError(f"{differ} of {len(files)} files still differ")
